"""What a buyer is told at a STOP-LOSS or HOLD: which clause, how far, how certain, at what cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvgate.canonical import canonical_json
from kvgate.contract import Contract
from kvgate.decide import judge
from kvgate.verdict import Decision, GateVerdict, RunSpent, Shortfall, StopRecord, Verdict

from .builders import GOOD, cell, contract, facts, failing, history, with_wrong_answers

BEGAN = "2026-02-25T10:00:00+00:00"  # a week before the made-up run
EARLIER = (
    RunSpent(1, 1, "counted", "PASS", "PROCEED", BEGAN, 0.5),
    RunSpent(2, 1, "counted", "INVALID", "RERUN", "2026-02-26T10:00:00+00:00", None),
    RunSpent(2, 2, "counted", "PASS", "PROCEED", "2026-02-27T10:00:00+00:00", 3.5),
)


def stopped(analysis: Any, terms: Contract | None = None, **changed: Any) -> GateVerdict:
    given = {"began": BEGAN, "earlier": EARLIER, **changed}
    return judge(terms or contract(), replace(analysis, hours=6.0), facts(**given))


def record(verdict: GateVerdict) -> StopRecord:
    assert verdict.stop is not None
    canonical_json(verdict)
    return verdict.stop


def of(verdict: GateVerdict, clause: str) -> list[Shortfall]:
    return [s for s in record(verdict).shortfalls if s.clause == clause]


SLOW = history(replace(GOOD, drop=0.15, gain=0.18))


def test_a_drop_that_falls_short_says_by_how_much_and_how_certain() -> None:
    verdict = stopped(SLOW)
    assert verdict.decision is Decision.STOP_LOSS
    found = of(verdict, "G3.1")
    assert [s.where for s in found] == ["cold_restore@8", "cold_restore@16", "cold_restore@32"]
    for s in found:
        assert isinstance(s.value, float) and s.high is not None and s.by_at_least is not None
        assert s.by == pytest.approx(0.25 - s.value)
        assert s.by_at_least == pytest.approx(0.25 - s.high)
        assert 0 < s.by_at_least < 0.101
        # Five comparing clauses of 3, 2, 3, 2 and 1 levels share the producer's 5 %.
        assert s.confidence == pytest.approx(1 - 0.05 / 11)
        assert (s.method, s.verdict, s.relation) == ("repeated", Verdict.FAIL, ">=")
        assert s.reason.code == "below_threshold"
        assert s.text["en"] and s.text["zh"]


def test_only_what_was_not_met_is_in_the_record() -> None:
    assert {s.clause for s in record(stopped(SLOW)).shortfalls} == {"G3.1", "G3.2"}


def test_failed_requests_have_an_exact_bound() -> None:
    verdict = stopped(failing(history(), cell("cold_restore", role="test"), 2))
    (found,) = of(verdict, "G3.6")
    assert isinstance(found.value, float)
    assert found.low is not None and 0 < found.low < found.value
    assert (found.method, found.confidence) == ("exact_binomial", 0.95)
    assert found.by_at_least == found.low


def test_wrong_answers_have_an_exact_bound() -> None:
    (found,) = of(stopped(with_wrong_answers(history(), "appliance")), "G3.5")
    assert (found.value, found.method) == (1.0, "exact_binomial")
    assert found.low is not None and found.low > 0.97


def test_a_clause_without_any_figure_still_stands_in_the_record() -> None:
    verdict = stopped(replace(history(), answers=()), reruns_used=9)
    assert verdict.decision is Decision.HOLD
    (found,) = of(verdict, "G3.5")
    assert (found.value, found.by, found.confidence) == (None, None, None)


def test_spent_sums_the_runs_and_prices_days_and_hours() -> None:
    spent = stopped(SLOW).spent
    assert spent is not None
    assert [(r.gate, r.run) for r in spent.runs] == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert (spent.hours, spent.untimed) == (10.0, 1)
    assert spent.days == pytest.approx(7.25)
    terms = contract()
    price = 7.25 * terms.campaign.cost_per_day + 10 * terms.costs.platform_hour
    assert spent.cost == pytest.approx(price)
    assert spent.currency == terms.campaign.currency
    own = spent.runs[-1]
    assert (own.verdict, own.decision, own.hours) == ("FAIL", "STOP-LOSS", 6.0)


def test_avoided_is_the_rest_of_the_campaign_and_the_price_less_what_stays_owed() -> None:
    avoided = record(stopped(SLOW)).avoided
    terms = contract()
    assert avoided.gates == (4,)
    assert avoided.days == pytest.approx(70 - 7.25)
    assert avoided.purchase == terms.costs.purchase
    assert avoided.total == pytest.approx(
        avoided.days * terms.campaign.cost_per_day + 1_500_000 - 50_000
    )


def test_prices_that_the_contract_does_not_name_are_absent_not_zero() -> None:
    base = contract()
    campaign = base.campaign.model_copy(update={"cost_per_day": 0.0})
    costs = base.costs.model_copy(
        update={"platform_hour": 0.0, "purchase": 0.0, "owed_on_stop": 0.0}
    )
    terms = base.model_copy(update={"campaign": campaign, "costs": costs})
    verdict = stopped(SLOW, terms)
    assert verdict.spent is not None
    assert verdict.spent.cost is None
    avoided = record(verdict).avoided
    assert (avoided.days_cost, avoided.purchase, avoided.owed, avoided.total) == (None,) * 4


def test_what_follows_is_in_the_parties_own_words() -> None:
    stop, hold = record(stopped(SLOW)), record(stopped(history(pairs=3), reruns_used=9))
    follows = contract().follows
    assert follows.stop_loss is not None and follows.hold is not None
    assert stop.follows == follows.stop_loss.model_dump()
    assert hold.follows == follows.hold.model_dump()
    silent = contract().model_copy(update={"follows": type(follows)()})
    assert record(stopped(SLOW, silent)).follows is None


def test_inconclusive_at_the_limit_shows_both_risks() -> None:
    verdict = stopped(history(replace(GOOD, drop=0.26, noise=0.3), pairs=10))
    assert verdict.decision is Decision.HOLD
    found = of(verdict, "G3.1")[0]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.confidence == pytest.approx(1 - 0.05 - 0.05 / 11)
    assert found.by_at_least == 0.0


@pytest.mark.parametrize("analysis", [history(), history(pairs=3)])
def test_other_decisions_have_no_such_page(analysis: Any) -> None:
    assert stopped(analysis).stop is None
