"""G3, the main gate: long-context cold restore. Every number stands in the contract."""

import pytest

from kvgate.pytest_plugin import clause
from kvgate.verdict import ClauseVerdict

pytestmark = pytest.mark.gate3


@clause("G3.1")
def test_time_to_first_token_falls(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.2")
def test_throughput_rises(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.3")
def test_tail_of_time_to_first_token_is_not_worse(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.4")
def test_inter_token_latency_is_not_worse(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.5")
def test_answers_equal_the_recomputed_answers(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.6")
def test_no_request_fails_that_the_reference_serves(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.7")
def test_time_to_first_token_of_the_longest_prompt_falls(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.8")
def test_a_miss_costs_no_more_than_on_the_reference(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.9")
def test_throughput_of_engines_that_share_the_host_rises(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.10")
def test_tail_of_engines_that_share_the_host_is_not_worse(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.11")
def test_tail_of_inter_token_latency_is_not_worse(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason


@clause("G3.12")
def test_a_miss_costs_engines_that_share_the_host_no_more(verdict: ClauseVerdict) -> None:
    assert verdict.accepted, verdict.reason
