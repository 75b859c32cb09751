"""Each fault of the rehearsal ends in its own verdict, through the real path: pytest, Ansible,
processes that stream over HTTP, evidence, judge, report. Half a minute each."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kvgate.evidence.verify import verify

from .play import begun, command, ended, run, until


def test_a_healthy_appliance_passes(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("PASS", "PROCEED")
    assert result.verdict["rehearsal"] is True
    assert verify(result.bundle) == []
    assert str(result.bundle / "verdict.json") in result.output


def test_a_slow_tier_fails_and_stops_the_loss(tmp_path: Path) -> None:
    result = run(tmp_path, "slow-tier")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("FAIL", "STOP-LOSS")
    figure = result.clause("G3.1")["figures"][0]
    assert figure["threshold"] == 0.25
    assert figure["value"] < 0.25
    assert "G3.1 FAIL" in result.output
    assert "threshold 25 %" in result.output


def test_wrong_answers_fail_without_a_retest(tmp_path: Path) -> None:
    result = run(tmp_path, "wrong-answers=0.3")
    assert result.exit_code == 1
    assert result.clause("G3.5")["verdict"] == "FAIL"
    assert result.verdict is not None
    assert result.verdict["decision"] == "STOP-LOSS"


def test_errors_that_only_the_appliance_has_fail(tmp_path: Path) -> None:
    result = run(tmp_path, "error-events@appliance")
    assert result.exit_code == 1
    assert result.clause("G3.6")["verdict"] == "FAIL"
    assert "error_event" in result.output


def test_streams_truncated_in_both_arms_are_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "truncated-streams@baseline+appliance")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("INVALID", "RERUN")
    assert "requests_finished" in result.conditions()


def test_a_tier_that_is_never_asked_is_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "never-hits")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "declared_source" in result.conditions()


def test_a_store_that_lost_what_it_acknowledged_fails(tmp_path: Path) -> None:
    result = run(tmp_path, "store-misses")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "FAIL"


def test_a_warm_baseline_is_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "warm-baseline")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "engine_cache_cold" in result.conditions()


def test_an_engine_that_dies_is_invalid(tmp_path: Path) -> None:
    # That a restart breaks the same condition is shown block by block, beside the other knobs.
    result = run(tmp_path, "engine-dies")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "engine_alive" in result.conditions()


def test_noisy_blocks_are_inconclusive(tmp_path: Path) -> None:
    result = run(tmp_path, "noisy=0.6")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("INCONCLUSIVE", "EXTEND")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_keeps_partial_evidence(tmp_path: Path, number: int) -> None:
    with begun(command(tmp_path, ())) as (process, said):
        until(process, said, "pair 1", "cold_restore@8")
        process.send_signal(number)
        assert process.stdout is not None
        said.append(process.stdout.read())
    result = ended(tmp_path, process.returncode, "".join(said))
    assert result.exit_code != 0
    assert result.verdict is None
    state = json.loads((result.bundle / "state.json").read_text())
    assert state["state"] == "partial"
    assert "stopped by" in result.output
