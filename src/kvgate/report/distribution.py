"""Distribution of single requests by arm and level: cumulative curves and the table behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import Contract
from kvgate.numbers import count, number, percent
from kvgate.report.charts import PAGE, Series, series_of
from kvgate.report.palette import FAINT, MUTED, RULE
from kvgate.report.svg import Axis, Drawing, LogAxis, line_legend
from kvgate.report.texts import Texts
from kvgate.report.words import arm_name, cell_name

Times = NDArray[np.float64]

DRAWN: Final = 6
"""Cells in the picture; the table has all of them."""

STEPS: Final = np.concatenate([np.arange(0, 100, 1.0), [99.0, 99.5, 99.9, 100.0]])
"""Percentiles that a curve is drawn through."""

DOTS: Final = (50.0, 90.0, 99.0)
HOVERS: Final = (10.0, 25.0, 50.0, 75.0, 90.0, 99.0)
COLUMNS: Final = (("ttft_s", 10), ("ttft_s", 50), ("ttft_s", 90), ("ttft_s", 99), ("itl_s", 50),
                  ("itl_s", 90), ("itl_s", 99))  # fmt: skip
"""Sample and percentile of each column of the table."""

_ROW: Final = 86.0
_GAP: Final = 16.0
_TOP: Final = 44.0
_LEFT: Final = 34.0


@dataclass(frozen=True, slots=True)
class ArmSamples:
    """All requests of one arm in one cell, from valid blocks; seconds of campaign time."""

    cell: str
    arm: str
    blocks: int
    samples: Mapping[str, Times]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The picture and its table: (cell, arm, blocks, requests, percentiles as in COLUMNS)."""

    chart: Markup
    rows: tuple[tuple[str, ...], ...]
    drawn: int
    total: int


def pooled(analysis: Analysis, contract: Contract) -> list[ArmSamples]:
    """Samples by cell and arm, in the order of cells and of the contract's arms."""
    groups: dict[tuple[str, int, str, str], list[BlockResult]] = {}
    for b in analysis.blocks:
        if b.valid and b.kind != "probe" and analysis.samples.get(b.n):
            key = (b.cell.workload, b.cell.level, b.cell.label, b.arm)
            groups.setdefault(key, []).append(b)
    arms = list(contract.arms)
    found = []
    for key in sorted(groups, key=lambda k: (k[:3], arms.index(k[3]) if k[3] in arms else 99)):
        blocks = groups[key]
        samples = {
            name: np.concatenate([_finite(analysis, b.n, name) for b in blocks])
            for name in ("ttft_s", "itl_s")
        }
        if len(samples["ttft_s"]):
            found.append(ArmSamples(key[2], key[3], len(blocks), samples))
    return found


def _finite(analysis: Analysis, n: int, name: str) -> Times:
    values = np.asarray(analysis.samples[n].get(name, ()), dtype=np.float64)
    return values[np.isfinite(values)]


def distribution(analysis: Analysis, contract: Contract, t: Texts) -> Distribution | None:
    """None where no valid block has a request."""
    groups = pooled(analysis, contract)
    if not groups:
        return None
    cells: dict[str, list[ArmSamples]] = {}
    for group in groups:
        cells.setdefault(group.cell, []).append(group)

    def weight(cell: str) -> tuple[int, int]:
        """Cells that compare arms first, then those with most requests."""
        return len(cells[cell]), sum(len(g.samples["ttft_s"]) for g in cells[cell])

    chosen = set(sorted(cells, key=weight, reverse=True)[:DRAWN])
    drawn = {cell: cells[cell] for cell in cells if cell in chosen}
    return Distribution(
        _chart(drawn, contract, t), tuple(_row(g, t) for g in groups), len(drawn), len(cells)
    )


def _row(group: ArmSamples, t: Texts) -> tuple[str, ...]:
    values = []
    for name, q in COLUMNS:
        sample = group.samples[name]
        values.append(number(float(np.percentile(sample, q)), "s", t.lang) if len(sample) else "–")
    return (
        cell_name(group.cell, t), arm_name(group.arm, t), count(group.blocks),
        count(len(group.samples["ttft_s"])), *values,
    )  # fmt: skip


def _chart(cells: Mapping[str, Sequence[ArmSamples]], contract: Contract, t: Texts) -> Markup:
    series = series_of(contract)
    known = [a for a in contract.arms if any(g.arm == a for gs in cells.values() for g in gs)]
    height = _TOP + len(cells) * (_ROW + _GAP) + 16
    d = Drawing(PAGE, height)
    line_legend(d, 0, 10, [(series[a].dash, series[a].colour, arm_name(a, t)) for a in known])
    half = (PAGE - 24) / 2
    for column, name in enumerate(("ttft_s", "itl_s")):
        x0 = column * (half + 24)
        every = [g.samples[name] for gs in cells.values() for g in gs if len(g.samples[name])]
        if not every:
            continue
        axis = _time_axis(every, x0 + _LEFT, x0 + half - 6)
        d.text(x0 + _LEFT, 30, t(f"dist.{name.removesuffix('_s')}"), bold=True, size=11)
        for row, (cell, groups) in enumerate(cells.items()):
            top = _TOP + row * (_ROW + _GAP)
            last = row == len(cells) - 1
            _panel(d, axis, x0, half, top, cell, groups, name, series, t, last=last)
    return d.markup(t("dist.title"))


def _time_axis(samples: Sequence[Times], start: float, end: float) -> Axis:
    low = float(min(np.percentile(s, 0.5) for s in samples))
    high = float(max(np.percentile(s, 99.5) for s in samples))
    if low > 0 and high / low > 4:
        return LogAxis(low, high, start, end)
    reach = (high - low) * 0.04
    return Axis(max(0.0, low - reach), high + reach, start, end, ticks=6, round_ends=False)


def _panel(
    d: Drawing, axis: Axis, x0: float, w: float, top: float, cell: str,
    groups: Sequence[ArmSamples], name: str, series: Mapping[str, Series], t: Texts, *, last: bool,
) -> None:  # fmt: skip
    share = Axis(0.0, 1.0, top + _ROW, top + 14, ticks=2, round_ends=False)
    d.text(x0 + _LEFT, top + 8, cell_name(cell, t), colour=MUTED)
    d.rect(x0 + _LEFT, share.at(1.0), w - _LEFT - 6, share.at(0.0) - share.at(1.0), FAINT)
    for y in (0.0, 0.5, 1.0):
        d.line(x0 + _LEFT, share.at(y), x0 + w - 6, share.at(y), RULE, weight=0.6)
        label = percent(y, exact=True)
        d.text(x0 + _LEFT - 5, share.at(y) + 3.4, label, anchor="end", colour=MUTED, size=8.5)
    for tick in axis.ticks:
        d.line(axis.at(tick), share.at(1.0), axis.at(tick), share.at(0.0), RULE, weight=0.6)
        if not last:
            continue  # one scale for all cells: it is written once, below them
        shown = number(tick, "s", t.lang, exact=True)
        d.text(axis.at(tick), share.at(0.0) + 11, shown, anchor="middle", colour=MUTED, size=8.5)
    for group in groups:
        sample = group.samples[name]
        if len(sample):
            _curve(d, axis, share, group, sample, series[group.arm], t)


def _curve(
    d: Drawing, axis: Axis, share: Axis, group: ArmSamples, sample: Times, series: Series, t: Texts
) -> None:
    steps = STEPS if len(sample) > 8 else np.linspace(0, 100, 2 * len(sample) + 1)
    times = np.percentile(sample, steps)
    low, high = min(axis.low, axis.high), max(axis.low, axis.high)
    points = [
        (axis.at(float(np.clip(x, low, high))), share.at(float(q) / 100))
        for x, q in zip(times, steps, strict=True)
    ]
    d.path(points, series.colour, weight=1.7, dash=series.dash)
    for q in HOVERS:
        value = float(np.percentile(sample, q))
        if not low <= value <= high:
            continue
        said = number(value, "s", t.lang)
        hover = f"{arm_name(group.arm, t)}, {cell_name(group.cell, t)}, p{q:.0f}: {said}"
        x, y = axis.at(value), share.at(q / 100)
        if q in DOTS:
            d.marker(series.shape, x, y, 2.4, series.colour, hover=hover)
        else:
            d.spot(x, y, 5.0, hover)
