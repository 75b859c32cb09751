"""G4, stability: no drift, no leak, no unexplained restart; every fault is survived."""

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
