"""Facts and long runs: evidence that is removed, empty, no number or twice never passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kvgate.analyse.results import Analysis, Observed
from kvgate.contract import Clause, ErrorsClause, LimitClause
from kvgate.criterion import METRICS, Source
from kvgate.verdict import Verdict

from .builders import Chosen, cell, changed, clause, contract, history, judged, without
from .test_properties import PARTS as G3_PARTS
from .test_properties import emptied, evidence_of, set_to, twice

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

GATE2 = contract().gate(2).clause


def parts_of(terms: Clause) -> list[tuple[str, Chosen]]:
    """The blocks that a clause of G2 rests on, with a name for each part."""
    if isinstance(terms, LimitClause):
        assert terms.workload is not None
        return [(f"{terms.workload}@{n}", cell(terms.workload, n)) for n in terms.levels]
    if isinstance(terms, ErrorsClause):
        return [(arm, of_arm(arm)) for arm in terms.compare]
    return evidence_of(terms)


def of_arm(arm: str) -> Chosen:
    return lambda b: b.arm == arm


PARTS = [
    pytest.param(terms.id, chosen, id=f"{terms.id} {name}")
    for terms in GATE2
    for name, chosen in parts_of(terms)
]


def without_rate(analysis: Analysis, chosen: Chosen) -> Analysis:
    return changed(analysis, chosen, lambda b: replace(b, restore_bytes_per_s=None))


HARM: dict[str, Callable[[Analysis, Chosen], Analysis]] = {
    "removed": without,
    "emptied": lambda a, chosen: without_rate(emptied(a, chosen), chosen),
    "no number": lambda a, chosen: without_rate(set_to(math.nan)(a, chosen), chosen),
    "missing": lambda a, chosen: without_rate(set_to(None)(a, chosen), chosen),
    "duplicated": twice,
}


def test_every_clause_of_every_gate_is_harmed_by_some_test() -> None:
    """No clause of the contract is left out: those of G1 and G4 by their figures, those of G2 and
    G3 by their blocks."""
    harmed = {name for _, name, _ in CLAUSES} | {str(p.values[0]) for p in (*PARTS, *G3_PARTS)}
    terms = contract()
    assert harmed == {c.id for gate in terms.gates for c in terms.gate(gate).clause}


def test_the_noise_floor_gate_passes_where_it_is_measured() -> None:
    found = {c.clause: c.verdict for c in judged(history(pairs=5, gate=2), 2).clauses}
    assert set(found) == {c.id for c in GATE2}
    # Two of its clauses want the reference session, or more pairs than a test has time for.
    assert {"G2.1", "G2.2", "G2.4"} <= {n for n, v in found.items() if v is Verdict.PASS}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("name, chosen", PARTS)
def test_blocks_of_g2_that_are_harmed_never_pass(name: str, chosen: Chosen, harm: str) -> None:
    whole = history(pairs=5, gate=2)
    harmed = judged(HARM[harm](whole, chosen), 2)
    assert harmed.verdict is not Verdict.PASS
    # Failed requests are counted, whatever the times of the others say.
    counted = isinstance(next(c for c in GATE2 if c.id == name), ErrorsClause)
    if not (counted and harm in {"no number", "missing"}):
        assert clause(harmed, name).verdict is not Verdict.PASS
