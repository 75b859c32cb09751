"""Tables: capped with a word about it, absent values absent, everything in the CSV."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.analyse.checks import at_least as limit_kept
from kvgate.analyse.checks import at_most as limit_not_passed
from kvgate.report.svg import icon
from kvgate.report.system import install_command, missing_system_libraries
from kvgate.report.tables import block_rows, condition_rows, matrices
from kvgate.report.texts import texts
from kvgate.verdict import About, Verdict

from . import example


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


@pytest.mark.parametrize("found, limit, at_least, worst", [
    ([0.1, 0.9, 0.4], 1.0, False, "90.0\u00a0%"),
    ([0.1, 1.2, 3.0, 0.4], 1.0, False, "300.0\u00a0%"),
    ([0.9, 0.6, 1.0], 0.5, True, "60.0\u00a0%"),
    ([0.9, 0.4, 0.1], 0.5, True, "10.0\u00a0%"),
    ([0.5, None, 0.6], 0.5, True, "missing"),
    ([0.5, None, 0.1], 0.5, True, "10.0\u00a0%"),
])  # fmt: skip
def test_of_many_blocks_the_worst_value_is_shown(
    found: list[float | None], limit: float, at_least: bool, worst: str
) -> None:
    check = limit_kept if at_least else limit_not_passed
    conditions = [check("client_cpu", About.INSTRUMENT, f, limit, "1", "-") for f in found]
    source = example.gate3("pass").analysis
    blocks = [replace(source.blocks[0], n=i, conditions=(c,)) for i, c in enumerate(conditions)]
    (row,) = condition_rows(replace(source, blocks=tuple(blocks)), texts("en"))
    assert row.worst == worst


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
