"""What follows from a verdict: every row of the rule, and what does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvgate.analyse.results import Analysis
from kvgate.campaign import Mode
from kvgate.contract import Contract
from kvgate.decide import judge
from kvgate.verdict import Decision, GateVerdict, Verdict

from .builders import GOOD, contract, facts, history, plan

PASSING = history()
FAILING = history(replace(GOOD, drop=0.10))
OPEN = history(replace(GOOD, drop=0.26, noise=0.3))
BROKEN = replace(PASSING, answers=())


def granting(**terms: Any) -> Contract:
    base = contract()
    return base.model_copy(update={"gate3": base.gate(3).model_copy(update=terms)})


def decided(analysis: Analysis, terms: dict[str, Any] | None = None, **changed: Any) -> GateVerdict:
    return judge(granting(**(terms or {})), analysis, facts(**changed))


def test_pass_proceeds_to_the_next_gate() -> None:
    verdict = decided(PASSING)
    assert (verdict.decision, verdict.decision_reason.code) == (Decision.PROCEED, "next_gate")


def test_the_pass_of_the_last_gate_ends_the_campaign() -> None:
    shorter = contract().model_copy(update={"gate4": None})
    verdict = judge(shorter, PASSING, facts())
    assert (verdict.decision, verdict.decision_reason.code) == (
        Decision.PROCEED, "campaign_complete",
    )  # fmt: skip


@pytest.mark.parametrize("granted, used, decision, code", [
    (0, 0, Decision.STOP_LOSS, "stop"),
    (1, 0, Decision.HOLD, "retest_left"),
    (1, 1, Decision.STOP_LOSS, "stop"),
    (2, 1, Decision.HOLD, "retest_left"),
])  # fmt: skip
def test_a_fail_stops_unless_the_contract_grants_a_retest(
    granted: int, used: int, decision: Decision, code: str
) -> None:
    verdict = decided(FAILING, {"retests": granted}, retests_used=used)
    assert verdict.verdict is Verdict.FAIL
    assert (verdict.decision, verdict.decision_reason.code) == (decision, code)


@pytest.mark.parametrize("granted, used, decision, code", [
    (0, 0, Decision.HOLD, "rerun_limit"),
    (2, 0, Decision.RERUN, "rerun"),
    (2, 1, Decision.RERUN, "rerun"),
    (2, 2, Decision.HOLD, "rerun_limit"),
])  # fmt: skip
def test_an_invalid_run_is_repeated_up_to_the_limit(
    granted: int, used: int, decision: Decision, code: str
) -> None:
    verdict = decided(BROKEN, {"reruns": granted}, reruns_used=used)
    assert verdict.verdict is Verdict.INVALID
    assert (verdict.decision, verdict.decision_reason.code) == (decision, code)


def test_inconclusive_extends_below_the_most_pairs() -> None:
    verdict = decided(OPEN)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert (verdict.decision, verdict.decision_reason.params["pairs"]) == (Decision.EXTEND, 6)


@pytest.mark.parametrize("at_limit", ["HOLD", "STOP-LOSS"])
def test_inconclusive_at_the_most_pairs_is_what_the_contract_says(at_limit: str) -> None:
    most = plan().max_pairs
    analysis = history(replace(GOOD, drop=0.26, noise=0.3), pairs=most)
    verdict = decided(analysis, {"at_limit": at_limit})
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert (verdict.decision, verdict.decision_reason.code) == (
        Decision(at_limit), "limit_reached",
    )  # fmt: skip


def test_pairs_beyond_the_most_change_nothing() -> None:
    most = plan().max_pairs
    noisy = replace(GOOD, drop=0.26, noise=0.3)
    at_limit, beyond = history(noisy, pairs=most), history(noisy, pairs=most + 2)
    first, second = decided(at_limit), decided(beyond)
    assert [c.figures for c in first.clauses[:2]] == [c.figures for c in second.clauses[:2]]
    assert second.decision is not Decision.EXTEND


@pytest.mark.parametrize("mode", [Mode.ENGINEERING, Mode.REPEAT])
@pytest.mark.parametrize("analysis", [PASSING, FAILING, OPEN, BROKEN])
def test_a_run_that_does_not_count_is_followed_by_nothing(mode: Mode, analysis: Analysis) -> None:
    verdict = decided(analysis, mode=mode)
    assert verdict.decision is None
    assert (verdict.decision_reason.code, verdict.mode) == ("does_not_count", mode)


def test_the_same_evidence_gives_the_same_bytes() -> None:
    from kvgate.canonical import canonical_json

    for analysis in (PASSING, FAILING, OPEN, BROKEN):
        assert canonical_json(decided(analysis)) == canonical_json(decided(analysis))
