"""The page that a buyer needs at a STOP-LOSS or HOLD, as data, and what the campaign has spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

from kvgate.analyse.estimate import CONFIDENCE, share_lower_bound
from kvgate.campaign import CampaignFacts, moment_of
from kvgate.contract import Clause, CompareClause, Contract
from kvgate.criterion import Effect
from kvgate.decide.compare import look_plan
from kvgate.reason import Reason
from kvgate.verdict import (
    Avoided,
    ClauseVerdict,
    DeadlineState,
    Decision,
    Figure,
    RunSpent,
    Shortfall,
    Spent,
    StopRecord,
    Verdict,
)


def spent(
    contract: Contract,
    campaign: CampaignFacts,
    verdict: Verdict,
    decision: Decision | None,
    hours: float | None,
    deadline: DeadlineState | None,
) -> Spent:
    """All runs of the campaign, this one last, with hours, days and their price."""
    own = RunSpent(
        campaign.gate, campaign.run, campaign.mode, verdict, decision, campaign.as_of, hours
    )
    runs = (*campaign.earlier, own)
    known = [r.hours for r in runs if r.hours is not None]
    total_h = math.fsum(known)
    days = _days(campaign, deadline, hours)
    per_day, per_hour = contract.campaign.cost_per_day, contract.costs.platform_hour
    priced = per_day > 0 or per_hour > 0
    return Spent(
        runs,
        total_h,
        len(runs) - len(known),
        days,
        contract.campaign.currency,
        days * per_day + total_h * per_hour if priced else None,
    )


def _days(campaign: CampaignFacts, deadline: DeadlineState | None, hours: float | None) -> float:
    """Days from the campaign's day 0 to the end of this run."""
    began = moment_of(deadline.began) if deadline is not None else None
    as_of = moment_of(campaign.as_of)
    if began is None or as_of is None:
        return 0.0
    end = as_of + timedelta(hours=hours or 0.0)
    return max(0.0, (end - began) / timedelta(days=1))


def stop_record(
    contract: Contract,
    campaign: CampaignFacts,
    clauses: Sequence[ClauseVerdict],
    decision: Decision | None,
    why: Reason,
    so_far: Spent,
) -> StopRecord | None:
    """What stands behind a STOP-LOSS or HOLD; None for every other decision."""
    if decision not in {Decision.STOP_LOSS, Decision.HOLD}:
        return None
    terms = {c.id: c for c in contract.gate(campaign.gate).clause}
    shortfalls = tuple(
        shortfall
        for c in clauses
        if not c.accepted and not c.waived
        for shortfall in _shortfalls(contract, campaign.gate, terms[c.clause], c)
    )
    follows = contract.follows
    text = follows.stop_loss if decision is Decision.STOP_LOSS else follows.hold
    if why.code == "deadline_missed" and follows.missed_deadline is not None:
        text = follows.missed_deadline
    return StopRecord(
        shortfalls,
        _avoided(contract, campaign.gate, so_far),
        None if text is None else text.model_dump(),
    )


def _avoided(contract: Contract, gate: int, so_far: Spent) -> Avoided:
    days = max(0.0, 7.0 * contract.campaign.weeks - so_far.days)
    per_day, costs = contract.campaign.cost_per_day, contract.costs
    days_cost = days * per_day if per_day > 0 else None
    purchase = costs.purchase if costs.purchase > 0 else None
    owed = costs.owed_on_stop if costs.owed_on_stop > 0 else None
    parts = [p for p in (days_cost, purchase, None if owed is None else -owed) if p is not None]
    return Avoided(
        days,
        tuple(n for n in contract.gates if n > gate),
        days_cost,
        purchase,
        owed,
        contract.campaign.currency,
        math.fsum(parts) if parts else None,
    )


def _shortfalls(
    contract: Contract, gate: int, terms: Clause, clause: ClauseVerdict
) -> Iterator[Shortfall]:
    """The figures of a clause that were not met; the clause itself where it has none."""
    unmet = [f for f in clause.figures if f.verdict is not Verdict.PASS]
    for figure in unmet:
        low, high = figure.low, figure.high
        confidence, method = _certainty(contract, gate, terms, figure)
        if method == "exact_binomial" and isinstance(figure.value, float):
            low = share_lower_bound(round(figure.value * figure.n), figure.n)
        yield Shortfall(
            clause.clause,
            clause.text,
            figure.verdict,
            figure.where,
            figure.value,
            figure.unit,
            figure.relation,
            figure.threshold,
            _misses(figure.relation, figure.threshold, figure.value),
            _misses(figure.relation, figure.threshold, _best(figure.relation, low, high)),
            low,
            high,
            confidence,
            method,
            figure.n,
            figure.reason,
        )
    if not unmet:
        yield Shortfall(
            clause.clause, clause.text, clause.verdict, "", None, "", "", None, None, None, None,
            None, None, "none", 0, clause.reason,
        )  # fmt: skip


def _certainty(
    contract: Contract, gate: int, terms: Clause, figure: Figure
) -> tuple[float | None, str]:
    """The probability with which the interval beside the figure holds, and what made it."""
    if isinstance(terms, CompareClause) and figure.low is not None:
        plan = contract.gate(gate).pairs
        if terms.effect is Effect.SAME or plan is None:
            return CONFIDENCE, "t"
        looks = look_plan(contract, gate, plan)
        risk = looks.alpha_fail
        if figure.verdict is not Verdict.FAIL:
            risk += looks.alpha_pass
        return 1.0 - risk, "repeated"
    if terms.metric in {"wrong_answers", "failed_requests"} and figure.n > 0:
        return CONFIDENCE, "exact_binomial"
    return None, "reading" if figure.value is not None else "none"


def _best(relation: str, low: float | None, high: float | None) -> float | None:
    """The end of the interval that speaks for the appliance."""
    return high if relation == ">=" else low if relation == "<=" else None


def _misses(
    relation: str, threshold: float | str | None, value: float | str | None
) -> float | None:
    """By how much ``value`` misses ``threshold``; 0 where it keeps it, None without numbers."""
    if isinstance(threshold, str) or isinstance(value, str) or threshold is None or value is None:
        return None
    if not math.isfinite(value) or not math.isfinite(threshold):
        return None
    if relation == ">=":
        return max(0.0, threshold - value)
    if relation == "<=":
        return max(0.0, value - threshold)
    return max(0.0, abs(value) - threshold) if relation == "within" else abs(value - threshold)
