"""The operating characteristic of a gate's comparing clauses, and where this campaign fell on it.

The rule itself is played, with `kvgate.planning`: nothing here decides, and the same evidence gives
the same curve. The spread of a pair is the one that this campaign showed.
"""

from __future__ import annotations

import statistics as st
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from markupsafe import Markup

from kvgate.analyse.characteristic import (
    Characteristic,
    ClauseModel,
    CurvePoint,
    clause_curve,
    simulate_gate,
)
from kvgate.analyse.pairs import cell_pairs, log_ratios
from kvgate.cells import Cell
from kvgate.contract import CompareClause, Contract
from kvgate.criterion import Effect
from kvgate.numbers import percent, plain, significant
from kvgate.planning import (
    SEED,
    SpreadOf,
    benefit_of,
    cells_of_clause,
    clause_model,
    comparing,
    designed,
    looks_of,
    zone_edge,
)
from kvgate.report.inputs import ReportInput
from kvgate.report.operating_chart import Fallen, characteristic_chart
from kvgate.report.texts import Texts
from kvgate.report.words import cell_name
from kvgate.verdict import ClauseVerdict, Figure

CAMPAIGNS: Final = 4000
"""Simulated campaigns a point: a probability is known to 1.6 points at worst (two standard
errors)."""

POINTS: Final = 45
FEWEST_PAIRS: Final = 3
"""Fewer valid pairs than this say too little of the spread; the contract's figure is taken."""

LOWEST: Final = -0.9
HIGHEST: Final = 0.98


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a pair at one level; ``assumed`` where the contract's figure stands for it."""

    where: str
    sd: float
    assumed: bool


@dataclass(frozen=True, slots=True)
class OperatingClause:
    """A clause's picture and table: (true effect, PASS, INCONCLUSIVE, FAIL, mean pairs)."""

    id: str
    text: str
    chart: Markup
    rows: tuple[tuple[str, ...], ...]
    spread: str


@dataclass(frozen=True, slots=True)
class Operating:
    """All comparing clauses of a gate, and the gate as a whole in sentences."""

    intro: str
    clauses: tuple[OperatingClause, ...]
    gate: tuple[str, ...]


def operating(source: ReportInput, t: Texts) -> Operating | None:
    """None where the gate compares no arms or nothing tells the spread of a pair."""
    contract, gate = source.contract, source.verdict.gate
    if gate not in contract.gates or contract.gate(gate).pairs is None:
        return None
    looks, retests = looks_of(contract, gate), contract.gate(gate).retests
    judged = {c.clause: c for c in source.verdict.clauses}
    shown: list[OperatingClause] = []
    models: list[tuple[ClauseModel, tuple[float, ...] | None]] = []
    for clause in comparing(contract, gate):
        spreads = _spreads(source, clause, t)
        verdict = judged.get(clause.id)
        if spreads is None or verdict is None:
            return None
        cells = cells_of_clause(contract, gate, clause)
        spread_of = _spread_of(cells, spreads)
        model = clause_model(clause, cells, looks, spread_of, (designed(clause),) * len(cells))
        here = _measured(cells, verdict)
        benefits = None if here is None else tuple(benefit_of(clause.effect, v) for v in here)
        models.append((model, benefits))
        shown.append(_clause(clause, cells, verdict, model, here, spreads, retests, t))
    if not shown:
        return None
    intro = t("oc.intro", campaigns=plain(CAMPAIGNS, 0))
    return Operating(intro, tuple(shown), tuple(_gate(models, retests, t)))


def _spread_of(cells: Sequence[Cell], spreads: Sequence[Spread]) -> SpreadOf:
    by_cell = {cell: s.sd for cell, s in zip(cells, spreads, strict=True)}
    return lambda _, cell: by_cell[cell]


def _spreads(source: ReportInput, clause: CompareClause, t: Texts) -> tuple[Spread, ...] | None:
    """The spread in each cell, from the pairs of this run, else from the contract."""
    found = []
    for one in cells_of_clause(source.contract, source.verdict.gate, clause):
        cell = cell_pairs(source.analysis, one)
        ratios = log_ratios(cell.valid, clause.metric, clause.statistic)
        where = cell_name(cell.cell, t)
        enough = len(ratios) >= FEWEST_PAIRS and bool(np.all(np.isfinite(ratios)))
        sd = st.stdev(ratios) if enough else None
        if sd:
            found.append(Spread(where, sd, False))
            continue
        told = _told(source.contract, clause)
        if told is None:
            return None
        found.append(Spread(where, told, True))
    return tuple(found)


def _told(contract: Contract, clause: CompareClause) -> float | None:
    """What the contract takes for granted; None where it says nothing."""
    planning = contract.planning
    if planning is None:
        return None
    if clause.statistic == "p99":
        return planning.tail_pair_sd or 2 * planning.pair_sd
    return planning.pair_sd


def _figures(cells: Sequence[Cell], verdict: ClauseVerdict) -> list[Figure | None]:
    """The clause's figure in each cell, None where the verdict has none."""
    return [next((f for f in verdict.figures if f.where == c.label), None) for c in cells]


def _measured(cells: Sequence[Cell], verdict: ClauseVerdict) -> tuple[float, ...] | None:
    """The estimate in each cell; None where one is missing."""
    values = [f.value if f is not None else None for f in _figures(cells, verdict)]
    known = [v for v in values if isinstance(v, float) and np.isfinite(v) and v > LOWEST]
    return tuple(known) if len(known) == len(values) else None


def _clause(
    clause: CompareClause, cells: Sequence[Cell], verdict: ClauseVerdict, model: ClauseModel,
    here: tuple[float, ...] | None, spreads: Sequence[Spread], retests: int, t: Texts,
) -> OperatingClause:  # fmt: skip
    marks = [("edge", zone_edge(clause)), ("threshold", clause.threshold)]
    if clause.design_effect is not None or clause.effect is Effect.RISE:
        marks.append(("design", designed(clause)))
    low, high = _ends(clause, here)
    effects = [float(x) for x in np.linspace(low, high, POINTS)]
    curve = _curve(
        model, tuple(benefit_of(clause.effect, e) for e in (*effects, *(v for _, v in marks)))
    )
    points = [p.characteristic.with_retests(retests) for p in curve]
    rows = [
        (t(f"oc.{name}", value=_effect(clause, value)), *_probabilities(found))
        for (name, value), found in zip(marks, points[POINTS:], strict=True)
    ]
    if here is not None:
        benefits = tuple(benefit_of(clause.effect, v) for v in here)
        at_here = _together((replace(model, effects_log=benefits),))
        rows.append((t("oc.here"), *_probabilities(at_here.with_retests(retests))))
    fallen = [
        Fallen(cell_name(cell.label, t).partition(" · ")[2], f)
        for cell, f in zip(cells, _figures(cells, verdict), strict=True)
        if f is not None
    ]

    def say(effect: float) -> str:
        return _effect(clause, effect)

    chart = characteristic_chart(
        list(zip(effects, points[:POINTS], strict=True)), marks, fallen, say,
        f"{clause.id} {clause.text.in_(t.lang)}", t,
    )  # fmt: skip
    values = t("list").join(
        t("oc.assumed" if s.assumed else "oc.measured", where=s.where, value=significant(s.sd))
        for s in spreads
    )
    return OperatingClause(
        clause.id, clause.text.in_(t.lang), chart, tuple(rows), t("oc.spread", values=values)
    )


# One campaign is shown in two languages and two forms: what is played once serves them all.
@lru_cache(maxsize=64)
def _curve(model: ClauseModel, effects_log: tuple[float, ...]) -> tuple[CurvePoint, ...]:
    return clause_curve(model, effects_log, campaigns=CAMPAIGNS, seed=SEED)


@lru_cache(maxsize=64)
def _together(models: tuple[ClauseModel, ...]) -> Characteristic:
    return simulate_gate(models, campaigns=CAMPAIGNS, seed=SEED).gate


def _effect(clause: CompareClause, effect: float) -> str:
    return percent(effect, signed=clause.effect is not Effect.DROP, exact=True)


def _ends(clause: CompareClause, here: tuple[float, ...] | None) -> tuple[float, float]:
    """The range of true effects: around zone and design, wider where the campaign fell outside."""
    edge, design = zone_edge(clause), designed(clause)
    reach = abs(design - edge) or 0.05
    low, high = min(edge, design) - 0.6 * reach, max(edge, design) + 0.6 * reach
    far = (low - 1.2 * reach, high + 1.2 * reach)
    for value in here or ():
        low = max(far[0], min(low, value - 0.2 * reach))
        high = min(far[1], max(high, value + 0.2 * reach))
    top = HIGHEST if clause.effect is Effect.DROP else high
    return max(low, LOWEST), min(high, top)


def _probabilities(found: Characteristic) -> tuple[str, ...]:
    return (
        of_100(found.p_pass), of_100(found.p_inconclusive), of_100(found.p_fail),
        plain(found.mean_pairs, 1),
    )  # fmt: skip


def of_100(probability: float) -> str:
    """A probability in campaigns of a hundred; what is rare is not rounded to never."""
    if 0.0 < probability < 0.005:
        return "<\u00a01"
    if 0.995 < probability < 1.0:
        return ">\u00a099"
    return plain(100 * probability, 0)


def _gate(
    models: Sequence[tuple[ClauseModel, tuple[float, ...] | None]], retests: int, t: Texts
) -> list[str]:
    designs = [model for model, _ in models]
    found = _together(tuple(designs)).with_retests(retests)
    passes, open_, fails, pairs = _probabilities(found)
    lines = [t("oc.gate", passes=passes, open=open_, fails=fails, pairs=pairs)]
    if all(here is not None for _, here in models):
        as_seen = [replace(m, effects_log=here) for m, here in models if here is not None]
        seen = _together(tuple(as_seen)).with_retests(retests)
        passes, open_, fails, _ = _probabilities(seen)
        lines.append(t("oc.gate_here", passes=passes, open=open_, fails=fails))
    return lines
