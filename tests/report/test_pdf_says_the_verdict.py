"""The PDF a buyer's board reads: decision, clauses, marks, both languages, the same bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pypdf
import pytest

from kvgate.canonical import canonical_json
from kvgate.errors import UsageError
from kvgate.report import render_pdf
from kvgate.verdict import Decision

from . import example
from .conftest import CASES, Rendered, html, html_text, pdf

Render = Callable[[str, str], Rendered]

DECISIONS = [
    ("pass", "PROCEED", "继续"),
    ("fail", "STOP-LOSS", "止损"),
    ("inconclusive", "EXTEND", "加测"),
    ("invalid", "RERUN", "重跑"),
]


@pytest.mark.parametrize(("case", "english", "chinese"), DECISIONS)
def test_page_one_says_the_decision_first(
    rendered: Render, case: str, english: str, chinese: str
) -> None:
    lang = "zh" if case in {"pass", "invalid"} else "en"
    front = rendered(case, lang).page(0)
    assert (chinese if lang == "zh" else english) in front
    for clause in example.contract().gate(3).clause:
        assert clause.id in front
    assert "rehearsal-2026-03" in front
    assert example.contract().digest[:16] in front


def test_stop_loss_says_clause_shortfall_certainty_and_consequence(rendered: Render) -> None:
    front = rendered("fail", "en").page(0)
    assert "Stop. The appliance does not meet G3.1, G3.2." in front
    assert "the contract requires a fall of at least 25 %. It falls short by" in front
    assert "percentage points" in front
    assert "Even the favourable end of the interval" in front
    assert "Gate 4 cannot open." in front
    assert "limits to 5 % the risk that a gate stops an appliance" in front


def test_thresholds_and_intervals_stand_beside_the_measured_value(rendered: Render) -> None:
    front = rendered("fail", "en").page(0)
    assert "≥ 25 %" in front
    assert "≥ +29 %" in front
    assert "≤ +10 %" in " ".join(rendered("fail", "en").pages)
    figure = example.gate3("fail").verdict.clauses[0].figures[0]
    assert isinstance(figure.value, float)
    assert f"falls {figure.value * 100:.1f} %" in front


def test_chinese_text_is_in_the_chinese_pdf(rendered: Render) -> None:
    text = " ".join(rendered("pass", "zh").pages)
    for words in ("各并发档 TTFT p50 降幅不低于 25 %", "有效性", "冷恢复", "证据包", "无差异区"):
        assert words in text
    assert "模拟供应商" in rendered("pass", "zh").page(0)


@pytest.mark.parametrize(
    ("case", "lang", "mark"),
    [
        ("fail", "en", "REHEARSAL – SIMULATED APPLIANCE – not acceptance evidence"),
        ("pass", "zh", "演练－模拟设备－不作为验收依据"),
        ("campaign", "en", "REHEARSAL – SIMULATED APPLIANCE – not acceptance evidence"),
        ("engineering", "en", "ENGINEERING RUN – out of order – does not count"),
    ],
)
def test_every_page_carries_its_mark(rendered: Render, case: str, lang: str, mark: str) -> None:
    pages = rendered(case, lang).pages
    assert len(pages) > 3
    for n, page in enumerate(pages, start=1):
        assert mark in page, f"page {n}"


def test_a_run_that_does_not_count_says_so_on_page_one(rendered: Render) -> None:
    front = rendered("engineering", "en").page(0)
    assert "DOES NOT COUNT" in front
    assert "PROCEED" not in front.split("Verdict of the gate")[0].split("This run")[0]


def test_an_acceptance_run_carries_no_mark(tmp_path: Path) -> None:
    source = example.gate1()
    real = replace(source, verdict=replace(source.verdict, rehearsal=False))
    text = html_text([real], "en", tmp_path / "real.html")
    assert "REHEARSAL" not in text
    assert "does not count" not in text


@pytest.mark.parametrize("case", ["g1", "g2", "g4", "campaign"])
def test_every_gate_shows_its_clauses(case: str, tmp_path: Path) -> None:
    text = html_text(CASES[case](), "en", tmp_path / "g.html")
    for source in CASES[case]():
        for clause in source.verdict.clauses:
            assert clause.clause in text
            assert clause.text["en"] in text


def test_host_matrix_names_every_host_and_its_value(tmp_path: Path) -> None:
    text = html_text(CASES["g1"](), "en", tmp_path / "g.html")
    for host in ("fx100-a", *(f"engine-{i}" for i in range(1, 9)), "load-1", "load-2"):
        assert host in text
    assert "sim-0.9" in text
    assert "no value" in text


def test_the_same_inputs_give_the_same_bytes(rendered: Render, tmp_path: Path) -> None:
    assert (
        pdf(CASES["engineering"](), "en", tmp_path / "again.pdf")
        == rendered("engineering", "en").data
    )


def test_only_the_shipped_fonts_are_in_the_pdf(rendered: Render) -> None:
    for lang in ("en", "zh"):
        reader = pypdf.PdfReader(
            io.BytesIO(rendered("fail" if lang == "en" else "pass", lang).data)
        )
        resources: list[Any] = [page["/Resources"] for page in reader.pages]
        fonts = {
            str(font.get_object()["/BaseFont"]).partition("+")[2]
            for resource in resources
            for font in resource["/Font"].values()
        }
        assert fonts
        assert all(font.startswith("KV-") for font in fonts), fonts


def test_the_verdict_is_attached_and_the_pdf_is_tagged_with_bookmarks(rendered: Render) -> None:
    reader = pypdf.PdfReader(io.BytesIO(rendered("fail", "en").data))
    attached = json.loads(reader.attachments["verdict.json"][0])
    assert attached == json.loads(canonical_json(example.gate3("fail").verdict))
    root: Any = reader.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert "pdfaid" in root["/Metadata"].get_object().get_data().decode()

    def titles(outline: Sequence[Any]) -> list[str]:
        rows: list[str] = []
        for entry in outline:
            rows += titles(entry) if isinstance(entry, list) else [str(entry["/Title"])]
        return rows

    names = titles(reader.outline)
    assert any("Validity" in name for name in names)
    assert any("Gate 3" in name for name in names)


def test_pages_are_numbered_of_their_count(rendered: Render) -> None:
    pages = rendered("fail", "en").pages
    for n, page in enumerate(pages, start=1):
        assert f"{n} of {len(pages)}" in page


def test_a_campaign_leads_with_the_first_gate_that_does_not_proceed(tmp_path: Path) -> None:
    inputs = [example.gate1(), example.gate3("fail"), example.gate4()]
    front = html_text(inputs, "en", tmp_path / "c.html")
    assert front.index("STOP-LOSS") < front.index("The campaign so far")
    assert "Stop. The appliance does not meet" in front


def test_unknown_language_and_no_input_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose en or zh"):
        render_pdf([example.gate1()], "fr", tmp_path / "x.pdf")
    with pytest.raises(UsageError, match="at least one"):
        render_pdf([], "en", tmp_path / "x.pdf")


def test_going_on_under_waiver_is_no_clean_pass(tmp_path: Path) -> None:
    source = example.gate3("fail")
    clauses = tuple(
        replace(c, waived_by=("buyer", "vendor")) if not c.accepted else c
        for c in source.verdict.clauses
    )
    verdict = replace(source.verdict, decision=Decision.PROCEED, clauses=clauses, stop=None)
    page = html([replace(source, verdict=verdict)], "en", tmp_path / "w.html")
    assert 'class="decision inconclusive"' in page
    text = html_text([replace(source, verdict=verdict)], "en", tmp_path / "w.html")
    assert "Proceed under waiver. G3.1, G3.2 stays unmet" in text
    assert "Every requirement of this gate is met" not in text
    assert "waived by Buyer, Vendor" in text


def test_a_stop_says_what_it_costs_what_it_saves_and_what_follows(rendered: Render) -> None:
    source = example.gate3("fail")
    stop, so_far = source.verdict.stop, source.verdict.spent
    assert stop is not None
    assert so_far is not None
    assert so_far.cost is not None
    assert stop.avoided.total is not None
    front = rendered("fail", "en").page(0)
    assert f"{so_far.cost:,.0f} {so_far.currency}" in front
    assert f"{stop.avoided.total:,.0f} {stop.avoided.currency}" in front
    assert stop.follows is not None
    assert " ".join(stop.follows["en"].split()[:6]) in front
    assert "with a certainty of at least" in front
    assert "Met: G3.3, G3.4, G3.5, G3.6" in front


def test_the_report_shows_where_the_campaign_fell_on_the_characteristic(rendered: Render) -> None:
    text = " ".join(rendered("fail", "en").pages)
    assert "Operating characteristic" in text
    assert "as measured here" in text
    assert "design effect, 30 %" in text
    assert "Requests by arm and level" in text
