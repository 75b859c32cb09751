"""The operating characteristic as one drawing: an SVG, or an HTML page that holds it.

Drawn by hand, with shapes and dashes beside the colours, so that it reads in grey as well.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from kvgate.analyse.characteristic import Characteristic
from kvgate.commands.plan_words import gate_sentence, sentence
from kvgate.contract import CompareClause, Contract
from kvgate.errors import UsageError
from kvgate.planning import GatePlan, designed, zone_edge

Curve = Sequence[tuple[float, Characteristic]]

WIDTH: Final = 760
PLOT_HEIGHT: Final = 170
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 72, 42
PANEL: Final = TOP + PLOT_HEIGHT + BOTTOM
CHARACTERS: Final = 118
TEXT: Final = "#1c2530"
QUIET: Final = "#5c6773"
RULE: Final = "#cfd6dd"
SERIES: Final = (
    ("PASS", "#1a7f5a", ""),
    ("FAIL", "#b3342d", "7 4"),
    ("INCONCLUSIVE", "#8a6d1a", "2 3"),
)


def write_chart(path: Path, contract: Contract, plans: Sequence[GatePlan], source: str) -> None:
    """Write the chart of every planned gate and clause; the file's ending says SVG or HTML.

    Raises UsageError for another ending, OSError as writing does.
    """
    drawn = chart(contract, plans, source)
    if path.suffix == ".svg":
        path.write_text(drawn, encoding="utf-8")
    elif path.suffix in {".html", ".htm"}:
        title = escape(f"{contract.id}: operating characteristic")
        path.write_text(
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
            f'<body style="margin:24px;background:#fff">\n{drawn}</body></html>\n',
            encoding="utf-8",
        )
    else:
        raise UsageError(
            f"a chart is .svg or .html, not {path.suffix or 'without an ending'}",
            where=str(path),
            remedy="name it like plan.svg",
        )


def chart(contract: Contract, plans: Sequence[GatePlan], source: str) -> str:
    """The SVG: for each gate a panel of the whole gate, then one of each comparing clause."""
    panels: list[str] = []
    for plan in plans:
        title = f"G{plan.gate} as a whole, by the true effect of {plan.leading.id}"
        panels.append(_panel(title, gate_sentence(plan), plan.leading, plan.curve))
        for item in plan.clauses:
            curve = list(
                zip(item.effects, (p.characteristic for p in item.curve), strict=True)
            )  # fmt: skip
            title = f"{item.clause.id} alone: {item.clause.text.en}"
            panels.append(_panel(title, sentence(item), item.clause, curve))
    head = 88
    height = head + PANEL * len(panels) + 12
    body = [
        _text(LEFT, 26, f"Contract {contract.id}: what its own rule would decide", 17, bold=True),
        _text(LEFT, 45, f"digest {contract.digest}", 10.5, QUIET),
        *_wrapped(60, f"spread of a pair: {source}"),
    ]
    body += [f'<g transform="translate(0 {head + PANEL * i})">{p}</g>' for i, p in
             enumerate(panels)]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" font-family="IBM Plex Sans, Helvetica, Arial, sans-serif">'
        f"<title>Operating characteristic of {escape(contract.id)}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>' + "\n".join(body) + "</svg>\n"
    )


def _panel(title: str, says: str, clause: CompareClause, curve: Curve) -> str:
    first, last = curve[0][0], curve[-1][0]
    span = (last - first) or 1.0

    def x(effect: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (effect - first) / span

    def y(p: float) -> float:
        return TOP + PLOT_HEIGHT * (1.0 - p)

    parts = [_text(LEFT, 16, title, 13, bold=True), *_wrapped(33, says)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(LEFT, y(share), WIDTH - RIGHT, y(share), RULE))
        parts.append(_text(LEFT - 8, y(share) + 4, f"{100 * share:.0f}", 10.5, QUIET, "end"))
    for effect in _ticks(curve):
        parts.append(_line(x(effect), y(0), x(effect), y(0) + 4, QUIET))
        shown = f"{100 * effect:.0f} %"
        parts.append(_text(x(effect), y(0) + 17, shown, 10.5, QUIET, "middle"))
    for effect, word in _marks(clause):
        if first <= effect <= last:
            parts.append(_line(x(effect), y(1.0), x(effect), y(0), QUIET, "1 3"))
            parts.append(_text(x(effect), TOP - 5, word, 9.5, QUIET, "middle"))
    for name, colour, dash in SERIES:
        values = [(x(e), y(_share(name, c))) for e, c in curve]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in values)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
        )
    at, key = float(LEFT), TOP + PLOT_HEIGHT + 37.0
    for name, colour, dash in SERIES:
        parts.append(_line(at, key - 4, at + 26, key - 4, colour, dash))
        parts.append(_text(at + 32, key, name, 10.5))
        at += 130
    parts.append(
        _text(WIDTH - RIGHT, key, "campaigns of 100, by the true effect", 10.5,
              QUIET, "end")
    )  # fmt: skip
    return "".join(parts)


def _share(name: str, found: Characteristic) -> float:
    return {"PASS": found.p_pass, "FAIL": found.p_fail}.get(name, found.p_inconclusive)


def _marks(clause: CompareClause) -> tuple[tuple[float, str], ...]:
    """The three points that the contract names, nearest to the reader's words."""
    return (
        (zone_edge(clause), "indifference"),
        (clause.threshold, "threshold"),
        (designed(clause), "design effect"),
    )


def _ticks(curve: Curve) -> list[float]:
    """About eight of the curve's own points."""
    step = max(1, round(len(curve) / 8))
    return [effect for effect, _ in curve[::step]]


def _wrapped(y: float, text: str) -> list[str]:
    """A sentence on as many lines as it needs."""
    return [
        _text(LEFT, y + 14 * i, line, 11, QUIET)
        for i, line in enumerate(textwrap.wrap(text, CHARACTERS))
    ]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'
    )


def _text(
    x: float, y: float, text: str, size: float, colour: str = TEXT, anchor: str = "start", *,
    bold: bool = False,
) -> str:  # fmt: skip
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
