"""Clauses with a fixed limit: floor, ceiling or equals, over hosts, blocks or a long run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from kvgate.analyse.results import Analysis, BlockResult, Observed
from kvgate.cells import Cell, measured_in, of_clause
from kvgate.contract import LimitClause, PairPlan
from kvgate.criterion import METRICS, OF_THE_INSTRUMENT, Source
from kvgate.decide.wording import percent, with_unit
from kvgate.reason import Param, Reason
from kvgate.verdict import About, ClauseVerdict, Figure, Verdict, worst

_BLOCK_VALUE: dict[str, Callable[[BlockResult], float | None]] = {
    "ttft": lambda b: b.statistics.ttft_p50_s,
    "itl": lambda b: b.statistics.itl_p50_s,
    "throughput": lambda b: b.statistics.output_tok_per_s,
    "restore_rate": lambda b: b.restore_bytes_per_s,
    "failed_requests": lambda b: b.failed_share,
}


@dataclass(frozen=True, slots=True)
class Found:
    """A value at one place, or the reason why there is none.

    ``about`` and ``cause``: whom a value outside the limit speaks about (None: the metric's own
    rule), and why. ``spoiled``: conditions that the measurement broke; it never passes then.
    """

    where: str
    value: float | str | None
    n: int
    missing: Reason | None = None
    about: About | None = None
    cause: Reason | None = None
    spoiled: tuple[str, ...] = ()


VENDORS_HOSTS: Final = "appliances"
"""The group of hosts that the vendor delivers; every other one is the buyer's."""


def judge_limit(
    clause: LimitClause,
    analysis: Analysis,
    plan: PairPlan | None = None,
    tested: frozenset[str] = frozenset(),
) -> ClauseVerdict:
    """Every place the clause speaks of must have a value, and every value must keep the limit.

    ``plan`` is that of the gate's pairs: its least number of valid blocks and its greatest share of
    excluded ones hold for an arm that the pairs measure. ``tested`` are the arms with the
    appliance. A value outside its limit on a host of the buyer's, or in an arm without the
    appliance, is INVALID: it must be mended before anything can be said, and stops no vendor.
    """
    found = tuple(_found(clause, analysis, plan, tested))
    figures = tuple(_figure(clause, item) for item in found)
    verdict = worst(f.verdict for f in figures)
    reason = (
        next(f.reason for f in figures if f.verdict is verdict)
        if figures
        else Reason("no_value", {"metric": clause.metric, "where": clause.hosts or "-"})
    )
    return ClauseVerdict(
        clause.id, "limit", clause.metric, clause.text.model_dump(), verdict, reason, figures
    )


def _found(
    clause: LimitClause, analysis: Analysis, plan: PairPlan | None, tested: frozenset[str]
) -> Iterator[Found]:
    source = METRICS[clause.metric].source
    if source is Source.FACT:
        about = About.APPLIANCE if clause.hosts == VENDORS_HOSTS else About.ENVIRONMENT
        of = Reason("of_the_buyers_hosts", {"group": clause.hosts})
        cause = None if about is About.APPLIANCE else of
        yield from (replace(f, about=about, cause=cause) for f in _of_hosts(clause, analysis))
    elif source is Source.BLOCK:
        about = About.APPLIANCE if clause.arm in tested else About.ENVIRONMENT
        of = Reason("of_another_arm", {"arm": clause.arm})
        cause = None if about is About.APPLIANCE else of
        blocks = _of_blocks(clause, analysis, plan)
        yield from (replace(f, about=about, cause=cause) for f in blocks)
    else:
        values = [o for o in analysis.observed if o.metric == clause.metric]
        if len(values) > 1:
            yield Found("soak", None, 0, _reports(clause, "soak", len(values)))
            return
        spoiled = tuple(dict.fromkeys(e.condition.name for e in analysis.soak_exclusions))
        for observed in values:
            found = _one(clause, observed)
            yield replace(found, about=observed.about, cause=observed.cause, spoiled=spoiled)


def _of_hosts(clause: LimitClause, analysis: Analysis) -> Iterator[Found]:
    """One value from every host of the group; a host that said nothing is a missing value."""
    hosts = analysis.expected_hosts.get(clause.hosts or "", ())
    for host in hosts:
        values = [o for o in analysis.observed if o.metric == clause.metric and o.where == host]
        if len(values) != 1:
            yield Found(host, None, 0, _reports(clause, host, len(values)))
        else:
            yield _one(clause, values[0])


def _reports(clause: LimitClause, where: str, n: int) -> Reason:
    return Reason("reports", {"metric": clause.metric, "where": where, "n": n})


def _one(clause: LimitClause, observed: Observed) -> Found:
    if observed.value is not None or observed.cause is None:
        return Found(observed.where, observed.value, 1)
    params: dict[str, Param] = {
        "metric": clause.metric, "where": observed.where, "detail": observed.cause
    }  # fmt: skip
    return Found(observed.where, None, 1, Reason("no_value_because", params))


def _of_blocks(clause: LimitClause, analysis: Analysis, plan: PairPlan | None) -> Iterator[Found]:
    """The mean of the valid blocks of each cell; failed requests count in every block."""
    value_of = _BLOCK_VALUE[clause.metric]
    for cell in _cells(clause, plan):
        where = cell.label
        blocks = [b for b in analysis.blocks if b.arm == clause.arm and b.cell == cell]
        why = _too_thin(where, blocks, clause, plan)
        if clause.metric != "failed_requests":
            blocks = [b for b in blocks if b.valid]
        values = [value_of(b) for b in blocks]
        known = [v for v in values if v is not None and math.isfinite(v)]
        if not blocks:
            nothing = Reason("no_valid_block", {"metric": clause.metric, "where": where})
            yield Found(where, None, 0, nothing)
        elif why is not None:
            yield Found(where, None, len(known), why)
        elif len(known) != len(values):
            lacking = Reason(
                "blocks_lack_value",
                {"metric": clause.metric, "where": where, "n": len(values) - len(known)},
            )
            yield Found(where, None, len(known), lacking)
        else:
            yield Found(where, fmean(known), len(known))


def _cells(clause: LimitClause, plan: PairPlan | None) -> tuple[Cell, ...]:
    """The cells of the clause in which the gate measures its arm."""
    if plan is None:
        return tuple(Cell(clause.workload or "", level) for level in clause.levels)
    return of_clause(clause, measured_in(plan, clause.arm))


def _too_thin(
    where: str, blocks: list[BlockResult], clause: LimitClause, plan: PairPlan | None
) -> Reason | None:
    """Why the blocks of a level say too little; None where they say enough."""
    if plan is None or not blocks:
        return None
    valid = [b for b in blocks if b.valid]
    # A broken-off session was measured anew: that is no exclusion of the contract's share.
    standing = [b for b in blocks if not b.interrupted]
    excluded = 1 - len(valid) / len(standing) if standing else 1.0
    if clause.arm in plan.compare and len(valid) < plan.min_pairs:
        return Reason(
            "few_valid_blocks",
            {"metric": clause.metric, "where": where, "n": len(valid), "needed": plan.min_pairs},
        )
    if excluded > plan.excluded_share_at_most:
        return Reason(
            "blocks_excluded",
            {"where": where, "arm": clause.arm, "share": percent(excluded),
             "limit": percent(plan.excluded_share_at_most, exact=True)},
        )  # fmt: skip
    return None


def _figure(clause: LimitClause, item: Found) -> Figure:
    verdict, reason = _compare(clause, item)
    finite = not isinstance(item.value, float) or math.isfinite(item.value)
    return Figure(
        item.where,
        item.value if finite else None,
        clause.unit,
        clause.relation,
        clause.limit,
        verdict,
        reason,
        item.n,
    )


def _compare(clause: LimitClause, item: Found) -> tuple[Verdict, Reason]:
    value, limit = item.value, clause.limit
    place: dict[str, Param] = {"metric": clause.metric, "where": item.where}
    if value is None:
        return Verdict.INVALID, item.missing or Reason("no_value", place)
    if isinstance(value, float) and not math.isfinite(value):
        return Verdict.INVALID, Reason("not_a_number", place)
    shown = {
        "value": with_unit(value, clause.unit, clause.metric),
        "threshold": with_unit(limit, clause.unit, clause.metric, exact=True),
    }
    if clause.equals is not None:
        if isinstance(value, str) != isinstance(limit, str):
            return Verdict.INVALID, Reason("other_kind", place)
        if value == limit:
            return Verdict.PASS, Reason("met")
        return _outside(item, Reason("not_equal", shown), shown)
    if isinstance(value, str) or isinstance(limit, str):
        return Verdict.INVALID, Reason("other_kind", place)
    kept = value >= limit if clause.floor is not None else value <= limit
    if kept:
        if item.spoiled and clause.metric not in OF_THE_INSTRUMENT:
            return Verdict.INVALID, Reason("run_spoiled", {"conditions": ", ".join(item.spoiled)})
        return Verdict.PASS, Reason("met")
    if clause.metric in OF_THE_INSTRUMENT:
        return Verdict.INVALID, Reason("out_of_limit", shown)
    return _outside(item, Reason("out_of_limit", shown), shown)


def _outside(item: Found, reason: Reason, shown: dict[str, str]) -> tuple[Verdict, Reason]:
    """A value outside its limit stops the vendor only where it speaks of the appliance."""
    if item.about in {None, About.APPLIANCE}:
        return Verdict.FAIL, reason
    params: dict[str, Param] = {
        "value": shown["value"], "threshold": shown["threshold"], "because": item.cause or "-"
    }  # fmt: skip
    return Verdict.INVALID, Reason("not_the_appliances", params)
