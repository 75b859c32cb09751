"""Rendering costs a second, so each report is rendered once and read by many tests."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from html import unescape
from pathlib import Path

import pypdf
import pytest

from kvgate.report import ReportInput, render_html, render_pdf

from . import example

CASES: dict[str, Callable[[], list[ReportInput]]] = {
    "pass": lambda: [example.gate3("pass")],
    "fail": lambda: [example.gate3("fail")],
    "inconclusive": lambda: [example.gate3("inconclusive")],
    "invalid": lambda: [example.gate3("invalid")],
    "g1": lambda: [example.gate1(failing=True, hosts=8)],
    "g2": lambda: [example.gate2()],
    "g4": lambda: [example.gate4(gap=True)],
    "campaign": lambda: [example.gate1(), example.gate4()],
    "engineering": lambda: [example.uncounted(example.gate1(), "engineering")],
}


class Rendered:
    """A PDF with its text; pages are read when asked for, once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._reader = pypdf.PdfReader(io.BytesIO(data))
        self._texts: dict[int, str] = {}

    def page(self, n: int) -> str:
        """Text of page ``n`` (from 0), white space squeezed."""
        if n not in self._texts:
            self._texts[n] = " ".join(self._reader.pages[n].extract_text().split())
        return self._texts[n]

    @property
    def pages(self) -> list[str]:
        return [self.page(n) for n in range(len(self._reader.pages))]


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Rendered]:
    """The PDF of a case in a language."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def render(case: str, lang: str) -> Rendered:
        return Rendered(pdf(CASES[case](), lang, folder / f"{case}-{lang}.pdf"))

    return render


def pdf(inputs: Sequence[ReportInput], lang: str, out: Path) -> bytes:
    return render_pdf(inputs, lang, out).read_bytes()


def html(inputs: Sequence[ReportInput], lang: str, out: Path) -> str:
    return render_html(inputs, lang, out).read_text(encoding="utf-8")


def html_text(inputs: Sequence[ReportInput], lang: str, out: Path) -> str:
    """What a reader of the HTML sees: tags and style sheets taken away, white space squeezed."""
    page = re.sub(r"<style>.*?</style>", "", html(inputs, lang, out), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
