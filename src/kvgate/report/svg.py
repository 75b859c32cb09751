"""Drawing: the handful of SVG shapes that the charts need, as text with the report's own fonts.

Written by hand rather than by a plotting library: the text stays text (selectable, checked for
glyphs), the bytes are the same everywhere, values can be read on hover, and a page of charts costs
milliseconds. Lengths are CSS pixels (96 an inch).
"""

from __future__ import annotations

import math
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from markupsafe import Markup

from kvgate.report.glyphs import visible, width
from kvgate.report.palette import INK, MUTED, PAPER, RULE, VERDICT
from kvgate.verdict import Verdict

FONT: Final = "'KV Latin','KV Han',sans-serif"
SMALL: Final = 10.0


def fmt(value: float) -> str:
    """A coordinate: two decimals are finer than any printer."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


class Drawing:
    """A picture of fixed size, filled from back to front."""

    def __init__(self, width_px: float, height_px: float) -> None:
        self.width = width_px
        self.height = height_px
        self._parts: list[str] = []

    def _add(self, tag: str, hover: str, **attributes: object) -> None:
        text = "".join(
            f' {key.rstrip("_").replace("_", "-")}="{fmt(v) if isinstance(v, float) else v}"'
            for key, v in attributes.items()
            if v is not None
        )
        if hover:
            self._parts.append(f"<{tag}{text}><title>{escape(visible(hover))}</title></{tag}>")
        else:
            self._parts.append(f"<{tag}{text}/>")

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str,
        *,
        hover: str = "",
        radius: float = 0,
    ) -> None:
        self._add(
            "rect", hover, x=float(x), y=float(y), width=float(w), height=float(h), fill=fill,
            rx=float(radius) if radius else None,
        )  # fmt: skip

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        stroke: str = RULE,
        *,
        weight: float = 1.0,
        dash: str | None = None,
    ) -> None:
        self._add(
            "line", "", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), stroke=stroke,
            stroke_width=float(weight), stroke_dasharray=dash,
        )  # fmt: skip

    def path(
        self,
        points: list[tuple[float, float]],
        stroke: str,
        *,
        weight: float = 1.5,
        fill: str = "none",
        closed: bool = False,
        dash: str | None = None,
        hover: str = "",
    ) -> None:
        if not points:
            return
        steps = "L".join(f"{fmt(x)},{fmt(y)}" for x, y in points)
        self._add(
            "path", hover, d=f"M{steps}{'Z' if closed else ''}", fill=fill, stroke=stroke,
            stroke_width=float(weight), stroke_linejoin="round", stroke_dasharray=dash,
        )  # fmt: skip

    def area(self, points: list[tuple[float, float]], fill: str) -> None:
        """A filled shape without an outline."""
        self.path(points, "none", weight=0, fill=fill, closed=True)

    def spot(self, x: float, y: float, r: float, hover: str) -> None:
        """An unseen place that says its value under the pointer."""
        self._add("circle", hover, cx=float(x), cy=float(y), r=float(r), fill=INK, fill_opacity="0")

    def strip(self, x: float, y: float, w: float, h: float, hover: str) -> None:
        """The same over a rectangle."""
        self._add(
            "rect", hover, x=float(x), y=float(y), width=float(w), height=float(h), fill=INK,
            fill_opacity="0",
        )  # fmt: skip

    def marker(
        self, shape: int, x: float, y: float, r: float, colour: str, *, hollow: bool = False,
        hover: str = "",
    ) -> None:  # fmt: skip
        """A point: circle, square, diamond or triangle by ``shape``; hollow where unused."""
        fill = PAPER if hollow else colour
        if shape % 4 == 0:
            self._add(
                "circle", hover, cx=float(x), cy=float(y), r=float(r), fill=fill, stroke=colour,
                stroke_width=1.2,
            )  # fmt: skip
            return
        corners = {
            1: [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
            2: [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
            3: [(0, -1.2), (1.1, 0.85), (-1.1, 0.85)],
        }[shape % 4]
        points = [(x + dx * r, y + dy * r) for dx, dy in corners]
        self.path(points, colour, weight=1.2, fill=fill, closed=True, hover=hover)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = SMALL,
        anchor: str = "start",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        shown = escape(visible(text, longest=120))
        weight = ' font-weight="700"' if bold else ""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(
            f'<text x="{fmt(x)}" y="{fmt(y)}" font-size="{fmt(size)}"{place} '
            f'fill="{colour}"{weight}>{shown}</text>'
        )

    def markup(self, label: str, css: str = "chart", *, box: float | None = None) -> Markup:
        """The finished picture; ``label`` is what a screen reader says; ``box`` scales a square."""
        size = f'width="{fmt(self.width)}" height="{fmt(self.height)}"'
        corner = f"{fmt(box or self.width)} {fmt(box or self.height)}"
        body = "".join(self._parts)
        alt = quoteattr(visible(label, longest=300))
        # The text in it has passed `visible` and `escape`.
        return Markup(  # noqa: S704
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{css}" role="img" aria-label={alt} '
            f'font-family="{FONT}" '
            f'{size} viewBox="0 0 {corner}">{body}</svg>'
        )


class Axis:
    """A linear scale with round ticks, from a data range to pixels."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, ticks: int = 5,
        round_ends: bool = True,
    ) -> None:  # fmt: skip
        if not high > low:
            low, high = low - 0.5, high + 0.5
        step = nice_step((high - low) / max(1, ticks))
        self.step = step
        self.low = math.floor(low / step + 1e-9) * step if round_ends else low
        self.high = math.ceil(high / step - 1e-9) * step if round_ends else high
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return [round(i * self.step, 12) for i in range(first, last + 1)]


class LogAxis(Axis):
    """A logarithmic scale with ticks at 1, 2 and 5 times powers of ten."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        super().__init__(low, high, start, end, round_ends=False)

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = [
            m * 10.0**k if k >= 0 else m / 10.0**-k
            for k in range(first, last + 1) for m in (1, 2, 5)
        ]  # fmt: skip
        inside = [v for v in every if self.low <= v <= self.high]
        # Whole decades only, once there are many of them.
        return inside if len(inside) <= 8 else [v for v in inside if f"{v:e}"[0] == "1"]


def nice_step(raw: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= raw * (1 - 1e-9))


def legend(
    drawing: Drawing, x: float, y: float, entries: list[tuple[int, str, str]], *, gap: float = 14
) -> None:
    """Entries (shape, colour, name) in one row from ``x``."""
    for shape, colour, name in entries:
        drawing.marker(shape, x + 4, y - 3.5, 3.6, colour)
        drawing.text(x + 12, y, name, colour=MUTED)
        x += 12 + width(visible(name, longest=120), SMALL) + gap


def line_legend(
    drawing: Drawing,
    x: float,
    y: float,
    entries: list[tuple[str | None, str, str]],
    *,
    gap: float = 14,
) -> None:
    """Entries (dash, colour, name) as short lines in one row from ``x``."""
    for dash, colour, name in entries:
        drawing.path([(x, y - 3.5), (x + 20, y - 3.5)], colour, weight=1.9, dash=dash)
        drawing.text(x + 26, y, name, colour=MUTED)
        x += 26 + width(visible(name, longest=120), SMALL) + gap


def icon(verdict: Verdict, size: float = 11.0, *, colour: str | None = None) -> Markup:
    """The shape of a verdict: tick in a disc, cross in an octagon, halves, empty square."""
    tint = colour or VERDICT[verdict]
    on = PAPER if colour is None else VERDICT[verdict]
    d = Drawing(20, 20)
    if verdict is Verdict.PASS:
        d.marker(0, 10, 10, 9, tint)
        d.path([(5.4, 10.4), (8.7, 13.7), (14.6, 6.8)], on, weight=2.4)
    elif verdict is Verdict.FAIL:
        octagon = [(6, 0.6), (14, 0.6), (19.4, 6), (19.4, 14), (14, 19.4), (6, 19.4), (0.6, 14),
                   (0.6, 6)]  # fmt: skip
        d.path(octagon, tint, weight=0.6, fill=tint, closed=True)
        d.path([(6.2, 6.2), (13.8, 13.8)], on, weight=2.6)
        d.path([(13.8, 6.2), (6.2, 13.8)], on, weight=2.6)
    elif verdict is Verdict.INCONCLUSIVE:
        d.path(
            [(10, 0.8), (19.2, 10), (10, 19.2), (0.8, 10)], tint, weight=1.6, fill=on, closed=True
        )
        d.path([(10, 0.8), (10, 19.2), (0.8, 10)], tint, weight=1.6, fill=tint, closed=True)
    else:
        d.path([(2, 2), (18, 2), (18, 18), (2, 18)], tint, weight=2.2, fill=on, closed=True)
        d.path([(2, 18), (18, 2)], tint, weight=2.2)
    d.width, d.height = size, size
    return d.markup(verdict.value, "icon", box=20)
