"""Clauses that compare two arms: log ratios within pairs, a look after every pair."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from kvgate.analyse.estimate import estimate_effect
from kvgate.analyse.pairs import CellPairs, Pair, arm_values, cell_pairs, log_ratios
from kvgate.analyse.results import Analysis
from kvgate.analyse.sequential import LookPlan, RepeatedInterval, first_crossing
from kvgate.cells import cells_of, of_clause
from kvgate.contract import CompareClause, Contract, PairPlan
from kvgate.criterion import METRICS, Effect, benefit, effect_of
from kvgate.decide.wording import number, percent, spell_interval
from kvgate.reason import Reason
from kvgate.verdict import ClauseVerdict, Figure, Verdict, worst


def judge_compare(
    contract: Contract, gate: int, clause: CompareClause, analysis: Analysis
) -> ClauseVerdict:
    """The clause at every level in every setup; the worst cell is the clause's verdict."""
    plan = contract.gate(gate).pairs
    if plan is None:
        raise ValueError(f"{clause.id}: the gate has no plan of pairs")
    figures: list[Figure] = []
    findings: list[Reason] = []
    for one in of_clause(clause, cells_of(plan.cells)):
        cell = cell_pairs(analysis, one)
        if clause.effect is Effect.SAME:
            figure = _same(clause, plan, cell)
        else:
            figure = _effect(contract, gate, clause, plan, cell)
        figures.append(figure)
        findings.extend(_findings(clause, cell, figure))
    verdict = worst(f.verdict for f in figures)
    reason = next(f.reason for f in figures if f.verdict is verdict)
    return ClauseVerdict(
        clause.id,
        "compare",
        clause.metric,
        clause.text.model_dump(),
        verdict,
        reason,
        tuple(figures),
        tuple(findings),
    )


def look_plan(contract: Contract, gate: int, plan: PairPlan) -> LookPlan:
    """Risks of a clause's two bounds at this gate.

    The consumer's risk is divided over the granted retests, the producer's over every clause and
    cell that could stop the vendor.
    """
    terms = contract.gate(gate)
    planned = cells_of(plan.cells)
    could_fail = sum(
        len(of_clause(c, planned))
        for c in terms.clause
        if isinstance(c, CompareClause) and c.effect is not Effect.SAME
    )
    return LookPlan(
        min_pairs=plan.min_pairs,
        max_pairs=plan.max_pairs,
        alpha_pass=contract.risk.consumer / (1 + terms.retests),
        alpha_fail=contract.risk.producer / max(1, could_fail),
        carry_over=plan.noise_carry_over,
        sd_floor=plan.noise_sd_floor,
    )


def _effect(
    contract: Contract,
    gate: int,
    clause: CompareClause,
    plan: PairPlan,
    cell: CellPairs,
) -> Figure:
    relation = "<=" if clause.effect is Effect.RISE else ">="

    def figure(
        verdict: Verdict, reason: Reason, interval: RepeatedInterval | None = None, n: int = 0
    ) -> Figure:
        value = low = high = None
        if interval is not None and interval.mean is not None:
            value = effect_of(clause.effect, interval.mean)
            if interval.lower is not None and interval.upper is not None:
                ends = (
                    effect_of(clause.effect, interval.lower),
                    effect_of(clause.effect, interval.upper),
                )
                low, high = min(ends), max(ends)
        return Figure(
            cell.cell,
            value,
            "1",
            relation,
            clause.threshold,
            verdict,
            reason,
            n,
            low,
            high,
            _details(clause, cell.valid[:n] if n else cell.valid),
        )

    invalid = _why_invalid(plan, cell)
    fault = _against_appliance(plan, cell, clause.compare[0])
    if fault is not None:
        return figure(Verdict.FAIL, fault)
    if invalid is not None:
        return figure(Verdict.INVALID, invalid)
    bounds = benefit(clause.effect, clause.threshold, clause.indifference or 0.0)
    looks = look_plan(contract, gate, plan)
    ratios = log_ratios(cell.valid, clause.metric, clause.statistic)
    crossing = first_crossing(
        [bounds.sign * ratio for ratio in ratios],
        looks,
        bounds.pass_bound,
        bounds.threshold,
        bounds.threshold,
        require_estimate=clause.estimate_must_reach,
    )
    interval, n = crossing.interval, crossing.interval.n
    if crossing.reason == "not_finite":
        return figure(Verdict.INVALID, _not_finite(clause, cell))
    if crossing.reason or interval.mean is None or interval.lower is None or interval.upper is None:
        cause = {"metric": clause.metric, "statistic": clause.statistic,
                 "cause": crossing.reason or interval.reason or "empty"}  # fmt: skip
        return figure(Verdict.INVALID, Reason("no_interval", cause))
    value = effect_of(clause.effect, interval.mean)
    best = effect_of(clause.effect, interval.upper)
    ends = sorted((effect_of(clause.effect, interval.lower), best))
    if crossing.outcome == "pass":
        # A pair that the appliance itself spoiled must not leave a better average behind.
        spoiled = _at_fault_reason(cell, clause.compare[0])
        if spoiled is not None:
            return figure(Verdict.INVALID, spoiled, interval, n)
        return figure(Verdict.PASS, Reason("met"), interval, n)
    if crossing.outcome == "fail":
        params = {
            "value": percent(value),
            "threshold": percent(clause.threshold, exact=True),
            "bound": percent(best),
        }
        return figure(Verdict.FAIL, Reason("below_threshold", params), interval, n)
    if interval.lower > bounds.pass_bound:
        short = {"value": percent(value), "threshold": percent(clause.threshold, exact=True)}
        return figure(Verdict.INCONCLUSIVE, Reason("estimate_short", short), interval, n)
    open_ = Reason("open", {"n": n, "interval": spell_interval(ends[0], ends[1])})
    return figure(Verdict.INCONCLUSIVE, open_, interval, n)


def _same(clause: CompareClause, plan: PairPlan, cell: CellPairs) -> Figure:
    """One arm against itself: the whole 95 % interval must lie within the zone.

    It speaks of the instrument, so it never fails the appliance.
    """
    zone = clause.threshold

    def figure(
        verdict: Verdict,
        reason: Reason,
        value: float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> Figure:
        low, high = interval or (None, None)
        return Figure(cell.cell, value, "1", "within", zone, verdict, reason, len(cell.valid),
                      low, high, _details(clause, cell.valid))  # fmt: skip

    invalid = _why_invalid(plan, cell)
    if invalid is not None:
        return figure(Verdict.INVALID, invalid)
    estimate = estimate_effect(
        log_ratios(cell.valid, clause.metric, clause.statistic),
        effect=Effect.GAIN,
    )
    if estimate.effect is None or estimate.effect_interval is None:
        return figure(Verdict.INVALID, _not_finite(clause, cell))
    low, high = estimate.effect_interval
    params = {
        "value": percent(estimate.effect),
        "interval": spell_interval(low, high),
        "threshold": f"±{percent(zone, exact=True)}",
    }
    if -zone <= low and high <= zone:
        return figure(Verdict.PASS, Reason("met"), estimate.effect, (low, high))
    if low > zone or high < -zone:
        reason = Reason("effect_in_same_arm", params)
        return figure(Verdict.INVALID, reason, estimate.effect, (low, high))
    open_ = Reason("open", {"n": estimate.n, "interval": spell_interval(low, high)})
    return figure(Verdict.INCONCLUSIVE, open_, estimate.effect, (low, high))


def _why_invalid(plan: PairPlan, cell: CellPairs) -> Reason | None:
    if cell.duplicated:
        return Reason("pair_repeated", {"where": cell.cell, "pair": cell.duplicated[0] + 1})
    conditions = ", ".join(cell.conditions) or ("incomplete" if cell.incomplete else "none")
    for role in ("reference", "test"):
        share = cell.excluded_share(role)
        if share > plan.excluded_share_at_most:
            return Reason(
                "too_many_exclusions",
                {
                    "share": percent(share),
                    "arm": plan.compare[0] if role == "reference" else plan.compare[1],
                    "limit": percent(plan.excluded_share_at_most, exact=True),
                    "conditions": conditions,
                },
            )
    if len(cell.valid) < plan.min_pairs:
        return Reason(
            "too_few_pairs",
            {"n": len(cell.valid), "needed": plan.min_pairs, "conditions": conditions},
        )
    return None


def _against_appliance(plan: PairPlan, cell: CellPairs, reference: str) -> Reason | None:
    """Pairs in which only the appliance was at fault while its reference was healthy."""
    at_fault = [p for p in cell.pairs if p.against_appliance]
    if cell.duplicated or len(at_fault) < plan.min_pairs or len(at_fault) <= len(cell.valid):
        return None
    return _at_fault_reason(cell, reference)


def _at_fault_reason(cell: CellPairs, reference: str) -> Reason | None:
    """The pairs in which only the appliance was at fault, in words; None where there is none."""
    at_fault = [p for p in cell.pairs if p.against_appliance]
    if not at_fault:
        return None
    names = sorted({c.name for p in at_fault for c in p.test.conditions if c.ok is not True})
    return Reason(
        "appliance_at_fault",
        {"count": len(at_fault), "n": len(cell.pairs), "conditions": ", ".join(names),
         "reference": reference},
    )  # fmt: skip


def _details(clause: CompareClause, pairs: tuple[Pair, ...]) -> dict[str, float | str | None]:
    """For the reader: each arm's mean block statistic in the metric's unit, then what stands beside
    the estimate. ``robust`` is the Hodges-Lehmann estimate in the clause's own terms, ``drift`` the
    change of the benefit per pair and ``order`` its difference between AB and BA, as fractions."""
    values = arm_values(pairs, clause.metric, clause.statistic)
    unit = METRICS[clause.metric].unit
    sides = {"reference": [r for r, _ in values], "test": [t for _, t in values]}
    details: dict[str, float | str | None] = {"unit": unit, "statistic": clause.statistic}
    for side, numbers in sides.items():
        known = [v for v in numbers if v is not None and math.isfinite(v)]
        details[side] = fmean(known) if known else None
    return details | _beside(clause, pairs)


def _beside(clause: CompareClause, pairs: tuple[Pair, ...]) -> dict[str, float | str | None]:
    same = clause.effect is Effect.SAME
    kind = Effect.GAIN if same else clause.effect
    sign = 1.0 if same else benefit(kind, clause.threshold, clause.indifference or 0.0).sign
    ratios = [sign * r for r in log_ratios(pairs, clause.metric, clause.statistic)]
    estimate = estimate_effect(ratios, tested_second=[p.tested_second for p in pairs])
    if not estimate.valid:
        return {}
    logs = {"drift": estimate.drift_log, "order": estimate.order_log}
    robust = estimate.robust_log
    found = {
        "robust": None if robust is None else effect_of(kind, robust),
        "sd_log": estimate.sd_log,
        "lag1": estimate.lag1,
        **{name: None if log is None else math.expm1(log) for name, log in logs.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def _findings(clause: CompareClause, cell: CellPairs, figure: Figure) -> Iterator[Reason]:
    pairs = cell.valid
    ratios = log_ratios(pairs, clause.metric, clause.statistic)
    if len(ratios) < 2 or not all(math.isfinite(r) for r in ratios):
        return
    estimate = estimate_effect(
        ratios, tested_second=[p.tested_second for p in pairs], effect=Effect.GAIN
    )
    where = f"{clause.id} {cell.cell}"
    if clause.effect is Effect.SAME and estimate.sd_log is not None:
        yield Reason("pair_noise", {"where": where, "value": number(estimate.sd_log)})
    shown = {
        "robust_disagrees": estimate.robust_log,
        "lag1": estimate.lag1,
        "drift": estimate.drift_log,
        "order_effect": estimate.order_log,
    }
    for code in estimate.findings:
        yield Reason(code, {"where": where, "value": number(shown.get(code))})
    above = (
        clause.band_top is not None
        and isinstance(figure.value, float)
        and figure.value > clause.band_top
    )
    if above and isinstance(figure.value, float) and clause.band_top is not None:
        yield Reason(
            "above_band",
            {
                "where": where,
                "value": percent(figure.value),
                "top": percent(clause.band_top, exact=True),
            },
        )


def _not_finite(clause: CompareClause, cell: CellPairs) -> Reason:
    metric = f"{clause.metric} {clause.statistic}"
    return Reason("not_a_number", {"metric": metric, "where": cell.cell})
