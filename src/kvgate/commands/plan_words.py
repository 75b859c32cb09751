"""What a plan says in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.analyse.characteristic import Characteristic
from kvgate.contract import CompareClause
from kvgate.criterion import Effect
from kvgate.planning import ClausePlan, GatePlan, implied, just_beyond


def of_100(p: float) -> str:
    """A probability as campaigns out of a hundred, with one decimal where it has one."""
    return f"{100 * p:.1f}".removesuffix(".0")


def of_hours(hours: float) -> str:
    """Hours as a person plans them: tenths only where few hours are meant."""
    return f"{hours:.0f}" if hours >= 9.95 else f"{hours:.1f}"


def sentence(plan: ClausePlan) -> str:
    """The plain sentence: one point beyond the threshold, in this clause's own words."""
    effect, found = _just_beyond(plan.clause, plan.effects, [p.characteristic for p in plan.curve])
    return (
        f"An appliance that truly {does(plan.clause, effect)} {_everywhere(plan)} would be "
        f"accepted by this clause in {of_100(found.p_pass)} of 100 campaigns."
    )


def _everywhere(plan: ClausePlan) -> str:
    """Where the effect is taken to hold; setups are named where the clause has any."""
    setups = [label for label in dict.fromkeys(c.setup.label for c in plan.cells) if label]
    return "at every level" + (f" in {' and '.join(setups)}" if setups else "")


def gate_sentence(plan: GatePlan) -> str:
    """The same for the whole gate, with what the leading clause's effect implies for the others."""
    effects = [e for e, _ in plan.curve]
    effect, found = _just_beyond(plan.leading, effects, [c for _, c in plan.curve])
    clauses = [c.clause for c in plan.clauses]
    cells = {c.clause.id: c.cells for c in plan.clauses}
    others = implied(clauses, cells, plan.leading, effect)
    setups = {cell.setup for cell in cells[plan.leading.id]}
    # What follows is no point of anybody's: whole percents say enough.
    also = [
        does(c, round(next(e for cell, e in zip(cells[c.id], others[c.id], strict=True)
                           if cell.setup in setups), 2))
        for c in clauses
        if c.id in others and c != plan.leading
    ]  # fmt: skip
    so = f" (and so {', '.join(also)})" if also else ""
    return (
        f"An appliance that truly {does(plan.leading, effect)}{so} at every level would be "
        f"accepted by the whole gate in {of_100(found.p_pass)} of 100 campaigns."
    )


def _just_beyond(
    clause: CompareClause, effects: Sequence[float], found: Sequence[Characteristic]
) -> tuple[float, Characteristic]:
    point = just_beyond(clause)
    return min(zip(effects, found, strict=True), key=lambda item: abs(item[0] - point))


def does(clause: CompareClause, effect: float) -> str:
    """What an appliance with a true effect does, in this clause's own words."""
    verb = "lowers" if clause.effect is Effect.DROP else "raises"
    what = {"ttft": "TTFT", "itl": "ITL"}.get(clause.metric, clause.metric)
    if clause.statistic in {"p50", "p99"}:
        what += f" {clause.statistic}"
    return f"{verb} {what} by {100 * effect:.3g} %"
