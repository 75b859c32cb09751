"""The timeline of a long run: windows, faults, gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from kvgate.analyse.results import Analysis, SoakEvent, SoakWindow
from kvgate.contract import SoakPlan
from kvgate.numbers import percent, trimmed
from kvgate.report.charts import PAGE
from kvgate.report.palette import FAINT, INK, MUTED, RULE, SERIES, VERDICT
from kvgate.report.svg import Axis, Drawing
from kvgate.report.texts import Texts
from kvgate.verdict import Verdict

_PANEL: Final = 74.0
_GAP: Final = 24.0
_LEFT: Final = 46.0
_TOP: Final = 44.0


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


def soak_chart(analysis: Analysis, plan: SoakPlan, t: Texts) -> Markup:
    """Four panels over one time axis in campaign time; empty without windows."""
    windows = sorted(analysis.windows, key=lambda w: w.start_s)
    if not windows:
        return Markup("")
    end = max(plan.duration_s, windows[-1].end_s, *(e.at_s for e in analysis.events), 0.0)
    hours = end > 7200
    scale = 3600.0 if hours else 60.0
    rows: list[tuple[str, Callable[[SoakWindow], float | None], Callable[[float], str]]] = [
        (t("soak.ttft"), lambda w: w.ttft_p50_s, trimmed),
        (t("soak.throughput"), lambda w: w.output_tok_per_s, trimmed),
        (
            t("soak.failed"),
            lambda w: w.n_failed / w.n_requests if w.n_requests else None,
            lambda v: percent(v, exact=True),
        ),
        (t("soak.memory"), lambda w: _gib(w.resident_bytes), trimmed),
    ]
    bottom = _TOP + len(rows) * (_PANEL + _GAP)
    d = Drawing(PAGE, bottom + 18)
    time = Axis(0.0, end / scale, _LEFT, PAGE - 8, ticks=9, round_ends=False)
    for row, (name, value, label) in enumerate(rows):
        top = _TOP + row * (_PANEL + _GAP)
        if plan.warmup_s:
            d.rect(_LEFT, top, time.at(plan.warmup_s / scale) - _LEFT, _PANEL, FAINT)
        for a, b in gaps(windows, plan.warmup_s, end):
            x = time.at(a / scale)
            d.rect(x, top, time.at(b / scale) - x, _PANEL, "#e4d9ea", hover=t("soak.gap"))
        _panel(d, time, scale, top, name, windows, value, label)
    for tick in time.ticks:
        d.line(time.at(tick), bottom - _GAP, time.at(tick), bottom - _GAP + 4, MUTED, weight=0.8)
        d.text(time.at(tick), bottom - _GAP + 15, trimmed(tick), anchor="middle", colour=MUTED)
    unit = t("soak.hours") if hours else t("soak.minutes")
    d.text(PAGE - 8, bottom + 14, unit, anchor="end", colour=MUTED)
    _events(d, time, scale, analysis.events, bottom - _GAP, t)
    return d.markup(t("soak.title"))


def _gib(value: float | None) -> float | None:
    return None if value is None else value / 2**30


def _panel(
    d: Drawing, time: Axis, scale: float, top: float, name: str, windows: Sequence[SoakWindow],
    value: Callable[[SoakWindow], float | None], label: Callable[[float], str],
) -> None:  # fmt: skip
    points = [(w, value(w)) for w in windows]
    known = [v for _, v in points if v is not None]
    axis = Axis(0.0, max([*known, 0.0]) * 1.1 or 0.01, top + _PANEL, top, ticks=3)
    d.text(_LEFT, top - 6, name, bold=True)
    for tick in axis.ticks:
        d.line(_LEFT, axis.at(tick), PAGE - 8, axis.at(tick), RULE, weight=0.6)
        d.text(_LEFT - 6, axis.at(tick) + 3.5, label(tick), anchor="end", colour=MUTED)
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
        run.append((time.at((window.start_s + window.end_s) / 2 / scale), axis.at(v)))
    d.path(run, SERIES[0])
    for window, v in points:
        if v is not None:
            x = time.at((window.start_s + window.end_s) / 2 / scale)
            hover = f"{name}, {trimmed(window.start_s / scale)}: {label(v)}"
            d.marker(0, x, axis.at(v), 2.0, SERIES[0], hover=hover)


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
