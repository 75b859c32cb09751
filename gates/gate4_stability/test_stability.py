"""G4, stability: no drift, no leak, no wrong answer, no unexplained restart; every fault is
survived, and the tier under test was really used all the time."""

import pytest

from kvgate.pytest_plugin import clause
from kvgate.verdict import ClauseVerdict

pytestmark = pytest.mark.gate4


@clause("G4.1")
def test_no_window_has_too_many_errors(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.2")
def test_time_to_first_token_does_not_drift(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.3")
def test_memory_does_not_leak(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.4")
def test_nothing_restarts_unexplained(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.5")
def test_every_injected_fault_took_effect(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.6")
def test_the_run_was_observed(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.7")
def test_the_run_lasted_the_agreed_time(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.8")
def test_the_prompts_were_restored_by_the_appliance(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.9")
def test_no_answer_is_wrong(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.10")
def test_throughput_does_not_fall(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.11")
def test_no_window_is_much_worse_than_the_others(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G4.12")
def test_service_is_as_before_soon_after_each_fault(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason
