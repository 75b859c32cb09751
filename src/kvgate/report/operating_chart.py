"""One clause's operating characteristic as a picture, with the campaign below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from kvgate.analyse.characteristic import Characteristic
from kvgate.numbers import percent, plain
from kvgate.report.charts import PAGE
from kvgate.report.glyphs import width
from kvgate.report.palette import INK, MET, MISSED, MUTED, PAPER, RULE, VERDICT, ZONE
from kvgate.report.svg import SMALL, Axis, Drawing
from kvgate.report.texts import Texts
from kvgate.verdict import Figure, Verdict

WIDTH: Final = PAGE / 2 - 19
_PLOT: Final = (36.0, 128.0)
_LANE: Final = 15.0


@dataclass(frozen=True, slots=True)
class Fallen:
    """Where the campaign fell at one level."""

    name: str
    figure: Figure


def characteristic_chart(
    curve: Sequence[tuple[float, Characteristic]],
    marks: Sequence[tuple[str, float]],
    fallen: Sequence[Fallen],
    say: Callable[[float], str],
    title: str,
    t: Texts,
) -> Markup:
    """``curve`` is (true effect, outcomes); ``marks`` are the upright lines by name; ``say`` writes
    an effect."""
    top, bottom = _PLOT
    d = Drawing(WIDTH, bottom + 34 + _LANE * len(fallen))
    left = max([34.0, *(width(f.name, SMALL) + 12 for f in fallen)])
    effects = [e for e, _ in curve]
    x = Axis(effects[0], effects[-1], left, WIDTH - 8, ticks=6, round_ends=False)
    y = Axis(0.0, 1.0, bottom, top, ticks=2, round_ends=False)
    _legend(d, t)
    _bands(d, x, y, curve)
    for share in (0.0, 0.5, 1.0):
        d.line(left - 3, y.at(share), left, y.at(share), MUTED, weight=0.7)
        d.text(
            left - 6, y.at(share) + 3.4, plain(100 * share, 0), anchor="end", colour=MUTED, size=8.5
        )
    _marks(d, x, marks, say, bottom + _LANE * len(fallen) + 22)
    _hovers(d, x, curve, say, t)
    for tick in x.ticks:
        d.line(x.at(tick), bottom, x.at(tick), bottom + 3, MUTED, weight=0.7)
        # The upright lines go through the row of labels: they give way to them.
        wide = width(say(tick), 8.5) + 3
        d.rect(x.at(tick) - wide / 2, bottom + 4, wide, 10, PAPER)
        d.text(x.at(tick), bottom + 12, say(tick), anchor="middle", colour=MUTED, size=8.5)
    for row, item in enumerate(fallen):
        _lane(d, x, bottom + 26 + row * _LANE, left, item, say)
    return d.markup(title)


def _legend(d: Drawing, t: Texts) -> None:
    at = 0.0
    for verdict, tint in (
        (Verdict.PASS, MET), (Verdict.INCONCLUSIVE, ZONE), (Verdict.FAIL, MISSED)
    ):  # fmt: skip
        name = t(f"verdict.{verdict.value}")
        d.rect(at, 2, 10, 9, tint)
        d.path([(at, 2), (at + 10, 2)], VERDICT[verdict], weight=1.6)
        d.text(at + 14, 10.4, name, colour=MUTED)
        at += 14 + width(name, SMALL) + 12
    d.text(WIDTH - 8, 10.4, t("oc.of100"), anchor="end", colour=MUTED)


def _bands(
    d: Drawing, x: Axis, y: Axis, curve: Sequence[tuple[float, Characteristic]]
) -> None:  # fmt: skip
    """PASS from below, FAIL from above, what stays open between them."""
    passes = [(x.at(e), y.at(c.p_pass)) for e, c in curve]
    fails = [(x.at(e), y.at(1.0 - c.p_fail)) for e, c in curve]
    ends = (x.at(curve[0][0]), x.at(curve[-1][0]))
    floor = [(ends[1], y.at(0.0)), (ends[0], y.at(0.0))]
    roof = [(ends[1], y.at(1.0)), (ends[0], y.at(1.0))]
    d.area([*passes, *floor], MET)
    d.area([*passes, *reversed(fails)], ZONE)
    d.area([*fails, *roof], MISSED)
    for share in (0.0, 0.5, 1.0):
        d.line(ends[0], y.at(share), ends[1], y.at(share), RULE, weight=0.6)
    d.path(passes, VERDICT[Verdict.PASS], weight=1.8)
    d.path(fails, VERDICT[Verdict.FAIL], weight=1.8, dash="5 2.5")


def _marks(
    d: Drawing, x: Axis, marks: Sequence[tuple[str, float]], say: Callable[[float], str],
    bottom: float,
) -> None:  # fmt: skip
    """Upright lines; a label gives way to the right where its neighbour is too near."""
    dashes = {"edge": "1.5 2.5", "threshold": None, "design": "5 3"}
    last = -1e9
    for name, value in sorted(marks, key=lambda m: m[1]):
        at = x.at(value)
        weight = 1.4 if name == "threshold" else 1.1
        d.line(at, _PLOT[0] - 4, at, bottom, INK, weight=weight, dash=dashes[name])
        label = say(value)
        place = max(at, last + width(label, 8.5) / 2 + 3)
        d.text(
            place, _PLOT[0] - 7, label, anchor="middle", size=8.5, colour=INK,
            bold=name == "threshold",
        )  # fmt: skip
        last = place + width(label, 8.5) / 2


def _hovers(
    d: Drawing, x: Axis, curve: Sequence[tuple[float, Characteristic]], say: Callable[[float], str],
    t: Texts,
) -> None:  # fmt: skip
    step = (x.end - x.start) / max(1, len(curve) - 1)
    for effect, c in curve[::2]:
        hover = t(
            "oc.hover", effect=say(round(effect, 3)), passes=plain(100 * c.p_pass, 0),
            open=plain(100 * c.p_inconclusive, 0), fails=plain(100 * c.p_fail, 0),
        )  # fmt: skip
        start, end = max(x.start, x.at(effect) - step), min(x.end, x.at(effect) + step)
        d.strip(start, _PLOT[0], end - start, _PLOT[1] - _PLOT[0], hover)


def _lane(
    d: Drawing, x: Axis, y: float, left: float, item: Fallen, say: Callable[[float], str]
) -> None:
    """One level: its interval and estimate; an arrow where either goes beyond the picture."""
    figure = item.figure
    colour = VERDICT[figure.verdict]
    d.text(left - 10, y + 3.4, item.name, anchor="end", colour=MUTED, size=SMALL - 0.5)
    d.line(x.start, y, x.end, y, RULE, weight=0.6)
    if not isinstance(figure.value, float):
        d.text((x.start + x.end) / 2, y + 3.4, "–", anchor="middle", colour=MUTED)
        return

    def inside(value: float) -> float:
        return min(max(x.at(min(max(value, x.low), x.high)), x.start), x.end)

    if figure.low is not None and figure.high is not None:
        a, b = inside(figure.low), inside(figure.high)
        d.rect(a, y - 2, max(b - a, 0.5), 4, colour, radius=1)
        if figure.low < x.low <= figure.value:
            _tip(d, x.start, y, -1, colour)
        if figure.high > x.high >= figure.value:
            _tip(d, x.end, y, 1, colour)
    at = inside(figure.value)
    hover = f"{item.name}: {percent(figure.value)}"
    if x.low <= figure.value <= x.high:
        d.marker(2, at, y, 4.2, colour, hover=hover)
        return
    way = 1 if figure.value > x.high else -1
    d.path(
        [(at, y), (at - 7 * way, y - 4.5), (at - 7 * way, y + 4.5)], colour, weight=1, fill=colour,
        closed=True, hover=hover,
    )  # fmt: skip
    label = say(round(figure.value, 3))
    anchor = "end" if way > 0 else "start"
    d.text(at - 11 * way, y - 4, label, anchor=anchor, size=8.5, colour=colour, bold=True)


def _tip(d: Drawing, x: float, y: float, way: int, colour: str) -> None:
    """The interval goes on beyond the picture."""
    corners = [(x + 6.0 * way, y), (x - 0.5 * way, y - 4.5), (x - 0.5 * way, y + 4.5)]
    d.path(corners, colour, weight=0.6, fill=colour, closed=True)
