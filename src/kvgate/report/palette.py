"""The few colours of a report, told apart by people who do not see red and green.

A verdict is never told by colour alone: it has a word and a shape as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvgate.verdict import Verdict

INK: Final = "#18222f"
MUTED: Final = "#5a6675"
RULE: Final = "#d3d9e1"
FAINT: Final = "#eef1f5"
PAPER: Final = "#ffffff"
MET: Final = "#e3f0ef"
ZONE: Final = "#f5ead6"
MISSED: Final = "#f6e0d9"
GAP: Final = "#e4d9ea"

VERDICT: Final[Mapping[Verdict, str]] = {
    Verdict.PASS: "#0b6e6e",
    Verdict.FAIL: "#b5371a",
    Verdict.INCONCLUSIVE: "#96640a",
    Verdict.INVALID: "#56617a",
}

SERIES: Final = ("#1f5fa8", "#c77a1c", "#7a8594", "#7d4f92", "#3c8d63")
"""Series in order; the contract's arms take them from the tested arm backwards."""

SCREEN_NAMES: Final[Mapping[str, str]] = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    MET: "var(--met)",
    ZONE: "var(--zone)",
    MISSED: "var(--missed)",
    VERDICT[Verdict.PASS]: "var(--pass)",
    VERDICT[Verdict.FAIL]: "var(--fail)",
    VERDICT[Verdict.INCONCLUSIVE]: "var(--inconclusive)",
    VERDICT[Verdict.INVALID]: "var(--invalid)",
    SERIES[0]: "var(--series-1)",
    SERIES[1]: "var(--series-2)",
    SERIES[2]: "var(--series-3)",
    SERIES[3]: "var(--series-4)",
    SERIES[4]: "var(--series-5)",
    GAP: "var(--gap)",
}
"""Colours that follow the reader's light or dark setting on a screen."""


def for_screen(svg: str) -> str:
    """``svg`` with its colours as CSS variables, so that dark mode reaches the charts."""
    svg = str(svg)  # a Markup would escape what is put in
    for colour, name in SCREEN_NAMES.items():
        svg = svg.replace(f'="{colour}"', f'="{name}"')
    return svg


_UNSEEN: Final = re.compile(
    r'<(circle|rect)\b[^<>]* fill-opacity="0"[^<>]*(?:/>|><title>[^<]*</title></\1>)'
)
_HOVER: Final = re.compile(r"<title>[^<]*</title>")


def for_paper(svg: str) -> str:
    """``svg`` without what only a pointer finds: paper has none, and it costs time and bytes."""
    return _HOVER.sub("", _UNSEEN.sub("", str(svg)))
