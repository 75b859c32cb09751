"""The fonts inside the HTML twin: only the glyphs it uses, so that it reads the same everywhere."""

from __future__ import annotations

import base64
import io
import logging
from typing import Final

from fontTools import subset

from kvgate.report.assets import assets_dir
from kvgate.report.glyphs import FONTS

FONT_PLACE: Final = "/*fonts*/"
"""Where the template wants the font faces."""


def web_fonts(html: str) -> str:
    """``@font-face`` rules with the characters of ``html`` as WOFF2 data, in a fixed order."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    wanted = sorted({ord(char) for char in html})
    return "\n".join(_face(name, *FONTS[name], wanted) for name in FONTS)


def _face(name: str, family: str, weight: int, wanted: list[int]) -> str:
    options = subset.Options()
    options.flavor = "woff2"
    options.layout_features = []
    options.hinting = False
    options.recalc_timestamp = False
    font = subset.load_font(assets_dir() / "fonts" / name, options, lazy=True)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=wanted)
    subsetter.subset(font)
    font.flavor = "woff2"
    out = io.BytesIO()
    font.save(out)
    data = base64.b64encode(out.getvalue()).decode()
    source = f"url(data:font/woff2;base64,{data}) format('woff2')"
    return f'@font-face{{font-family:"{family}";font-weight:{weight};src:{source}}}'
