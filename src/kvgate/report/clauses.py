"""The clauses of a gate as rows and sections of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from kvgate.contract import AnswersClause, Clause, CompareClause, ErrorsClause, LimitClause
from kvgate.criterion import METRICS, Effect, Source
from kvgate.numbers import NBSP, count, number, percent, points, significant
from kvgate.report.charts import mini_interval, pairs_chart
from kvgate.report.effects import (
    favourable_end,
    is_signed,
    measured,
    pair_effects,
    required,
    shortfall,
    span,
    terms_of,
)
from kvgate.report.inputs import ReportInput
from kvgate.report.palette import VERDICT
from kvgate.report.said import reason_text
from kvgate.report.svg import icon
from kvgate.report.texts import Texts
from kvgate.report.words import arm_name, cell_name, metric_name, sentence
from kvgate.verdict import ClauseVerdict, Figure, Verdict

FRONT_ROWS: Final = 14
"""Figures that the clause table of page 1 holds; beyond that a clause shows its deciding one."""

STOP_ROWS: Final = 7
"""The same where page 1 also says what a stop costs and saves; it names met clauses in a line."""

_ORDER: Final = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One measured number beside its threshold, as text; ``mini`` is a picture or empty."""

    where: str
    value: str
    interval: str
    required: str
    verdict: Verdict
    icon: Markup
    mini: Markup
    n: int
    reason: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ClauseView:
    """A clause: all its figures, those for page 1, its terms and its chart."""

    id: str
    text: str
    verdict: Verdict
    icon: Markup
    reason: str
    in_matrix: bool
    rows: tuple[FigureRow, ...]
    front: tuple[FigureRow, ...]
    hidden: int
    terms: tuple[tuple[str, str], ...]
    chart: Markup
    findings: tuple[str, ...]
    waived: str

    @property
    def plain(self) -> bool:
        """Whether a line of a table says all: one figure that keeps its limit."""
        met = self.verdict is Verdict.PASS and not (self.findings or self.waived or self.chart)
        return met and len(self.rows) == 1 and not self.rows[0].interval and len(self.terms) <= 3

    @property
    def brief(self) -> bool:
        """Whether a line of a table says all: a met clause whose values stand in the matrix."""
        return self.in_matrix and not self.rows and not self.findings and len(self.terms) == 2


def deciding(figures: Sequence[Figure]) -> Figure | None:
    """The figure with the worst verdict: the largest miss, else the closest to its threshold."""

    def margin(figure: Figure) -> float:
        if isinstance(figure.value, float | int) and isinstance(figure.threshold, float | int):
            gap = abs(figure.value - figure.threshold) / (abs(figure.threshold) or 1.0)
            return -gap if figure.verdict is Verdict.FAIL else gap
        return 0.0

    return min(figures, key=lambda f: (_ORDER.index(f.verdict), margin(f)), default=None)


def clause_text(clause: ClauseVerdict, lang: str) -> str:
    """The requirement in the reader's language, else in whatever language the verdict has."""
    return clause.text.get(lang) or next(iter(clause.text.values()), clause.metric)


def in_matrix(clause: ClauseVerdict) -> bool:
    """Whether its figures are facts of hosts, all of which stand in the matrix."""
    metric = METRICS.get(clause.metric)
    return metric is not None and metric.source is Source.FACT


def clause_views(source: ReportInput, t: Texts) -> tuple[ClauseView, ...]:
    """Every clause of the verdict, in its order."""
    clauses = source.verdict.clauses
    stops = source.verdict.stop is not None
    counted = [c for c in clauses if not (stops and c.accepted)]
    room = STOP_ROWS if stops else FRONT_ROWS
    everything = sum(max(1, len(c.figures)) for c in counted) <= room
    return tuple(_view(source, clause, everything, t) for clause in clauses)


def _view(source: ReportInput, clause: ClauseVerdict, everything: bool, t: Texts) -> ClauseView:
    terms = terms_of(source.contract, source.verdict.gate, clause.clause)
    rows = tuple(_row(f, clause.metric, terms, t) for f in clause.figures)
    worst = deciding(clause.figures)
    front = rows
    if not everything and worst is not None:
        front = (rows[clause.figures.index(worst)],)
    return ClauseView(
        id=clause.clause,
        text=clause_text(clause, t.lang),
        verdict=clause.verdict,
        icon=icon(clause.verdict),
        reason=reason_text(clause.reason, t),
        in_matrix=in_matrix(clause),
        rows=tuple(r for r in rows if r.verdict is not Verdict.PASS) if in_matrix(clause) else rows,
        front=front,
        hidden=len(rows) - len(front),
        terms=tuple(_terms(source, clause, terms, t)),
        chart=_chart(source, clause, terms, t),
        findings=tuple(sentence(reason_text(f, t), t.lang) for f in clause.findings),
        waived=_waived(clause, t),
    )


def _waived(clause: ClauseVerdict, t: Texts) -> str:
    if not clause.waived:
        return ""
    return t(
        "waived.chip", parties=t("list").join(t.find(f"facts.{p}", p) for p in clause.waived_by)
    )


def _row(figure: Figure, metric: str, terms: Clause | None, t: Texts) -> FigureRow:
    comparing = terms if isinstance(terms, CompareClause) else None
    return FigureRow(
        where=cell_name(figure.where, t),
        value=measured(figure, metric, terms, t),
        interval=span(figure, metric, terms, t),
        required=required(figure, metric, terms, t),
        verdict=figure.verdict,
        icon=icon(figure.verdict),
        mini=mini_interval(figure, comparing, VERDICT[figure.verdict]),
        n=figure.n,
        reason=reason_text(figure.reason, t),
        details=_details(figure, comparing, t),
    )


def _details(figure: Figure, terms: CompareClause | None, t: Texts) -> tuple[tuple[str, str], ...]:
    """Further numbers: each arm's own, then whatever else the verdict carries."""
    details = dict(figure.details or {})
    unit = str(details.pop("unit", None) or "")
    details.pop("statistic", None)
    sides = ("reference", "test")
    rows = []
    for side, arm in zip(sides, terms.compare if terms else sides, strict=True):
        if side in details:
            rows.append((arm_name(arm, t), number(details.pop(side), unit, t.lang)))
    rows += [(t.find(f"detail.{key}", key), _detail(key, v, t)) for key, v in details.items()]
    return tuple(rows)


_EFFECTS: Final = frozenset({"robust", "drift", "order"})
"""Details that are effects, as fractions."""


def _detail(key: str, value: float | str | None, t: Texts) -> str:
    if key in _EFFECTS and isinstance(value, float) and math.isfinite(value):
        return f"{significant(100 * value)}{NBSP}%"
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        return significant(value)
    return number(value, "", t.lang)


def _terms(
    source: ReportInput, clause: ClauseVerdict, terms: Clause | None, t: Texts
) -> list[tuple[str, str]]:
    """What the contract says of the clause, as label and value."""
    rows = [(t("terms.metric"), metric_name(clause.metric, getattr(terms, "statistic", ""), t))]
    if isinstance(terms, CompareClause | ErrorsClause):
        first, second = (arm_name(a, t) for a in terms.compare)
        rows.append((t("terms.compare"), t("terms.against", test=second, reference=first)))
    if isinstance(terms, CompareClause) and terms.indifference is not None:
        rows.append((t("terms.indifference"), points(terms.indifference, t.lang)))
        if terms.design_effect is not None:
            rows.append((t("terms.design"), percent(terms.design_effect, exact=True)))
        rows.append((t("terms.estimate"), t("yes" if terms.estimate_must_reach else "no")))
    if isinstance(terms, CompareClause):
        plan = source.contract.gate(source.verdict.gate).pairs
        if plan is not None:
            rows.append(
                (t("terms.pairs"), t("terms.range", low=plan.min_pairs, high=plan.max_pairs))
            )
    if isinstance(terms, LimitClause) and terms.arm is not None:
        rows.append((t("terms.arm"), arm_name(terms.arm, t)))
    if isinstance(terms, LimitClause) and terms.hosts is not None:
        rows.append((t("terms.hosts"), t.find(f"group.{terms.hosts}", terms.hosts)))
    if isinstance(terms, AnswersClause):
        pair = t(
            "terms.against", test=arm_name(terms.arm, t), reference=arm_name(terms.reference_arm, t)
        )
        rows.append((t("terms.compare"), pair))
        rows.append(
            (t("terms.tolerance"), number(terms.logprob_tolerance, "nat", t.lang, exact=True))
        )
        rows.append((t("terms.answers"), count(terms.min_answers)))
    formula = METRICS.get(clause.metric)
    if formula is not None and formula.source is not Source.FACT:
        rows.append((t("terms.formula"), t.find(f"formula.{clause.metric}", formula.formula)))
    return rows


def _chart(source: ReportInput, clause: ClauseVerdict, terms: Clause | None, t: Texts) -> Markup:
    if not isinstance(terms, CompareClause):
        return Markup("")
    panels = [(f, pair_effects(source.analysis, terms, f.where)) for f in clause.figures]
    return pairs_chart(terms, panels, t)


@dataclass(frozen=True, slots=True)
class Why:
    """One line of page 1 that says what stands against a clause."""

    clause: str
    where: str
    sentence: str
    end: str


def why_lines(source: ReportInput, t: Texts) -> tuple[Why, ...]:
    """The deciding figure of each clause that is not met, worst first; equal reasons together."""
    open_ = [c for c in source.verdict.clauses if c.verdict is not Verdict.PASS]
    open_.sort(key=lambda c: _ORDER.index(c.verdict))
    together: dict[tuple[str, str], list[Why]] = {}
    for line in (_why(source, clause, t) for clause in open_):
        together.setdefault((line.sentence, line.end), []).append(line)
    return tuple(_merged(lines, t) for lines in together.values())


def _favourable(
    source: ReportInput, clause: ClauseVerdict, figure: Figure, bound: str, t: Texts
) -> str:
    """That even the favourable end misses, with its certainty where the verdict carries one."""
    stop = source.verdict.stop
    for s in () if stop is None else stop.shortfalls:
        if (s.clause, s.where) == (clause.clause, figure.where) and s.confidence is not None:
            return t("short.sentence", bound=bound, certain=percent(s.confidence))
    return t("why.end", bound=bound)


def _merged(lines: list[Why], t: Texts) -> Why:
    first = lines[0]
    same_place = len({line.where for line in lines}) == 1
    names = t("list").join(line.clause for line in lines)
    return Why(names, first.where if same_place else "", first.sentence, first.end)


def _why(source: ReportInput, clause: ClauseVerdict, t: Texts) -> Why:
    figure = deciding(clause.figures)
    if figure is None:
        return Why(clause.clause, "", sentence(reason_text(clause.reason, t), t.lang), "")
    terms = terms_of(source.contract, source.verdict.gate, clause.clause)
    where = cell_name(figure.where, t)
    if clause.verdict is Verdict.FAIL and figure.reason.code in {"out_of_limit", "not_equal"}:
        said = t(
            "why.limit",
            metric=metric_name(clause.metric, "", t),
            value=measured(figure, clause.metric, terms, t),
            required=required(figure, clause.metric, terms, t).removeprefix(f"={NBSP}"),
        )
        return Why(clause.clause, where, said, "")
    gap = shortfall(figure, terms) if isinstance(terms, CompareClause) else None
    if clause.verdict is not Verdict.FAIL or not isinstance(terms, CompareClause) or gap is None:
        said = reason_text(figure.reason, t)
        if figure.reason.code in {"out_of_limit", "not_equal", "not_the_appliances"}:
            said = f"{metric_name(clause.metric, '', t)}{t('colon')}{said}"
        return Why(clause.clause, where, sentence(said, t.lang), "")
    kind = {Effect.DROP: "drop", Effect.GAIN: "gain", Effect.RISE: "rise", Effect.SAME: "same"}
    value = figure.value if isinstance(figure.value, float) else 0.0
    direction = "up" if (value < 0) == (terms.effect is Effect.DROP) else "down"
    miss = t(
        f"why.{kind[terms.effect]}",
        metric=metric_name(clause.metric, terms.statistic, t),
        moves=t(f"why.{direction}", value=percent(abs(value))),
        threshold=percent(terms.threshold, exact=True),
        gap=points(gap, t.lang),
    )
    end = favourable_end(figure, terms)
    bound = (
        ""
        if end is None
        else _favourable(source, clause, figure, percent(end, signed=is_signed(terms)), t)
    )
    return Why(clause.clause, where, miss, bound)
