"""What a stop costs and saves, by how much the appliance missed, and the runs behind it.

All of it stands in the verdict; here it becomes lines for page 1 and rows for the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvgate.contract import CompareClause
from kvgate.numbers import NBSP, count, number, percent, plain, points
from kvgate.report.effects import measured, required, terms_of
from kvgate.report.inputs import GateHistory, ReportInput
from kvgate.report.moments import as_of_text, decision_key
from kvgate.report.texts import Texts
from kvgate.report.words import cell_name, standing_name
from kvgate.verdict import DeadlineState, Decision, Shortfall, Spent, Verdict


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the ledger: a title, one large figure, lines below it."""

    title: str
    figure: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShortRow:
    clause: str
    where: str
    measured: str
    required: str
    by: str
    at_least: str
    certain: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What page 1 of a STOP-LOSS or HOLD shows beside its reasons."""

    columns: tuple[Column, ...]
    shortfalls: tuple[ShortRow, ...]


def money(value: float, currency: str) -> str:
    """An amount: whole units, comma from 10,000 on, currency behind it."""
    return f"{plain(value, 0)}{NBSP}{currency}"


def _hours(value: float) -> str:
    return f"<{NBSP}0.01" if 0 < value < 0.005 else plain(value, 2 if value < 10 else 1)


def _days(value: float) -> str:
    return plain(value, 0 if value >= 10 or value == int(value) else 1)


def ledger(source: ReportInput, t: Texts) -> Ledger | None:
    """None where the decision is neither STOP-LOSS nor HOLD."""
    v = source.verdict
    if v.stop is None:
        return None
    # Beside what failed, what was spoiled is no shortfall; nor is a value that keeps its limit.
    failed = any(s.verdict is Verdict.FAIL for s in v.stop.shortfalls)
    rows = tuple(
        _short(source, s, t)
        for s in v.stop.shortfalls
        if s.verdict is Verdict.FAIL or (s.by and not failed)
    )
    columns = []
    if v.spent is not None:
        columns.append(_spent(v.spent, t))
    if v.decision is Decision.STOP_LOSS:
        columns.append(_avoided(source, t))
    follows = v.stop.follows
    said = t("ledger.no_follows") if follows is None else follows.get(t.lang) or follows["en"]
    columns.append(Column(t("ledger.follows"), "", (said,)))
    return Ledger(tuple(columns), rows)


def _spent(spent: Spent, t: Texts) -> Column:
    timed = len(spent.runs) - spent.untimed
    key = "ledger.one_run" if timed == 1 else "ledger.runs"
    lines = [t(key, n=timed, hours=plain(spent.hours, 1))]
    if spent.untimed:
        lines.append(t("ledger.untimed", n=spent.untimed))
    days = t("ledger.days", n=_days(spent.days))
    if spent.cost is None:
        return Column(t("ledger.spent"), days, (*lines, t("ledger.unpriced")))
    return Column(t("ledger.spent"), money(spent.cost, spent.currency), (days, *lines))


def _avoided(source: ReportInput, t: Texts) -> Column:
    stop = source.verdict.stop
    if stop is None:
        raise ValueError("no record of a stop")
    a = stop.avoided
    lines = [t("ledger.days_left", n=_days(a.days))]
    if a.gates:
        gates = t("list").join(t("gate", n=n) for n in a.gates)
        lines.append(t("ledger.gates", gates=gates))
    if a.purchase is not None:
        lines.append(t("ledger.purchase", value=money(a.purchase, a.currency)))
    if a.owed is not None:
        lines.append(t("ledger.owed", value=money(a.owed, a.currency)))
    if a.total is None:
        return Column(t("ledger.avoided"), lines[0], (*lines[1:], t("ledger.unpriced")))
    return Column(t("ledger.avoided"), money(a.total, a.currency), tuple(lines))


def _short(source: ReportInput, s: Shortfall, t: Texts) -> ShortRow:
    terms = terms_of(source.contract, source.verdict.gate, s.clause)
    comparing = isinstance(terms, CompareClause)
    metric = terms.metric if terms is not None else None

    def distance(value: float | None) -> str:
        if value is None:
            return "–"
        if comparing or (s.unit == "1" and "%" in number(value, s.unit, t.lang, metric=metric)):
            return points(value, t.lang)
        return number(value, s.unit, t.lang, metric=metric)

    figure = next(
        (f for c in source.verdict.clauses if c.clause == s.clause
         for f in c.figures if f.where == s.where), None
    )  # fmt: skip
    return ShortRow(
        clause=s.clause,
        where=cell_name(s.where, t),
        measured="–" if figure is None else measured(figure, metric or "", terms, t),
        required="–" if figure is None else required(figure, metric or "", terms, t),
        by=distance(s.by),
        at_least=distance(s.by_at_least) if s.by_at_least else "–",
        certain=certainty(s, t),
    )


def certainty(s: Shortfall, t: Texts) -> str:
    """The confidence of the interval, else what kind of reading the figure is."""
    if s.confidence is None:
        return t(f"short.{s.method}")
    return f"≥{NBSP}{percent(s.confidence)}"


def calendar(deadline: DeadlineState, t: Texts) -> str:
    """Where the run stands against its gate's deadline."""
    key = "deadline.missed" if deadline.missed_by_days > 0 else "deadline.in_time"
    return t(key, day=deadline.day, deadline=deadline.deadline_day, n=deadline.missed_by_days)


def waiver_rows(source: ReportInput, t: Texts) -> tuple[tuple[str, ...], ...]:
    """Every waiver that was presented: clause, party, reason, dates, standing, used."""
    return tuple(
        (
            w.clause,
            t.find(f"facts.{w.party}", w.party),
            w.reason,
            w.granted[:10],
            w.expires[:10],
            standing_name(w.standing, t),
            t("yes" if w.used else "no"),
        )
        for w in source.verdict.waivers
    )


def _history(entry: tuple[Any, ...]) -> GateHistory:
    return GateHistory(*entry)


def run_rows(source: ReportInput, t: Texts) -> tuple[tuple[str, ...], ...]:
    """Every run of the campaign up to this one: gate, run, kind, verdict, decision, time, hours,
    start of its manifest's digest."""
    spent = source.verdict.spent
    if spent is None:
        return ()
    sealed = {(h.gate, h.as_of): h.digest for h in map(_history, source.campaign_history)}
    sealed[source.verdict.gate, source.verdict.as_of] = source.manifest_sha256 or ""
    return tuple(
        (
            t("gate", n=r.gate),
            count(r.run),
            t.find(f"mode.{r.mode}", r.mode),
            "–" if r.verdict is None else t.find(f"verdict.{r.verdict}", r.verdict),
            t(f"decision.{decision_key(r.decision or '')}.word"),
            as_of_text(r.as_of),
            "–" if r.hours is None else _hours(r.hours),
            sealed.get((r.gate, r.as_of), "")[:16] or "–",
        )
        for r in spent.runs
    )
