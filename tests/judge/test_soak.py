"""A long run: windows, what is a fault of ours, and what injected faults explain."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from kvgate.analyse.assemble import RawBlock, assemble
from kvgate.analyse.results import Analysis
from kvgate.contract import SoakPlan
from kvgate.errors import CannotMeasure
from kvgate.record import Outcome
from kvgate.verdict import Verdict

from .builders import clause, contract, judged
from .test_validity import requests

S = 1_000_000_000


def plan() -> SoakPlan:
    found = contract().gate(4).soak
    assert found is not None
    return found


def table(step_s: float = 10.0) -> pd.DataFrame:
    """A request every ``step_s`` over the whole run, each answered after a tenth of a second."""
    one = requests().iloc[:1]
    n = int(plan().duration_s / step_s)
    frame = pd.concat([one] * n, ignore_index=True)
    for column in frame.columns:
        if column.endswith("_ns") and column not in {"token_ns", "client_lag_ns"}:
            first = int(one.iloc[0][column])
            moved = [first + int(i * step_s * S) for i in range(n)]
            frame[column] = pd.array(moved, dtype="Int64")
    return frame


def memory(growth: float = 0.0) -> pd.DataFrame:
    times = [int(t * S) for t in range(0, int(plan().duration_s), 30)]
    size = [1e9 * (1 + growth * t / times[-1]) for t in times]
    return pd.DataFrame(
        {"t_ns": times, "source": "engine", "name": "resident_bytes", "value": size}
    )  # fmt: skip


def block(**changed: Any) -> dict[str, Any]:
    target = {"before": {}, "after": {}, "increase": {"restarts": 0, "delta": {}}}
    return {
        "n": 0, "kind": "soak", "arm": "appliance", "cell": {"workload": "cold_restore"},
        "requests_recorded": 0, "load_state": "done",
        "observation": {
            "started_ns": 0, "ended_ns": int(plan().duration_s * S),
            "coverage": {"engine": 1.0, "host": 1.0}, "coverage_share": 1.0,
            "targets": {"engine": target, "store-appliance": target},
        },
        "events": [
            {"at_s": f.at_s, "kind": f.kind, "detail": "pids differ", "proved": True}
            for f in plan().faults
        ],
    } | changed  # fmt: skip


def analysed(
    frame: pd.DataFrame | None = None,
    engine: pd.DataFrame | None = None,
    times: int = 1,
    **more: Any,
) -> Analysis:
    rows = table() if frame is None else frame
    told = block(requests_recorded=len(rows), **more)
    raw = [RawBlock(n, told, rows, memory() if engine is None else engine) for n in range(times)]
    return assemble(contract(), 4, raw, {}, {}, 1.0)


def verdicts(analysis: Analysis) -> dict[str, Verdict]:
    return {c.metric: c.verdict for c in judged(analysis, gate=4).clauses}


def test_a_quiet_run_passes_every_clause() -> None:
    assert set(verdicts(analysed()).values()) == {Verdict.PASS}


def failing(outcome: Outcome, share: float = 0.1) -> pd.DataFrame:
    frame = table()
    frame.loc[frame.index % int(1 / share) == 0, "outcome"] = outcome.value
    return frame


def test_failed_requests_fail_the_run() -> None:
    assert verdicts(analysed(failing(Outcome.TRUNCATED)))["soak_error_share"] is Verdict.FAIL


def test_failures_of_the_load_host_are_not_the_appliances() -> None:
    found = verdicts(analysed(failing(Outcome.CLIENT_FAULT)))
    assert found["soak_error_share"] is Verdict.INVALID
    assert Verdict.FAIL not in found.values()


def test_requests_that_we_gave_up_ourselves_are_no_failures() -> None:
    frame = table()
    frame.loc[len(frame) - 1, "outcome"] = Outcome.INTERRUPTED.value
    assert verdicts(analysed(frame))["soak_error_share"] is Verdict.PASS


def test_a_window_without_a_finished_request_is_a_hang() -> None:
    frame = table()
    low, high = 2 * plan().window_s * S, 3 * plan().window_s * S
    quiet = frame[(frame["end_ns"] < low) | (frame["end_ns"] >= high)].reset_index(drop=True)
    assert verdicts(analysed(quiet))["soak_error_share"] is Verdict.FAIL


def test_a_drift_of_the_first_token_fails() -> None:
    frame = table()
    late = pd.array([int(0.05 * S * i / len(frame)) for i in range(len(frame))], dtype="Int64")
    for column in ("first_token_ns", "last_token_ns", "end_ns"):
        frame[column] = frame[column] + late
    assert verdicts(analysed(frame))["soak_ttft_drift"] is Verdict.FAIL


def test_memory_that_grows_fails_and_memory_that_nobody_saw_is_invalid() -> None:
    assert verdicts(analysed(engine=memory(0.5)))["soak_memory_slope"] is Verdict.FAIL
    assert verdicts(analysed(engine=memory().iloc[:0]))["soak_memory_slope"] is Verdict.INVALID
    other = memory().assign(source="store-appliance")
    assert verdicts(analysed(engine=other))["soak_memory_slope"] is Verdict.INVALID


def test_a_fault_that_was_not_proved_is_invalid_and_explains_no_restart() -> None:
    observation = block()["observation"]
    restarted = {"before": {}, "after": {}, "increase": {"restarts": 1, "delta": {}}}
    observation["targets"] = observation["targets"] | {"store-appliance": restarted}
    explained = verdicts(analysed(observation=observation))
    assert explained["soak_restarts"] is Verdict.PASS
    events = [e | {"proved": False} for e in block()["events"]]
    found = verdicts(analysed(observation=observation, events=events))
    assert (found["fault_proved"], found["soak_restarts"]) == (Verdict.INVALID, Verdict.FAIL)
    assert verdicts(analysed(events=[]))["fault_proved"] is Verdict.INVALID


def test_a_run_that_ended_early_is_invalid_not_a_fail() -> None:
    observation = block()["observation"] | {"ended_ns": int(plan().duration_s * S / 2)}
    assert verdicts(analysed(observation=observation))["soak_duration"] is Verdict.INVALID


def test_gaps_in_the_observation_are_invalid() -> None:
    for coverage in ({"engine": 0.9, "host": 1.0}, {"engine": 1.0}, {}, None):
        observation = block()["observation"] | {"coverage": coverage}
        assert verdicts(analysed(observation=observation))["soak_coverage"] is Verdict.INVALID


def test_a_restart_that_nobody_could_see_is_invalid() -> None:
    observation = block()["observation"] | {"targets": {}}
    assert verdicts(analysed(observation=observation))["soak_restarts"] is Verdict.INVALID


def test_a_run_that_stands_twice_in_the_bundle_is_invalid() -> None:
    assert set(verdicts(analysed(times=2)).values()) == {Verdict.INVALID}


def test_a_load_that_ended_by_itself_is_not_the_appliances_hang() -> None:
    half = table().iloc[:100].reset_index(drop=True)
    for state in ("failed", "killed", "interrupted", None):
        found = verdicts(analysed(half, load_state=state))
        assert found["soak_error_share"] is Verdict.INVALID
        assert Verdict.FAIL not in found.values()


def test_a_load_that_the_breaker_ended_keeps_its_errors() -> None:
    frame = failing(Outcome.TIMEOUT, 1.0).iloc[:100].reset_index(drop=True)
    breaker = {"at_s": 1000.0, "kind": "breaker", "detail": "100 of 100 failed", "proved": True}
    found = verdicts(analysed(frame, load_state="interrupted", events=[breaker]))
    assert found["soak_error_share"] is Verdict.FAIL


def test_a_run_without_requests_is_invalid() -> None:
    found = judged(analysed(table().iloc[:0]), gate=4)
    assert clause(found, "G4.1").verdict is Verdict.INVALID
    assert Verdict.FAIL not in {c.verdict for c in found.clauses}


@pytest.mark.parametrize("more", [{"observation": {}}, {"observation": None}, {"events": [{}]}])
def test_a_run_whose_record_is_spoilt_has_no_verdict(more: dict[str, Any]) -> None:
    with pytest.raises(CannotMeasure, match="block 0 is not usable"):
        analysed(**more)


def test_the_tables_rows_are_those_that_were_counted() -> None:
    raw = RawBlock(0, block(requests_recorded=3), table(), memory())
    with pytest.raises(CannotMeasure, match="recorded 3 requests"):
        assemble(contract(), 4, [raw], {}, {}, 1.0)
