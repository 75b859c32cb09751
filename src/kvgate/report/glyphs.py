"""No character vanishes: what the shipped fonts lack, or what hides, is shown as ``[U+0000]``.

Host names, serials, error messages come from machines that nobody vouches for. Control, format
(bidirectional) and unassigned characters are shown by their code, as is a character without a
glyph. What is longer than a cell can bear is cut with the number of characters that were cut.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from fontTools.ttLib import TTFont

from kvgate.errors import CannotMeasure
from kvgate.report.assets import assets_dir

FONTS: Final = {
    "IBMPlexSans-Regular.ttf": ("KV Latin", 400),
    "IBMPlexSans-SemiBold.ttf": ("KV Latin", 700),
    "IBMPlexMono-Regular.ttf": ("KV Mono", 400),
    "NotoSansSC-Regular.ttf": ("KV Han", 400),
    "NotoSansSC-Bold.ttf": ("KV Han", 700),
}
"""File, family in the style sheet, weight."""

LONGEST: Final = 800
"""Characters of one value that are printed; the rest is counted, not printed."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_CUT: Final = {
    "en": "[+{n} characters, in full in verdict.json]",
    "zh": "[另有 {n} 个字符，全文见 verdict.json]",
}


@lru_cache(maxsize=1)
def _cmaps() -> dict[str, dict[int, str]]:
    folder = assets_dir() / "fonts"
    maps = {}
    for name in FONTS:
        try:
            with TTFont(folder / name, lazy=True) as font:
                maps[name] = font.getBestCmap()
        except OSError as error:
            raise CannotMeasure(
                "a font of the report cannot be read", where=str(folder / name)
            ) from error
    return maps


@lru_cache(maxsize=1)
def covered() -> frozenset[int]:
    """Code points that text has a glyph for in the regular and in the bold weight."""
    maps = _cmaps()
    regular = maps["IBMPlexSans-Regular.ttf"].keys() | maps["NotoSansSC-Regular.ttf"].keys()
    bold = maps["IBMPlexSans-SemiBold.ttf"].keys() | maps["NotoSansSC-Bold.ttf"].keys()
    return frozenset(regular & bold)


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    if unicodedata.category(char) in _HIDDEN or ord(char) not in covered():
        return f"[U+{ord(char):04X}]"
    return char


def visible(text: str, lang: str = "en", *, longest: int = LONGEST) -> str:
    """``text`` with every character visible, cut after ``longest`` characters.

    The cut says how many characters it took away.
    """
    shown = "".join(map(_shown, text[:longest]))
    if len(text) > longest:
        shown += ELLIPSIS_CUT + _CUT[lang].format(n=f"{len(text) - longest:,}")
    return shown


ELLIPSIS_CUT: Final = "\u2026 "


def check_coverage(html: str) -> None:
    """Raise CannotMeasure naming the characters of a finished page that no shipped font has."""
    body = re.sub(r"<(style|script)\b[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    lacking = sorted({c for c in body if ord(c) not in covered() and c not in "\n\t"})
    if lacking:
        names = ", ".join(f"U+{ord(c):04X}" for c in lacking[:10])
        raise CannotMeasure(
            f"the report's fonts lack {len(lacking)} of its characters: {names}",
            where="reports/fonts",
            remedy="add them to the subset as reports/fonts/README.md says",
        )


@lru_cache(maxsize=1)
def _advances() -> tuple[dict[int, int], dict[int, int]]:
    folder = assets_dir() / "fonts"
    widths: list[dict[int, int]] = []
    for name in ("IBMPlexSans-Regular.ttf", "IBMPlexSans-SemiBold.ttf"):
        with TTFont(folder / name) as font:
            metrics = font["hmtx"].metrics
            scale = 1000 / font["head"].unitsPerEm
            cmap = font.getBestCmap()
            widths.append({c: round(metrics[g][0] * scale) for c, g in cmap.items()})
    return widths[0], widths[1]


def width(text: str, font_size: float, *, bold: bool = False) -> float:
    """Width of ``text`` in the unit of ``font_size``; characters of the Han font are square."""
    advances = _advances()[bold]
    return sum(advances.get(ord(c), 1000) for c in text) * font_size / 1000
