"""A gate with two setups: each has its pairs, its reference and its priming, also after a break."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvgate.analyse.results import BlockResult
from kvgate.contract import parse_contract
from kvgate.evidence.verify import verify
from kvgate.plan import Setup
from kvgate.verdict import Decision, Verdict

from . import stage as stage_module
from .stage import Stage, looks

TWO = 'parallelism = ["default", "halves"]'
CHANGES = {
    "[workloads.cold_restore]\n": '[parallelism.halves]\ntext = { en = "two", zh = "两个" }\n'
    "instances = 2\n\n[workloads.cold_restore]\n",
    '"cold_restore", levels = [8] }': f'"cold_restore", levels = [8], {TWO} }}',
    '"probe", levels = [2] }': f'"probe", levels = [2], {TWO} }}',
    '"probe", levels = [2, 2] }': f'"probe", levels = [2, 2], {TWO} }}',
}
# Two reference sessions of two blocks each, then four sessions of two blocks for each pair.
REFERENCES, PER_PAIR = 4, 8
HALVES = Setup("halves")


def two_setups(stage: Stage) -> Stage:
    text = stage.bytes.decode()
    for old, new in CHANGES.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    stage.bytes = text.encode()
    stage.contract = parse_contract(stage.bytes, name="two")
    stage.inventory = stage.inventory.model_copy(update={"engine_ports": (1, 9)})
    return stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return two_setups(Stage(tmp_path, monkeypatch))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        made = two_setups(Stage(tmp_path_factory.mktemp("whole"), patch))
        return made.run().judged, made


def sessions(stage: Stage) -> list[dict[str, Any]]:
    return list(json.loads((stage.bundle() / "plan.json").read_text())["sessions"])


def test_every_setup_has_a_figure_and_the_gate_passes_only_with_all(whole: Any) -> None:
    judged, _ = whole
    assert (judged.verdict.verdict, judged.verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    places = {c.clause: [f.where for f in c.figures] for c in judged.verdict.clauses}
    assert places["G3.1"] == ["cold_restore@8", "cold_restore@8/halves"]
    assert places["G3.5"] == ["probe", "probe/halves"]


def test_stores_are_primed_once_for_each_setup_and_each_setup_has_its_reference(whole: Any) -> None:
    _, stage = whole
    assert stage.primed == ["baseline", "baseline/halves", "appliance", "appliance/halves"]
    assert stage.started[:2] == ["recompute", "recompute/halves"]
    again = Counter(stage.started[2:])
    assert set(again) == {f"{arm}{s}" for arm in ("baseline", "appliance") for s in ("", "/halves")}
    assert set(again.values()) == {3}


def test_what_all_setups_were_primed_with_counts_together(whole: Any) -> None:
    _, stage = whole
    plan = json.loads((stage.bundle() / "plan.json").read_text())
    # 48 cold prompts and 12 probes of 2,048 tokens, in each of two setups.
    assert plan["primed_tokens"] == dict.fromkeys(("baseline", "appliance"), 2 * 60 * 2048)
    assert plan["setups"] == [
        {"parallelism": p, "strategy": "default", "distance": "local"}
        for p in ("default", "halves")
    ]


@pytest.mark.parametrize("at", [1, 3, REFERENCES + 1, REFERENCES + 6, REFERENCES + PER_PAIR + 5])
def test_a_kill_at_any_block_ends_in_the_verdict_of_an_uninterrupted_run(
    stage: Stage, whole: Any, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    judged, _ = whole
    stage.killed_at(at, "inside", monkeypatch)
    kept = stage.bytes_of()
    found = stage.run().judged
    assert looks(found) == looks(judged)
    assert found.verdict.verdict is Verdict.PASS
    broken = {s["number"] for s in sessions(stage) if s["state"] == "interrupted"}
    blocks = [json.loads(p.read_text()) for p in stage.bundle().glob("blocks/*/block.json")]
    measured = Counter(
        (b["pair"], b["role"], b["cell"]["workload"], b["cell"]["parallelism"])
        for b in blocks
        if b["session"] not in broken and b["pair"] is not None
    )
    assert set(measured.values()) == {1}
    assert len(measured) == 3 * 2 * 2 * 2
    assert stage.bytes_of().items() >= kept.items()
    assert verify(stage.bundle()) == []


def test_a_setup_that_was_whole_is_not_measured_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the third session of pair 2: the setup before it is whole and stays.
    stage.killed_at(REFERENCES + PER_PAIR + 4, "inside", monkeypatch)
    stage.run()
    second = [s for s in sessions(stage) if s["pair"] == 1]
    assert [s["state"] for s in second] == ["ended", "ended", "interrupted", "ended", "ended"]
    assert [s["attempt"] for s in second] == [0, 0, 0, 1, 1]
    first_setup = second[0]["setup"]["parallelism"]
    others = [s["setup"]["parallelism"] for s in second[1:]]
    assert others == [first_setup, *[p for p in ("default", "halves") if p != first_setup] * 3]


def test_one_bad_setup_fails_the_gate(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = stage_module._result

    def slow_halves(block: Mapping[str, Any]) -> BlockResult:
        found = plain(block)
        if found.cell.setup != HALVES or found.role != "test":
            return found
        statistics = replace(found.statistics, ttft_p50_s=1.47 * float(block["ttft_s"]))
        return replace(found, statistics=statistics)

    monkeypatch.setattr(stage_module, "_result", slow_halves)
    verdict = stage.run().judged.verdict
    clause = next(c for c in verdict.clauses if c.clause == "G3.1")
    assert [f.verdict for f in clause.figures] == [Verdict.PASS, Verdict.FAIL]
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)
