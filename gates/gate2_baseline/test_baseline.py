"""G2, single-node baseline: floors are reached and the noise is known."""

import pytest

from kvgate.pytest_plugin import clause
from kvgate.verdict import ClauseVerdict

pytestmark = pytest.mark.gate2


@clause("G2.1")
def test_one_stream_restores_in_time(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G2.2")
def test_the_store_delivers_its_read_rate(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G2.3")
def test_an_arm_against_itself_shows_no_effect(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G2.4")
def test_no_request_fails(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G2.5")
def test_the_baseline_delivers_its_signed_read_rate(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G2.6")
def test_the_model_loads_in_time(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason
