"""What `kvgate judge` says of a stop, a waiver and a deadline: the data of the verdict in lines."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.numbers import COUNTED, NBSP, number, significant
from kvgate.verdict import Avoided, ClauseVerdict, GateVerdict, Shortfall, Spent

_METHODS = {
    "repeated": "repeated interval over all looks",
    "t": "t interval",
    "exact_binomial": "exact binomial",
}


def clause_word(clause: ClauseVerdict) -> str:
    """The clause's verdict; a waived one says so and keeps it."""
    return f"WAIVED ({clause.verdict})" if clause.waived else str(clause.verdict)


def stop_lines(verdict: GateVerdict) -> Iterator[str]:
    """Waivers, deadline, and at a STOP-LOSS or HOLD what stands behind it."""
    for waiver in verdict.waivers:
        yield (
            f"waiver of {waiver.clause} by {waiver.party} until {waiver.expires[:10]}: "
            f"{waiver.standing}{'' if waiver.used else ', not used'} ({waiver.reason})"
        )
    deadline = verdict.deadline
    if deadline is not None and deadline.missed_by_days:
        yield (
            f"deadline: day {deadline.deadline_day}, this run began on day {deadline.day}: missed "
            f"by {deadline.missed_by_days}"
        )
    stop = verdict.stop
    if stop is None:
        return
    metrics = {c.clause: c.metric for c in verdict.clauses}
    for shortfall in stop.shortfalls:
        yield f"stop: {_shortfall(shortfall, metrics.get(shortfall.clause, ''))}"
    if verdict.spent is not None:
        yield f"spent: {_spent(verdict.spent)}"
    yield f"avoided by stopping: {_avoided(stop.avoided)}"
    if stop.follows is not None:
        yield f"what follows: {stop.follows['en']}"


def _shortfall(found: Shortfall, metric: str) -> str:
    where = f"{found.clause} {found.where}".strip()
    if found.by is None or not found.by:
        return f"{where}: {found.reason}"
    wanted = number(found.threshold, found.unit, "en", metric=metric, exact=True)
    text = f"{where}: misses {wanted} by {_gap(found, found.by, metric)}".replace(NBSP, " ")
    if found.by_at_least and found.confidence is not None:
        sure = significant(100 * found.confidence)
        text += (
            f", by at least {_gap(found, found.by_at_least, metric)} with {sure} % certainty "
            f"({_METHODS.get(found.method, found.method)}, n = {found.n})"
        )
    return text


def _gap(found: Shortfall, gap: float, metric: str) -> str:
    """A distance: of two fractions in percentage points, else in the figure's unit."""
    if found.unit == "1" and metric not in COUNTED:
        return f"{significant(100 * gap)} points"
    return number(gap, found.unit, "en", metric=metric).replace(NBSP, " ")


def _spent(spent: Spent) -> str:
    price = "" if spent.cost is None else f", {spent.cost:,.0f} {spent.currency}"
    untimed = f", {spent.untimed} of them without times" if spent.untimed else ""
    runs = "1 run" if len(spent.runs) == 1 else f"{len(spent.runs)} runs"
    return f"{spent.days:.1f} days, {spent.hours:.1f} h of the platform in {runs}{untimed}{price}"


def _avoided(avoided: Avoided) -> str:
    gates = ", ".join(f"G{n}" for n in avoided.gates) or "no further gate"
    price = "" if avoided.total is None else f", {avoided.total:,.0f} {avoided.currency}"
    return f"{avoided.days:.1f} days, {gates}{price}"
