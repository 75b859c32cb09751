"""Tables: capped with a word about it, absent values absent, everything in the CSV."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd

from kvgate.report import blocks_csv
from kvgate.report.svg import icon
from kvgate.report.system import install_command, missing_system_libraries
from kvgate.report.tables import CAP, block_rows, condition_rows, matrices
from kvgate.report.texts import texts
from kvgate.verdict import Verdict

from . import example
from .conftest import html


def test_five_thousand_blocks_are_capped_and_said_so(tmp_path: Path) -> None:
    source = example.gate3("pass")
    one = source.analysis.blocks[0]
    many = tuple(replace(one, n=n, pair=n // 2) for n in range(1, 5001))
    broken = replace(one, n=5001, conditions=example.conditions(in_flight=example.NO_TELEMETRY))
    analysis = replace(source.analysis, blocks=(*many, broken))
    table = block_rows(analysis, texts("en"))
    assert (len(table.rows), table.total) == (CAP, 5001)
    assert table.rows[-1].n == "5001", "a broken block is never cut away"
    page = html([replace(source, analysis=analysis)], "en", tmp_path / "p.html")
    assert f"{CAP} of 5001 blocks are shown" in page
    assert "blocks.csv" in page
    assert len(pd.read_csv(io.BytesIO(blocks_csv(analysis)))) == 5001


def test_csv_keeps_text_as_text_and_absence_as_absence() -> None:
    source = example.gate3("pass")
    first, *rest = source.analysis.blocks
    stripped = replace(first.statistics, itl_p50_s=None, ttft_p99_s=float("nan"))
    blocks = (replace(first, statistics=stripped, pair=None), *rest)
    table = pd.read_csv(io.BytesIO(blocks_csv(replace(source.analysis, blocks=blocks))))
    assert table["itl_p50_s"].isna().tolist() == [True] + [False] * len(rest)
    assert pd.isna(table["ttft_p99_s"].iloc[0])
    assert pd.isna(table["pair"].iloc[0])
    assert table["arm"].isna().sum() == 0
    assert set(table["arm"]) == {"baseline", "appliance"}
    assert table["ttft_p50_s"].iloc[1] == rest[0].statistics.ttft_p50_s


def test_an_absent_statistic_is_a_dash_in_the_report() -> None:
    source = example.gate3("pass")
    first = source.analysis.blocks[0]
    bare = replace(first, statistics=example.block_statistics(n_requests=0, n_ok=0))
    row = block_rows(replace(source.analysis, blocks=(bare,)), texts("en")).rows[0]
    assert (row.ttft_p50, row.itl_p50, row.rate, row.in_flight) == ("–", "–", "–", "–")
    assert row.requests == "0/0"


def test_a_condition_that_could_not_be_read_counts_as_unknown_not_held() -> None:
    analysis = example.gate3("fail").analysis
    rows = {r.name: r for r in condition_rows(analysis, texts("en"))}
    row = rows["telemetry complete"]
    unread = sum(not b.valid for b in analysis.blocks)
    assert (row.broken, row.unknown, row.worst) == (0, unread, "missing")


def test_matrix_groups_hosts_and_marks_the_odd_one() -> None:
    ok = Verdict.PASS
    values = {"a": ("1", ok), "b": ("1", ok), "c": ("2", Verdict.FAIL)}
    rows = [("G1.1", "k", "= 1", values), ("G1.2", "m", "= 1", {"x": ("1", ok)})]
    first, second = matrices(["x", "a", "b", "c"], rows)
    assert (first.hosts, second.hosts) == (("x",), ("a", "b", "c"))
    assert [cell.differs for cell in second.rows[0].cells] == [False, False, True]


def test_each_verdict_has_a_shape_of_its_own() -> None:
    shapes = {icon(v, colour="#000000").split(">", 1)[1] for v in Verdict}
    assert len(shapes) == len(Verdict)


def test_missing_libraries_are_named_by_their_package() -> None:
    def loads(name: str, soname: str) -> bool:
        return "harfbuzz-subset" not in name and "pangoft2" not in name

    missing = missing_system_libraries(loads)
    assert missing == ["libpangoft2-1.0-0", "libharfbuzz-subset0"]
    assert install_command(missing) == "apt-get install -y libpangoft2-1.0-0 libharfbuzz-subset0"
