"""The charts of a gate: levels by arm, effects by pair, the interval against its threshold."""

from __future__ import annotations

import math
import statistics as st
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from markupsafe import Markup

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import CompareClause, Contract
from kvgate.criterion import Effect
from kvgate.numbers import number, percent, plain, trimmed
from kvgate.report.effects import PairEffect, statistic
from kvgate.report.glyphs import width
from kvgate.report.palette import FAINT, INK, MET, MUTED, RULE, SERIES, VERDICT, ZONE
from kvgate.report.svg import SMALL, Axis, Drawing, legend
from kvgate.report.texts import Texts
from kvgate.report.words import arm_name, cell_name
from kvgate.verdict import Figure

PAGE: Final = 657.0
"""Width of the printed area, in CSS pixels."""


DASHES: Final = (None, "6 3", "2 2.4", "8 3 2 3")
"""Line of each series, so that curves are told apart without colour."""


DRAWN: Final = 200
"""Points of one strip or panel; the tables and the CSV have all of them."""

Point = TypeVar("Point")


@dataclass(frozen=True, slots=True)
class Series:
    """How an arm is drawn everywhere in the report: never told by colour alone."""

    arm: str
    colour: str
    shape: int
    dash: str | None


def series_of(contract: Contract) -> dict[str, Series]:
    """Colour and shape of each arm; the tested arm, declared last, has the strongest colour."""
    arms = list(reversed(contract.arms))
    return {
        a: Series(a, SERIES[i % len(SERIES)], i, DASHES[i % len(DASHES)])
        for i, a in enumerate(arms)
    }


def level_chart(
    analysis: Analysis,
    attribute: str,
    unit: str,
    title: str,
    contract: Contract,
    t: Texts,
    width_px: float = PAGE / 2 - 8,
) -> Markup:
    """Every block of every arm by cell, with the median of the valid ones; empty without blocks."""
    cells: dict[str, dict[str, list[BlockResult]]] = {}
    for block in sorted(
        analysis.blocks, key=lambda b: (b.cell.workload, b.cell.setup.label, b.cell.level, b.n)
    ):
        if block.kind != "probe" and statistic(block, attribute) is not None:
            arms = cells.setdefault(block.cell.label, {})
            arms.setdefault(block.arm, []).append(block)
    if not cells:
        return Markup("")
    series = series_of(contract)
    known = [a for a in contract.arms if any(a in arms for arms in cells.values())]
    d = Drawing(width_px, 236)
    top = max(statistic(b, attribute) or 0 for c in cells.values() for bs in c.values() for b in bs)
    axis = Axis(0.0, top * 1.06, 196, 46)
    d.text(0, 11, f"{title} ({unit})", bold=True, size=11)
    legend(d, 0, 30, [(series[a].shape, series[a].colour, arm_name(a, t)) for a in known])
    left = _value_axis(d, axis, width_px, lambda v: trimmed(v))
    slot = (width_px - left) / len(cells)
    for i, (label, arms) in enumerate(cells.items()):
        centre = left + slot * (i + 0.5)
        name = cell_name(label, t)
        head, streams, *setup = name.split(" · ")
        d.text(centre, 211, streams, anchor="middle", size=SMALL)
        d.text(centre, 223, head, anchor="middle", colour=MUTED, size=9)
        if setup:
            said, room = " ".join(setup), max(4, int(slot / 5))  # characters of this size
            said = said if len(said) <= room else said[: room - 1] + "…"
            d.text(centre, 234, said, anchor="middle", colour=MUTED, size=9)
        present = [a for a in known if a in arms]
        lane = min(56.0, slot / max(1, len(present)))
        for j, arm in enumerate(present):
            x = centre + (j - (len(present) - 1) / 2) * lane
            who = f"{arm_name(arm, t)}, {name}"
            _strip(d, axis, x, lane, arms[arm], attribute, unit, series[arm], who, t)
    return d.markup(title)


def _strip(
    d: Drawing, axis: Axis, x: float, lane: float, blocks: Sequence[BlockResult], attribute: str,
    unit: str, series: Series, who: str, t: Texts,
) -> None:  # fmt: skip
    """One arm in one cell: a point a block, the median of the valid blocks as a line."""
    values = thinned([(b, statistic(b, attribute) or 0.0) for b in blocks])
    half = lane * 0.3
    for k, (block, value) in enumerate(values):
        dx = 0.0 if len(values) == 1 else (k / (len(values) - 1) - 0.5) * 2 * half * 0.8
        hover = t("chart.block", who=who, n=block.n, value=number(value, unit, t.lang))
        d.marker(
            series.shape, x + dx, axis.at(value), 2.4, series.colour, hollow=not block.valid,
            hover=hover,
        )  # fmt: skip
    valid = [statistic(b, attribute) or 0.0 for b in blocks if b.valid]
    if not valid:
        return
    middle = st.median(valid)
    y = axis.at(middle)
    d.line(x - half, y, x + half, y, series.colour, weight=2)
    highest = min(axis.at(v) for _, v in values)
    d.text(x, highest - 7, _short(middle), anchor="middle", size=9.5, colour=INK)


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most DRAWN of them, evenly chosen: more are a smear, and cost a page its time."""
    return points[:: max(1, math.ceil(len(points) / DRAWN))]


def _short(value: float) -> str:
    decimals = 0 if value >= 100 else 1 if value >= 20 else 2
    return plain(value, decimals)


def _value_axis(d: Drawing, axis: Axis, right: float, label: object) -> float:
    """Grid lines and tick labels; returns where the plot begins."""
    names = [(tick, label(tick)) for tick in axis.ticks] if callable(label) else []
    left = max(width(name, SMALL) for _, name in names) + 8
    for tick, name in names:
        y = axis.at(tick)
        d.line(left, y, right, y, RULE, weight=0.6 if tick else 1.0)
        d.text(left - 6, y + 3.5, name, anchor="end", colour=MUTED)
    return left


def pairs_chart(
    clause: CompareClause,
    panels: Sequence[tuple[Figure, Sequence[PairEffect]]],
    t: Texts,
) -> Markup:
    """Effects by pair beside the interval, one panel a cell, one scale for all of them."""
    panels = [p for p in panels if any(e.value is not None for e in p[1])]
    if not panels:
        return Markup("")
    threshold, zone = clause.threshold, clause.indifference or 0.0
    bounds = [threshold, threshold - zone if clause.effect is not Effect.RISE else threshold + zone]
    if clause.effect is Effect.SAME:
        bounds = [threshold, -threshold]
    if clause.design_effect is not None:
        bounds.append(clause.design_effect)
    data = [e.value for _, es in panels for e in es if e.value is not None]
    data += [v for f, _ in panels for v in (f.low, f.high) if v is not None]
    low, high = min(data + bounds), max(data + bounds)
    d = Drawing(PAGE, 164)
    axis = Axis(low, high, 132, 34)
    left = _value_axis(d, axis, PAGE, lambda v: percent(v, exact=True))
    gap = 18.0
    each = (PAGE - left - gap * (len(panels) - 1)) / len(panels)
    for i, (figure, effects) in enumerate(panels):
        x0 = left + i * (each + gap)
        _panel(d, axis, x0, each, clause, figure, effects, bounds, t)
    return d.markup(t("chart.pairs"))


def _panel(
    d: Drawing, axis: Axis, x0: float, w: float, clause: CompareClause, figure: Figure,
    effects: Sequence[PairEffect], bounds: list[float], t: Texts,
) -> None:  # fmt: skip
    colour = VERDICT[figure.verdict]
    if clause.effect is Effect.SAME:
        d.rect(x0, axis.at(bounds[0]), w, axis.at(bounds[1]) - axis.at(bounds[0]), MET)
    else:
        best = axis.end if clause.effect is not Effect.RISE else axis.start
        y, edge = axis.at(bounds[0]), axis.at(bounds[1])
        d.rect(x0, min(y, best), w, abs(best - y), MET)
        d.rect(x0, min(y, edge), w, abs(edge - y), ZONE)
    for tick in axis.ticks:
        d.line(x0, axis.at(tick), x0 + w, axis.at(tick), RULE, weight=0.6)
    if clause.design_effect is not None:
        y = axis.at(clause.design_effect)
        d.line(x0, y, x0 + w, y, MUTED, weight=1, dash="1.5 2.5")
    for bound in bounds[:1] if clause.effect is not Effect.SAME else bounds[:2]:
        d.line(x0, axis.at(bound), x0 + w, axis.at(bound), INK, weight=1.4)
    d.text(x0, 12, cell_name(figure.where, t), bold=True, size=11)
    d.text(x0, 25, t("chart.pairs_used", n=figure.n), colour=MUTED)
    plot = w - 46
    shown = thinned(effects)
    step = plot / max(1, len(shown))
    every = math.ceil(14.0 / step)
    for k, effect in enumerate(shown):
        x = x0 + step * (k + 0.5)
        if k % every == 0:
            d.text(x, 146, str(effect.pair + 1), anchor="middle", colour=MUTED, size=9)
        if effect.value is None:
            d.text(x, axis.start - 3, "–", anchor="middle", colour=MUTED)
            continue
        hover = f"{t('chart.pair')} {effect.pair + 1}: {percent(effect.value)}"
        if effect.valid:
            d.marker(0, x, axis.at(effect.value), 3.2, SERIES[0], hover=hover)
        else:
            d.marker(2, x, axis.at(effect.value), 3.0, MUTED, hollow=True, hover=hover)
    if effects:
        d.text(x0 + plot / 2, 159, t("chart.pair"), anchor="middle", colour=MUTED, size=9)
    _estimate(d, axis, x0 + w - 24, figure, colour, t)


def _estimate(d: Drawing, axis: Axis, x: float, figure: Figure, colour: str, t: Texts) -> None:
    """Estimate and interval at the right of a panel."""
    if figure.low is not None and figure.high is not None:
        low, high = axis.at(figure.low), axis.at(figure.high)
        d.rect(x - 3.5, high, 7, low - high, colour, radius=1.5)
        d.line(x - 9, low, x + 9, low, colour, weight=1.4)
        d.line(x - 9, high, x + 9, high, colour, weight=1.4)
    if isinstance(figure.value, float):
        y = axis.at(figure.value)
        d.marker(2, x, y, 4.6, colour, hover=percent(figure.value))
    d.text(x, 146, t("chart.interval"), anchor="middle", colour=MUTED, size=9)


def mini_interval(figure: Figure, clause: CompareClause | None, verdict_colour: str) -> Markup:
    """The interval against the threshold in one line of a table; better is to the right."""
    low, high, value, threshold = figure.low, figure.high, figure.value, figure.threshold
    if low is None or high is None or not isinstance(value, float):
        return Markup("")
    if not isinstance(threshold, float | int):
        return Markup("")
    w, h = 118.0, 15.0
    d = Drawing(w, h)
    two_sided = clause is not None and clause.effect is Effect.SAME
    flip = figure.relation == "<=" and not two_sided
    marks = [threshold, -threshold] if two_sided else [float(threshold)]
    everything = [low, high, value, *marks]
    reach = max(max(everything) - min(everything), 1e-9) * 0.12
    ends = (min(everything) - reach, max(everything) + reach)
    axis = Axis(*ends, *((w - 1, 1) if flip else (1, w - 1)), round_ends=False)
    d.rect(0, 1, w, h - 2, FAINT)
    if two_sided:
        d.rect(axis.at(-threshold), 1, axis.at(threshold) - axis.at(-threshold), h - 2, MET)
    else:
        d.rect(axis.at(threshold), 1, w - axis.at(threshold), h - 2, MET)
    a, b = sorted((axis.at(low), axis.at(high)))
    d.rect(a, h / 2 - 2, b - a, 4, verdict_colour, radius=1)
    for mark in marks:
        d.line(axis.at(mark), 0, axis.at(mark), h, INK, weight=1.3)
    d.marker(2, axis.at(value), h / 2, 3.6, verdict_colour)
    label = f"{number(value, figure.unit, 'en')} ({number(threshold, figure.unit, 'en')})"
    return d.markup(label, "mini")
