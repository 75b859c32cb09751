"""Faults that others met in reports and tables, by their row in the project's list of pitfalls."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pandas as pd

import kvgate
from kvgate.evidence.tables import REQUESTS_SCHEMA, read_requests, write_requests
from kvgate.record import Outcome, RequestRecord
from kvgate.report import ReportInput, blocks_csv
from kvgate.report.glyphs import covered
from kvgate.report.tables import CAP, block_rows
from kvgate.report.texts import texts

from . import example
from .conftest import Rendered, html, pdf


def test_row_104_chinese_text_is_in_the_pdf_and_every_glyph_is_in_its_fonts(tmp_path: Path) -> None:
    """Row 104: Chinese text absent in a PDF. The text is read back out of the file, and no
    character of it is one that the shipped fonts lack."""
    source = example.gate1()
    first, *rest = source.verdict.clauses
    title = "到货设备与订单一致，序列号、固件与合同相符"
    clauses = (replace(first, text={"en": title, "zh": title}), *rest)
    verdict = replace(source.verdict, clauses=clauses)
    text = "".join(
        Rendered(pdf([replace(source, verdict=verdict)], "zh", tmp_path / "t.pdf")).pages
    )
    assert title in text
    lacking = {c for c in text if ord(c) not in covered() and not c.isspace()}
    assert lacking == set()


def many_blocks(n: int) -> tuple[ReportInput, int]:
    """A gate with ``n`` blocks and one broken block behind them."""
    source = example.gate3("pass")
    one = source.analysis.blocks[0]
    many = tuple(replace(one, n=k, pair=k // 2) for k in range(1, n + 1))
    broken = replace(one, n=n + 1, conditions=example.conditions(in_flight=example.NO_TELEMETRY))
    analysis = replace(source.analysis, blocks=(*many, broken))
    return replace(source, analysis=analysis), n + 1


def test_row_106_five_thousand_rows_are_capped_and_all_of_them_are_in_the_csv(
    tmp_path: Path,
) -> None:
    """Row 106: a table of 5000 rows eats memory. Paper and page show CAP rows and say so; the
    broken one is among them; the CSV has every one."""
    source, total = many_blocks(5000)
    table = block_rows(source.analysis, texts("en"))
    assert (len(table.rows), table.total) == (CAP, total)
    assert table.rows[-1].n == str(total), "a broken block is never cut away"
    page = html([source], "en", tmp_path / "p.html")
    assert f"{CAP} of {total} blocks are shown" in page
    assert "blocks.csv" in page
    assert len(page) < 4_000_000
    paper = Rendered(pdf([source], "en", tmp_path / "p.pdf"))
    assert any(f"{CAP} of {total} blocks are shown" in text for text in paper.pages)
    assert len(paper.pages) < 25
    assert len(pd.read_csv(io.BytesIO(blocks_csv(source.analysis)))) == total


def test_row_108_text_columns_with_nothing_in_them_stay_text_and_nothing(tmp_path: Path) -> None:
    """Row 108: pandas gives text a type of its own, in which None becomes NaN. A missing text is
    missing, whatever its type is called, and a column of nothing is no column of numbers."""
    lines = tmp_path / "records.jsonl"
    record = RequestRecord(
        request_id="r1", load_host="load-1", prompt_digest="d", intended_ns=1, scheduled_ns=1,
        end_ns=9, outcome=Outcome.OK,
    )  # fmt: skip
    failed = msgspec.structs.replace(
        record, request_id="r2", outcome=Outcome.RESET, error="connection reset"
    )
    encode = msgspec.json.Encoder().encode
    lines.write_bytes(encode(record) + b"\n" + encode(failed) + b"\n")
    write_requests(lines, tmp_path / "requests.parquet")
    frame = read_requests(tmp_path / "requests.parquet")
    assert frame["error"].isna().tolist() == [True, False]
    assert frame["finish_reason"].isna().all()
    assert frame["error"].dropna().tolist() == ["connection reset"]
    assert (frame["outcome"] == Outcome.OK.value).tolist() == [True, False]
    assert list(frame.columns) == REQUESTS_SCHEMA.names


def test_row_108_the_csv_keeps_text_as_text_and_absence_as_absence() -> None:
    """Row 108, on the way out: an absent number is an empty field, never 0 and never "None"."""
    source = example.gate3("pass")
    first, *rest = source.analysis.blocks
    stripped = replace(first.statistics, itl_p50_s=None, ttft_p99_s=float("nan"))
    blocks = (replace(first, statistics=stripped, pair=None), *rest)
    written = blocks_csv(replace(source.analysis, blocks=blocks))
    table = pd.read_csv(io.BytesIO(written))
    assert table["itl_p50_s"].isna().tolist() == [True] + [False] * len(rest)
    assert pd.isna(table["ttft_p99_s"].iloc[0])
    assert pd.isna(table["pair"].iloc[0])
    assert table["arm"].isna().sum() == 0
    assert set(table["arm"]) == {"baseline", "appliance"}
    assert table["ttft_p50_s"].iloc[1] == rest[0].statistics.ttft_p50_s
    assert b"None" not in written


def test_row_108_no_code_asks_whether_a_column_is_an_object() -> None:
    """Row 108: ``dtype == object`` is false for text. Nothing of ours asks for it."""
    sources = Path(kvgate.__file__).parent.rglob("*.py")
    asking = ("dtype == object", "dtype is object", "is_object_dtype", "dtype('O')")
    found = [p.name for p in sources if any(words in p.read_text() for words in asking)]
    assert found == []
