"""Two setups of one gate through the real path: one engine on the whole machine, and two engines
that share it, with a store that acknowledges early and is far away. All of it simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.evidence.verify import verify

from .play import CONTRACT, Ended, command, follow, free_ports

FAR = "tp4x2/write_back/far"
AXES = """
[parallelism.tp8]
text = { en = "TP8: one engine on all accelerators", zh = "TP8：单引擎占用全部加速卡" }
tensor_parallel = 8
engine_args = ["--tensor-parallel-size", "8"]

[parallelism.tp4x2]
text = { en = "TP4 x 2: two engines on one machine", zh = "TP4×2：单机两个引擎" }
instances = 2
tensor_parallel = 4
engine_args = ["--tensor-parallel-size", "4"]

[strategy.write_back]
text = { en = "acknowledged before it is written", zh = "先确认后写入" }
settings = { acknowledge = "write_back" }

[distance.local]
text = { en = "as it is (simulated)", zh = "原样（模拟）" }
delay_ms = 0.0
within_ms = 1500.0
round_trip_ms_at_most = 1500.0

[distance.far]
text = { en = "3 s away (simulated)", zh = "往返增加 3 秒（模拟）" }
delay_ms = 3000.0
within_ms = 1500.0

[workloads.cold_restore]
"""
TP8 = 'parallelism = ["tp8"]'
TP4X2 = 'parallelism = ["tp4x2"], strategy = ["write_back"]'
AWAY = ', distance = ["far"]'


def cold(setup: str) -> str:
    return f'{{ workload = "cold_restore", levels = [8], {setup} }}'


CHANGES = {
    "[workloads.cold_restore]\n": AXES,
    '{ workload = "cold_restore", levels = [8] },': f"""{cold(TP8)}, {cold(TP4X2 + AWAY)},""",
    '  { workload = "probe", levels = [2] },\n': "",
    'reference_arm = "recompute"\nreference_cells = [{ workload = "probe", levels = [2, 2] }]': "",
    "min_pairs = 3": "min_pairs = 2",
    "planned_pairs = 3": "planned_pairs = 2",
    "max_pairs = 6": "max_pairs = 2",
    "spare_pairs = 1": "spare_pairs = 0",
    # Two pairs are hardly a measurement: what they must show is coarse.
    "drop_at_least = 0.25\nindifference = 0.03": "drop_at_least = 0.12\nindifference = 0.10",
    "gain_at_least = 0.29\nindifference = 0.04": "gain_at_least = 0.12\nindifference = 0.10",
    "simulator_late_s_at_most = 0.08": "simulator_late_s_at_most = 0.5",
}  # fmt: skip


def contract(tmp_path: Path) -> Path:
    text = CONTRACT.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    # The answers' clause needs sessions of its own; its setups are tested without engines.
    head, _, tail = text.partition('[[gate3.clause]]\nid = "G3.5"')
    text = head + "[[gate3.clause]]" + tail.partition("[[gate3.clause]]")[2]
    path = tmp_path / "axes.toml"
    path.write_text(text)
    return path


def play(tmp_path: Path, *faults: str) -> Ended:
    argv = command(tmp_path, faults, contract=contract(tmp_path))
    variables = tmp_path / "inventory/group_vars/all.yml"
    text = variables.read_text()
    first = text.partition("kvgate_engine_port: ")[2].split()[0]
    (second,) = free_ports(1)
    variables.write_text(f"{text}\nkvgate_engine_ports: [{first}, {second}]\n")
    return follow(tmp_path, argv)


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    # No engine start is faster than another: two pairs could not average that.
    return play(tmp_path_factory.mktemp("axes"), "noisy=0")


def blocks(result: Ended) -> list[dict[str, Any]]:
    found = [json.loads(p.read_text()) for p in result.bundle.glob("blocks/*/block.json")]
    return sorted(found, key=lambda b: int(b["n"]))


def test_every_setup_is_compared_and_the_gate_takes_the_worst(passed: Ended) -> None:
    assert passed.exit_code == 0, passed.output
    assert passed.verdict is not None
    assert passed.verdict["verdict"] == "PASS"
    for clause in ("G3.1", "G3.2"):
        places = {f["where"]: f["n"] for f in passed.clause(clause)["figures"]}
        assert places == {"cold_restore@8/tp8": 2, f"cold_restore@8/{FAR}": 2}
    assert verify(passed.bundle) == []


def test_two_engines_share_the_load_and_are_counted_together(passed: Ended) -> None:
    shared = [b for b in blocks(passed) if b["cell"]["parallelism"] == "tp4x2"]
    assert len(shared) == 4
    for block in shared:
        seen = block["observation"]["targets"]
        engines = [seen[name]["increase"]["delta"]["prompt_tokens"] for name in
                   ("engine", "engine-2")]  # fmt: skip
        assert engines[0] == engines[1] > 0
        told = block["setup"]["engines"]
        assert [e["tensor_parallel"] for e in told] == [4, 4]
    alone = [b for b in blocks(passed) if b["cell"]["parallelism"] == "tp8"]
    assert not any("engine-2" in b["observation"]["targets"] for b in alone)


def test_strategy_and_distance_were_carried_out_and_proved(passed: Ended) -> None:
    for block in blocks(passed):
        far = block["cell"]["distance"] == "far"
        told = block["setup"]
        assert told["strategy"]["acknowledge"] == ("write_back" if far else "write_through")
        if far:
            assert told["round_trip_ms"] - told["round_trip_plain_ms"] == pytest.approx(
                3000, abs=900
            )


def test_the_arms_of_a_pair_are_neighbours_in_one_setup(passed: Ended) -> None:
    plan = json.loads((passed.bundle / "plan.json").read_text())
    sessions = [s for s in plan["sessions"] if s["pair"] is not None]
    for first, second in zip(sessions[::2], sessions[1::2], strict=True):
        assert (first["pair"], first["setup"]) == (second["pair"], second["setup"])
        assert {first["role"], second["role"]} == {"reference", "test"}
    assert {"appliance/tp8", f"appliance/{FAR}"} <= set(plan["environment"])


def test_the_report_names_the_setups(passed: Ended) -> None:
    reports = passed.bundle.parent / "reports"
    for lang, name in (("en", "TP4 x 2: two engines on one machine"), ("zh", "单机两个引擎")):
        assert name in (reports / f"g3-001.{lang}.html").read_text()
