"""Facts and long runs: evidence that is removed, empty, no number or twice never passes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvgate.analyse.results import Analysis, Observed
from kvgate.contract import LimitClause
from kvgate.criterion import METRICS, Source
from kvgate.verdict import Verdict

from .builders import cell, changed, clause, contract, history, judged, statistics, without

HOSTS = ("host-a", "host-b")


def kept(limit: LimitClause) -> float | str:
    """A value that keeps the limit."""
    return limit.limit if isinstance(limit.limit, str) else float(limit.limit)


def limits(gate: int, *sources: Source) -> Iterator[LimitClause]:
    for item in contract().gate(gate).clause:
        if isinstance(item, LimitClause) and METRICS[item.metric].source in sources:
            yield item


def evidence(gate: int) -> Analysis:
    """Every fact of every host, or every figure of a long run, as the contract wants it."""
    observed: dict[tuple[str, str], Observed] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for item in limits(gate, Source.FACT, Source.SOAK):
        groups[item.hosts or ""] = HOSTS
        for where in HOSTS if item.hosts else ("soak",):
            observed[item.metric, where] = Observed(item.metric, where, kept(item), item.unit)
    return Analysis((), (), tuple(observed.values()), (), (), groups, 1.0)


CLAUSES = [(g, c.id, c.metric) for g in (1, 4) for c in limits(g, Source.FACT, Source.SOAK)]


def of(analysis: Analysis, gate: int, name: str) -> Verdict:
    return clause(judged(analysis, gate), name).verdict


def test_the_facts_pass_as_they_are() -> None:
    assert {v for g, name, _ in CLAUSES for v in [of(evidence(g), g, name)]} == {Verdict.PASS}
    assert len(CLAUSES) > 12


@pytest.mark.parametrize("gate, name, metric", CLAUSES)
def test_a_value_that_is_missing_empty_or_no_number_never_passes(
    gate: int, name: str, metric: str
) -> None:
    whole = evidence(gate)
    mine = [o for o in whole.observed if o.metric == metric]
    others = tuple(o for o in whole.observed if o.metric != metric)
    for left_out in mine:
        rest = tuple(o for o in mine if o is not left_out)
        assert of(replace(whole, observed=(*others, *rest)), gate, name) is not Verdict.PASS
        for value in (None, math.nan, math.inf, -math.inf):
            broken = replace(left_out, value=value)
            harmed = replace(whole, observed=(*others, *rest, broken))
            assert of(harmed, gate, name) is not Verdict.PASS
        twice = replace(whole, observed=(*others, *mine, left_out))
        assert of(twice, gate, name) is not Verdict.PASS
    assert of(replace(whole, observed=()), gate, name) is not Verdict.PASS


@pytest.mark.parametrize("gate, name, metric", CLAUSES)
def test_a_value_of_another_kind_never_passes(gate: int, name: str, metric: str) -> None:
    def other(o: Observed) -> Observed:
        return replace(o, value=1.0 if isinstance(o.value, str) else str(o.value))

    whole = evidence(gate)
    swapped = tuple(other(o) if o.metric == metric else o for o in whole.observed)
    assert of(replace(whole, observed=swapped), gate, name) is not Verdict.PASS


@pytest.mark.parametrize("gate, name, metric", [c for c in CLAUSES if c[0] == 1])
def test_a_group_without_hosts_never_passes(gate: int, name: str, metric: str) -> None:
    assert of(replace(evidence(gate), expected_hosts={}), gate, name) is not Verdict.PASS


# --- G2: blocks against limits, and one arm against itself ------------------------------------

BLOCKS = [
    ("G2.1", "cold_restore", 1), ("G2.2", "cold_restore", 16), ("G2.3", "cold_restore", 16),
    ("G2.4", "cold_restore", None),
]  # fmt: skip


def test_the_noise_floor_gate_passes_where_it_is_measured() -> None:
    quiet = history(pairs=5, gate=2)
    found = {c.clause: c.verdict for c in judged(quiet, 2).clauses}
    assert {"G2.1", "G2.2", "G2.4"} <= {n for n, v in found.items() if v is Verdict.PASS}


@pytest.mark.parametrize("name, workload, level", BLOCKS)
def test_blocks_of_g2_that_are_gone_or_empty_never_pass(
    name: str, workload: str, level: int | None
) -> None:
    chosen = cell(workload, level)
    whole = history(pairs=5, gate=2)
    assert of(without(whole, chosen), 2, name) is not Verdict.PASS
    empty = changed(
        whole, chosen,
        lambda b: replace(b, statistics=statistics(b.cell.level, n_requests=0, n_ok=0),
                          restore_bytes_per_s=None),
    )  # fmt: skip
    assert of(empty, 2, name) is not Verdict.PASS
