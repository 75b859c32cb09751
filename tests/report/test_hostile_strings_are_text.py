"""What hosts say is shown, never obeyed and never lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure
from kvgate.report.glyphs import LONGEST, check_coverage, visible
from kvgate.report.inputs import ReportInput
from kvgate.verdict import WaiverShown

from . import example
from .conftest import Rendered, html, pdf

HTML = "<script>alert(1)</script><img src=http://198.51.100.7/x.png>"
BIDI = "abc\u202edcba\u2066x"
CONTROL = "bell\x07null\x00esc\x1b[31m"
EMOJI = "node \U0001f600 \U00020000"
LONG = "A" * 5000


def hostile() -> ReportInput:
    source = example.gate1()
    first, *rest = source.verdict.clauses
    figures = tuple(replace(f, where=HTML, value=BIDI) for f in first.figures)
    clauses = (replace(first, figures=figures, text={"en": HTML, "zh": HTML}), *rest)
    waiver = WaiverShown("G1.1", "buyer", CONTROL, HTML, LONG, "in force", used=False)
    campaign = f"{{{{ 7*7 }}}} {CONTROL}"
    verdict = replace(source.verdict, clauses=clauses, campaign=campaign, waivers=(waiver,))
    return replace(
        source,
        verdict=verdict,
        environment={"engine-1": {"kernel": LONG, HTML: EMOJI, "line": "one\ntwo"}},
        bundle=BIDI,
    )


def test_hostile_strings_appear_as_text_in_the_pdf(tmp_path: Path) -> None:
    text = "".join(" ".join(Rendered(pdf([hostile()], "en", tmp_path / "h.pdf")).pages).split())
    assert "<script>alert(1)</script>" in text
    assert "abc[U+202E]dcba[U+2066]x" in text
    assert "bell[U+0007]null[U+0000]esc[U+001B][31m" in text
    assert "node[U+1F600][U+20000]" in text
    assert "one[U+000A]two" in text
    assert "{{7*7}}" in text
    assert f"[+{5000 - LONGEST:,}characters,infullinverdict.json]" in text
    assert "A" * 60 in text


def test_hostile_strings_are_escaped_in_the_html(tmp_path: Path) -> None:
    page = html([hostile()], "zh", tmp_path / "h.html")
    assert "<script>" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\u202e" not in page
    assert "\x07" not in page
    assert "默认" not in page
    assert "另有 4,200 个字符" in page


def test_a_character_without_a_glyph_is_shown_by_its_code() -> None:
    assert visible("中\u9fd2") == "中[U+9FD2]"
    assert visible("plain 中文 −≥≤ ✓") == "plain 中文 −≥≤ ✓"
    assert visible("\ud800") == "[U+D800]"


def test_a_template_character_that_no_font_has_stops_the_report() -> None:
    with pytest.raises(CannotMeasure, match=r"lack 1 of its characters: U\+1F600"):
        check_coverage("<p>\U0001f600</p>")


def test_the_report_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    from weasyprint.urls import FatalURLFetchingError

    from kvgate.report.render import _fetcher

    for url in ("http://198.51.100.7/x", "file:///etc/passwd", "kvgate-asset:../../etc/passwd"):
        with pytest.raises(FatalURLFetchingError):
            _fetcher().fetch(url)
    page = html([example.gate3("pass")], "en", tmp_path / "p.html")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_nothing_reaches_beyond_the_printed_area() -> None:
    import weasyprint
    from weasyprint.formatting_structure.boxes import TextBox

    from kvgate.report.render import SCHEME, _fetcher, _html

    page = _html([hostile()], "zh", "pdf.html.j2")
    document = weasyprint.HTML(string=page, base_url=SCHEME, url_fetcher=_fetcher()).render()
    millimetre = 96 / 25.4
    for n, sheet in enumerate(document.pages, start=1):
        for box in sheet._page_box.descendants():
            if isinstance(box, TextBox):
                assert box.position_x + box.width <= (210 - 17) * millimetre, (n, box.text[:40])
