"""A run has ended where it says why and its sessions and pairs bear that out. Whoever breaks it off
and writes an end by hand has interrupted it: what he saw stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvgate.adjudicate import TIMES, Judged, reopened_by_change
from kvgate.analyse.results import End, Ending
from kvgate.campaign import Opening, ReliedOn, open_gate
from kvgate.conduct import gate as gate_module
from kvgate.conduct.finish import conclude, finish, has_ended
from kvgate.contract import load_contract
from kvgate.decide.ended import NOT_BORNE_OUT, borne_out, broken_off
from kvgate.errors import GateClosed
from kvgate.evidence.journal import Journal
from kvgate.evidence.verify import verify
from kvgate.verdict import About, Condition, Decision, Verdict

from . import stage as stage_module
from .stage import Stage, refused

IN_THE_SECOND_PAIR = 8
"""Number of a block: two of the reference session, four of the first pair, two of the second's
first session come before."""
ENDED_AT = {"ended_at": "2026-03-04T10:00:30+00:00"}


def plan_of(stage: Stage, run: int = 1) -> dict[str, Any]:
    return dict(json.loads((stage.bundle(run) / "plan.json").read_text()))


def forge(stage: Stage, **plan: Any) -> None:
    """Write by hand what a run that ended would have left."""
    (stage.bundle() / TIMES).write_text(json.dumps(ENDED_AT))
    (stage.bundle() / "plan.json").write_text(json.dumps(plan_of(stage) | plan))


def killed(root: Path, patch: pytest.MonkeyPatch, **contract: Any) -> Stage:
    stage = Stage(root, patch, **contract)
    stage.killed_at(IN_THE_SECOND_PAIR, "after", patch)
    return stage


def all_said_to_have_ended(stage: Stage) -> dict[str, Any]:
    return {"sessions": [s | {"state": "ended"} for s in plan_of(stage)["sessions"]]}


# --- forged ---------------------------------------------------------------------------------------

WORDS: dict[str, Any] = {"no word": None, "a word that no run writes": "done"}
FORGED: dict[str, tuple[dict[str, Any], bool]] = {
    "the date alone": ({}, False),
    **{name: ({"ended": word}, True) for name, word in WORDS.items()},
    **{f"{why}, a session runs": ({"ended": why}, False) for why in Ending},
    **{f"{why}, all sessions ended": ({"ended": why}, True) for why in Ending},
}
"""What is written into plan.json by hand, and whether every session is said to have ended."""


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_end_is_an_interruption_and_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    stage = killed(tmp_path, monkeypatch)
    kept = stage.bytes_of()
    said, sessions_too = FORGED[forged]
    forge(stage, **said, **(all_said_to_have_ended(stage) if sessions_too else {}))
    judged = stage.run().judged
    assert (judged.campaign.run, len(judged.campaign.interruptions)) == (1, 1)
    assert judged.verdict.verdict is Verdict.PASS
    assert stage.bytes_of().items() >= kept.items()
    assert not stage.bundle(2).exists()


def test_a_forged_end_counts_against_what_the_contract_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = killed(tmp_path, monkeypatch, interruptions=0)
    forge(stage, ended=Ending.TARGET, **all_said_to_have_ended(stage))
    assert "G3 was interrupted once, the contract grants none: it is on HOLD" in refused(stage)


def test_a_forged_end_is_not_sealed_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = killed(tmp_path, monkeypatch)
    forge(stage)
    assert not has_ended(stage.bundle())
    forge(stage, ended=Ending.TARGET, **all_said_to_have_ended(stage))
    assert has_ended(stage.bundle())
    with pytest.raises(GateClosed, match="was broken off and is not sealed"):
        finish(stage.bundle())
    assert verify(stage.bundle())


def test_a_forged_end_that_was_sealed_holds_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed by other means than the command: its verdict says so, and no other draw begins."""
    stage = killed(tmp_path, monkeypatch)
    forge(stage, ended=Ending.TARGET)
    with Journal.open_existing(stage.bundle()) as journal:
        verdict = conclude(journal).verdict
    assert verify(stage.bundle()) == []
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.HOLD)
    assert (verdict.reason.code, verdict.decision_reason.code) == (NOT_BORNE_OUT, NOT_BORNE_OUT)
    (stage.space.reports).mkdir()
    for kind in ("junit.xml", "blocks.csv"):
        (stage.space.reports / f"g3-001.{kind}").write_text("made up")
    assert "g3-001 was broken off and sealed as if it had ended: G3 is on HOLD" in refused(stage)


# --- true -----------------------------------------------------------------------------------------


def enough(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    """As drawn: the pairs agree at once."""


def a_fail(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    stage.draw = lambda pair, attempt: 30.0 + 0.1 * pair


def the_target(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    stage.draw = lambda pair, attempt: 9.0 * (-1) ** pair


def unusable(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    broken = Condition("client_ran", About.INSTRUMENT, False, 0.0, 1.0, "1", "")
    patch.setattr(stage_module, "HEALTHY", (broken,))


def a_change(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    honest = open_gate

    def opened(*given: Any, **more: Any) -> Opening:
        other = {"engine": {"appliance engine_version": "0.9"}}
        return replace(honest(*given, **more), relied_on=(ReliedOn(3, 1, "0" * 64, other),))

    stage.bytes += b"\n[changes]\nengine = 1\n"
    patch.setattr(gate_module, "open_gate", opened)


TRUE: dict[str, tuple[Callable[[Stage, pytest.MonkeyPatch], None], Ending, Verdict]] = {
    "enough": (enough, Ending.ENOUGH, Verdict.PASS),
    "a FAIL": (a_fail, Ending.ENOUGH, Verdict.FAIL),
    "the target": (the_target, Ending.TARGET, Verdict.INCONCLUSIVE),
    "nothing usable": (unusable, Ending.UNUSABLE, Verdict.INVALID),
    "a change": (a_change, Ending.REOPENED, Verdict.INVALID),
}


@pytest.mark.parametrize("how", TRUE)
def test_a_true_end_is_noted_and_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    play, why, verdict = TRUE[how]
    stage = Stage(tmp_path, monkeypatch)
    play(stage, monkeypatch)
    judged = stage.run().judged
    assert (plan_of(stage)["ended"], judged.verdict.verdict) == (why, verdict)
    assert reopened_by_change(judged) == (why is Ending.REOPENED)
    assert not broken_off(judged.verdict)
    assert verify(stage.bundle()) == []
    # Evidence from before ends were noted says the same, byte for byte.
    plan = stage.bundle() / "plan.json"
    plan.chmod(0o644)
    plan.write_text(json.dumps({k: v for k, v in plan_of(stage).items() if k != "ended"}))
    without = stage._judge(stage.bundle())
    assert without.analysis.end is None
    assert without.verdict_json == judged.verdict_json


@pytest.mark.parametrize("how", TRUE)
def test_another_word_than_the_true_one_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    play, why, _ = TRUE[how]
    stage = Stage(tmp_path, monkeypatch)
    play(stage, monkeypatch)
    judged = stage.run().judged
    end = judged.analysis.end
    assert end is not None
    assert [word for word in Ending if holds(judged, replace(end, why=word))] == [why]


def holds(judged: Judged, end: End) -> bool:
    analysis = replace(judged.analysis, end=end)
    return borne_out(
        judged.contract, 3, analysis, judged.verdict.clauses,
        extension=False, reopened=reopened_by_change(judged),
    )  # fmt: skip


def test_an_end_needs_each_thing_that_bears_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Stage(tmp_path, monkeypatch).run().judged
    end = judged.analysis.end
    assert end is not None
    assert holds(judged, end)
    assert not holds(judged, replace(end, pairs=end.pairs - 1))
    assert not holds(judged, replace(end, running=(6,)))
    assert not holds(judged, replace(end, broken=(6,)))
    assert not holds(judged, replace(end, sessions=(*end.sessions, 7)))  # it left no block


def test_an_extension_ends_at_its_own_target_and_forgets_the_end_that_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, max_pairs=6)
    the_target(stage, monkeypatch)
    assert stage.run().judged.verdict.decision is Decision.EXTEND
    seen: list[object] = []
    stage.on_block = lambda n, when: seen.append(plan_of(stage, 2).get("ended"))
    judged = stage.run().judged
    assert seen
    assert set(seen) == {None}
    assert (judged.campaign.run, plan_of(stage, 2)["ended"]) == (2, Ending.TARGET)
    assert not broken_off(judged.verdict)


def test_a_soak_ends_with_the_block_of_its_long_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = load_contract(Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml")
    analysis = Stage(tmp_path, monkeypatch).run().judged.analysis

    def holds(end: End) -> bool:
        given = replace(analysis, end=end)
        return borne_out(contract, 4, given, (), extension=False, reopened=False)

    assert holds(End(Ending.TARGET, long_run=True))
    assert not holds(End(Ending.TARGET))
    assert not holds(End(Ending.ENOUGH, long_run=True))
    assert not holds(End(Ending.REOPENED, long_run=True))
