"""The timeline of a long run: windows, faults, gaps, drift."""

from __future__ import annotations

import math
import statistics as st
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from kvgate.analyse.estimate import slope_interval
from kvgate.analyse.results import Analysis, SoakEvent, SoakWindow
from kvgate.contract import SoakPlan
from kvgate.numbers import percent, trimmed
from kvgate.report.charts import PAGE
from kvgate.report.palette import FAINT, GAP, INK, MUTED, RULE, SERIES, VERDICT, ZONE
from kvgate.report.svg import Axis, Drawing
from kvgate.report.texts import Texts
from kvgate.verdict import Verdict

_PANEL: Final = 74.0
_GAP: Final = 24.0
_LEFT: Final = 46.0
_TOP: Final = 44.0
_FEWEST: Final = 6
"""Windows that a trend needs, see `kvgate.analyse.estimate.slope_interval`."""


def gaps(windows: Sequence[SoakWindow], start_s: float, end_s: float) -> list[tuple[float, float]]:
    """Stretches between ``start_s`` and ``end_s`` that no window covers, in campaign seconds."""
    found, at = [], start_s
    for window in sorted(windows, key=lambda w: w.start_s):
        if window.start_s > at + 1e-6:
            found.append((at, window.start_s))
        at = max(at, window.end_s)
    if end_s > at + 1e-6:
        found.append((at, end_s))
    return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity over the run; ``trend`` where its drift is judged."""

    name: str
    value: Callable[[SoakWindow], float | None]
    label: Callable[[float], str]
    trend: bool = False
    share: bool = False


def soak_chart(analysis: Analysis, plan: SoakPlan, t: Texts) -> Markup:
    """Panels over one time axis in campaign time; empty without windows."""
    windows = sorted(analysis.windows, key=lambda w: w.start_s)
    if not windows:
        return Markup("")
    end = max(plan.duration_s, windows[-1].end_s, *(e.at_s for e in analysis.events), 0.0)
    hours = end > 7200
    scale = 3600.0 if hours else 60.0
    panels = _panels(windows, t)
    bottom = _TOP + len(panels) * (_PANEL + _GAP)
    d = Drawing(PAGE, bottom + 18)
    time = Axis(0.0, end / scale, _LEFT, PAGE - 8, ticks=9, round_ends=False)
    for row, panel in enumerate(panels):
        top = _TOP + row * (_PANEL + _GAP)
        _shades(d, time, scale, top, windows, analysis.events, plan, end, t)
        _panel(d, time, scale, top, panel, windows, plan.warmup_s, t)
    for tick in time.ticks:
        d.line(time.at(tick), bottom - _GAP, time.at(tick), bottom - _GAP + 4, MUTED, weight=0.8)
        d.text(time.at(tick), bottom - _GAP + 15, trimmed(tick), anchor="middle", colour=MUTED)
    unit = t("soak.hours") if hours else t("soak.minutes")
    d.text(PAGE - 8, bottom + 14, unit, anchor="end", colour=MUTED)
    _events(d, time, scale, analysis.events, bottom - _GAP, t)
    return d.markup(t("soak.title"))


def _panels(windows: Sequence[SoakWindow], t: Texts) -> list[Panel]:
    def share(value: float) -> str:
        return percent(value, exact=True)

    panels = [
        Panel(t("soak.ttft"), lambda w: w.ttft_p50_s, trimmed, trend=True),
        Panel(t("soak.throughput"), lambda w: w.output_tok_per_s, trimmed, trend=True),
        Panel(
            t("soak.failed"),
            lambda w: w.n_failed / w.n_requests if w.n_requests else None,
            share,
            share=True,
        ),
    ]
    if any(w.restored_share is not None for w in windows):
        panels.append(Panel(t("soak.restored"), lambda w: w.restored_share, share, share=True))
    panels.append(Panel(t("soak.memory"), lambda w: _gib(w.resident_bytes), trimmed, trend=True))
    return panels


def _shades(
    d: Drawing, time: Axis, scale: float, top: float, windows: Sequence[SoakWindow],
    events: Sequence[SoakEvent], plan: SoakPlan, end: float, t: Texts,
) -> None:  # fmt: skip
    """Warm-up, faults in force and what nobody observed."""

    def shade(start_s: float, end_s: float, colour: str, hover: str = "") -> None:
        x = time.at(start_s / scale)
        d.rect(x, top, max(1.0, time.at(end_s / scale) - x), _PANEL, colour, hover=hover)

    if plan.warmup_s:
        shade(0.0, plan.warmup_s, FAINT)
    for event in events:
        if event.ended_s is not None and event.ended_s > event.at_s:
            shade(event.at_s, event.ended_s, ZONE, t("soak.fault"))
    for a, b in gaps(windows, plan.warmup_s, end):
        shade(a, b, GAP, t("soak.gap"))


def _gib(value: float | None) -> float | None:
    return None if value is None else value / 2**30


def _panel(
    d: Drawing, time: Axis, scale: float, top: float, panel: Panel, windows: Sequence[SoakWindow],
    warmup_s: float, t: Texts,
) -> None:  # fmt: skip
    points = [(w, panel.value(w)) for w in windows]
    known = [v for _, v in points if v is not None]
    highest = max([*known, 0.0])
    high = 1.0 if panel.share and highest > 0.9 else highest * 1.1 or 0.01
    axis = Axis(0.0, high, top + _PANEL, top, ticks=3)
    d.text(_LEFT, top - 6, panel.name, bold=True)
    for tick in axis.ticks:
        d.line(_LEFT, axis.at(tick), PAGE - 8, axis.at(tick), RULE, weight=0.6)
        d.text(_LEFT - 6, axis.at(tick) + 3.5, panel.label(tick), anchor="end", colour=MUTED)
    run: list[tuple[float, float]] = []
    last_end: float | None = None
    for window, v in points:
        broken = last_end is not None and window.start_s > last_end + 1e-6
        if v is None or broken:
            d.path(run, SERIES[0])
            run = []
        last_end = window.end_s
        if v is None:
            continue
        run.append((time.at(_middle(window) / scale), axis.at(v)))
    d.path(run, SERIES[0])
    if panel.trend:
        _trend(d, time, scale, top, axis, panel, windows, warmup_s, t)
    for window, v in points:
        if v is not None:
            hover = f"{panel.name}, {trimmed(window.start_s / scale)}: {panel.label(v)}"
            x = time.at(_middle(window) / scale)
            d.marker(0, x, axis.at(v), 2.0, SERIES[0], hollow=window.excused, hover=hover)


def _middle(window: SoakWindow) -> float:
    return (window.start_s + window.end_s) / 2


def _trend(
    d: Drawing, time: Axis, scale: float, top: float, axis: Axis, panel: Panel,
    windows: Sequence[SoakWindow], warmup_s: float, t: Texts,
) -> None:  # fmt: skip
    """The Theil-Sen line through the windows after warm-up, and its change over the run."""
    steady = [
        (_middle(w), v)
        for w in windows
        if w.start_s >= warmup_s and (v := panel.value(w)) is not None and math.isfinite(v)
    ]
    times, values = [x for x, _ in steady], [v for _, v in steady]
    found = slope_interval(times, values).slope if len(steady) >= _FEWEST else None
    if found is None:
        return
    middle = st.median(values)
    base = st.median(v - found * x for x, v in steady)
    ends = [(time.at(x / scale), axis.at(base + found * x)) for x in (times[0], times[-1])]
    d.path(ends, INK, weight=1.1, dash="5 3")
    if middle > 0:
        change = percent(found * (times[-1] - times[0]) / middle, signed=True)
        d.text(PAGE - 8, top - 6, t("soak.drift", change=change), anchor="end", colour=MUTED)


def _events(
    d: Drawing, time: Axis, scale: float, events: Sequence[SoakEvent], bottom: float, t: Texts
) -> None:
    """A line through all panels for each event, its number at the top; the table names it."""
    for number, event in enumerate(sorted(events, key=lambda e: e.at_s), start=1):
        x = time.at(event.at_s / scale)
        colour = VERDICT[Verdict.FAIL] if event.proved is False else INK
        d.line(x, _TOP - 14, x, bottom, colour, weight=1, dash="4 2.5")
        d.rect(x - 7, 2, 14, 14, colour, radius=7, hover=t.find(f"event.{event.kind}", event.kind))
        d.text(x, 12.6, str(number), anchor="middle", colour="#ffffff", bold=True)
        d.line(x, 16, x, _TOP - 14, colour, weight=1)
