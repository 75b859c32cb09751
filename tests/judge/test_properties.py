"""What holds for every history: monotone, blind to order, and no PASS from less evidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.canonical import canonical_json
from kvgate.contract import AnswersClause, Clause, CompareClause, ErrorsClause
from kvgate.verdict import About, Verdict

from .builders import (
    NAMES,
    Chosen,
    Truth,
    breaking,
    cell,
    changed,
    clause,
    contract,
    everywhere,
    facts,
    history,
    judged,
    judged_clause,
    paired,
    statistics,
    without,
)

GATE3 = contract().gate(3).clause
RANK = [Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS]
EXAMPLES = settings(max_examples=10, deadline=None)
truths = st.builds(
    Truth,
    drop=st.floats(0.0, 0.5),
    gain=st.floats(0.0, 0.8),
    p99_rise=st.floats(-0.4, 0.3),
    itl_rise=st.floats(-0.2, 0.4),
    noise=st.sampled_from([0.005, 0.02, 0.06, 0.2]),
)


# --- monotone --------------------------------------------------------------------------------


def scaled(analysis: Analysis, better: float) -> Analysis:
    """The tested arm better by this factor in every figure."""

    def change(block: BlockResult) -> BlockResult:
        s = block.statistics
        assert s.ttft_p50_s and s.itl_p50_s and s.output_tok_per_s
        stats = replace(
            s,
            ttft_p50_s=s.ttft_p50_s / better,
            itl_p50_s=s.itl_p50_s / better,
            output_tok_per_s=s.output_tok_per_s * better,
        )
        return replace(block, statistics=stats)

    moved = changed(analysis, lambda b: b.role == "test", change)
    tested = {b.n for b in analysis.blocks if b.role == "test"}
    samples = {
        n: {k: v / better if n in tested else v for k, v in s.items()}
        for n, s in analysis.samples.items()
    }
    return replace(moved, samples=samples)


@EXAMPLES
@given(truth=truths, better=st.floats(1.0, 2.0), pairs=st.integers(4, 10))
def test_more_of_a_good_effect_never_turns_pass_into_fail(
    truth: Truth, better: float, pairs: int
) -> None:
    before = judged(history(truth, pairs=pairs))
    after = judged(scaled(history(truth, pairs=pairs), better))
    for was, now in zip(before.clauses, after.clauses, strict=True):
        assert RANK.index(now.verdict) >= RANK.index(was.verdict), was.clause


# --- blind to order --------------------------------------------------------------------------


@EXAMPLES
@given(truth=truths, seed=st.randoms(use_true_random=False))
def test_the_order_of_blocks_answers_and_facts_in_the_bundle_is_irrelevant(
    truth: Truth, seed: Any
) -> None:
    analysis = history(truth, pairs=5)
    blocks, answers = list(analysis.blocks), list(analysis.answers)
    seed.shuffle(blocks)
    # The first answer of a prompt is its reference, by block number.
    seed.shuffle(answers)
    samples = dict(seed.sample(list(analysis.samples.items()), len(analysis.samples)))
    mixed = replace(analysis, blocks=tuple(blocks), answers=tuple(answers), samples=samples)
    assert canonical_json(judged(mixed)) == canonical_json(judged(analysis))


# --- an invalid block never helps --------------------------------------------------------------


@EXAMPLES
@given(
    truth=truths,
    name=st.sampled_from(sorted(NAMES)),
    pairs=st.integers(4, 8),
    about=st.sampled_from([None, About.APPLIANCE]),
    ok=st.sampled_from([False, None]),
    role=st.sampled_from(["reference", "test"]),
)
def test_adding_an_invalid_block_never_helps(
    truth: Truth, name: str, pairs: int, about: About | None, ok: bool | None, role: str
) -> None:
    before = judged(history(truth, pairs=pairs))
    more = history(replace(truth, drop=0.6, gain=1.0), pairs=pairs + 1)
    first = len(history(truth, pairs=pairs).blocks)
    # The pairs before are as they were; the one that is added is splendid, and broken.
    kept = history(truth, pairs=pairs)
    added = replace(
        more,
        blocks=kept.blocks + more.blocks[first:],
        samples={**kept.samples, **{n: s for n, s in more.samples.items() if n >= first}},
        answers=kept.answers + tuple(a for a in more.answers if a.block >= first),
    )

    def chosen(block: BlockResult) -> bool:
        return block.n >= first and block.role == role

    after = judged(breaking(added, chosen, name, ok=ok, about=about))
    for was, now in zip(before.clauses, after.clauses, strict=True):
        if now.verdict is Verdict.PASS:
            assert was.verdict is Verdict.PASS, was.clause


@EXAMPLES
@given(truth=truths, number=st.integers(0, 30), name=st.sampled_from(sorted(NAMES)))
def test_breaking_a_block_never_turns_a_clause_into_pass_from_fail(
    truth: Truth, number: int, name: str
) -> None:
    analysis = history(truth, pairs=4)
    before = judged(analysis)
    after = judged(breaking(analysis, lambda b: b.n == number % len(analysis.blocks), name))
    for was, now in zip(before.clauses, after.clauses, strict=True):
        assert not (was.verdict is Verdict.FAIL and now.verdict is Verdict.PASS), was.clause


# --- never a PASS from less evidence ------------------------------------------------------------


def evidence_of(terms: Clause) -> list[tuple[str, Chosen]]:
    """The parts of the evidence that a clause rests on, with a name for each."""
    if isinstance(terms, CompareClause):
        return [
            (f"{terms.workload}@{level} {role}", cell(terms.workload, level, role))
            for level in terms.levels
            for role in ("reference", "test")
        ]
    if isinstance(terms, AnswersClause):
        return [
            ("tested answers", lambda b: b.arm == terms.arm and b.kind == "probe"),
            ("recomputed answers", lambda b: b.arm == terms.reference_arm and b.kind == "probe"),
        ]
    assert isinstance(terms, ErrorsClause)
    return [
        (role, lambda b, role=role: paired(b) and b.role == role)  # type: ignore[misc]
        for role in ("reference", "test")
    ]


PARTS = [
    pytest.param(terms.id, chosen, id=f"{terms.id} {name}")
    for terms in GATE3
    for name, chosen in evidence_of(terms)
]


def one(chosen: Chosen, pick: Callable[[list[int]], int] = min) -> Chosen:
    """Only the first (or last) of the chosen blocks of a healthy history."""
    number = pick([b.n for b in history().blocks if chosen(b)])
    return lambda b: b.n == number


def emptied(analysis: Analysis, chosen: Chosen) -> Analysis:
    """The tables are there and have no row."""

    def empty(block: BlockResult) -> BlockResult:
        stats = statistics(block.cell.level, n_requests=0, n_ok=0, unique_prompts=0)
        return replace(block, statistics=stats)

    gone = {b.n for b in analysis.blocks if chosen(b)}
    less = changed(analysis, chosen, empty)
    for name in ("requests_recorded", "responses_possible", "requests_finished"):
        less = breaking(less, chosen, name, ok=None)
    return replace(
        less,
        samples={
            n: {k: np.empty(0) for k in s} if n in gone else s for n, s in less.samples.items()
        },
        answers=tuple(a for a in less.answers if a.block not in gone),
    )


def set_to(number: float | None) -> Callable[[Analysis, Chosen], Analysis]:
    def change(analysis: Analysis, chosen: Chosen) -> Analysis:
        def blank(block: BlockResult) -> BlockResult:
            stats = replace(
                block.statistics, ttft_p50_s=number, ttft_p99_s=number, itl_p50_s=number,
                itl_p99_s=number, output_tok_per_s=number,
            )  # fmt: skip
            return replace(block, statistics=stats)

        hit = {b.n for b in analysis.blocks if chosen(b)}
        value = math.nan if number is None else number
        return replace(
            changed(analysis, chosen, blank),
            samples={
                n: {k: np.full(len(v), value) for k, v in s.items()} if n in hit else s
                for n, s in analysis.samples.items()
            },
            answers=tuple(
                replace(a, logprobs=(None,) * len(a.logprobs)) if a.block in hit else a
                for a in analysis.answers
            ),
        )

    return change


def duplicated(analysis: Analysis, chosen: Chosen) -> Analysis:
    """The chosen blocks a second time under new numbers, with everything that belongs to them."""
    copies: dict[int, int] = {}
    blocks = list(analysis.blocks)
    for block in analysis.blocks:
        if chosen(block):
            copies[block.n] = len(blocks)
            blocks.append(replace(block, n=len(blocks)))
    return replace(
        analysis,
        blocks=tuple(blocks),
        samples={**analysis.samples, **{new: analysis.samples[old] for old, new in copies.items()}},
        answers=analysis.answers
        + tuple(replace(a, block=copies[a.block]) for a in analysis.answers if a.block in copies),
    )


def twice(analysis: Analysis, chosen: Chosen) -> Analysis:
    """The same as it comes from disk: there, blocks are known by the stamps of their requests."""
    first = len(analysis.blocks)
    originals = [b.n for b in analysis.blocks if chosen(b)]
    copies = tuple((first + i, n) for i, n in enumerate(originals))
    return replace(duplicated(analysis, chosen), copied=copies)


@pytest.mark.parametrize("name, chosen", PARTS)
def test_removed_evidence_never_passes(name: str, chosen: Chosen) -> None:
    assert judged_clause(without(history(), chosen), name).verdict is not Verdict.PASS
    for pick in (min, max):
        less = without(history(), one(chosen, pick))
        hidden = pick is max and one(chosen, pick)(history().blocks[-1])
        # Only the last block of a run leaves no gap in the numbers; its pair is then incomplete.
        if not hidden:
            assert judged_clause(less, name).verdict is not Verdict.PASS


@pytest.mark.parametrize("name, chosen", PARTS)
def test_emptied_evidence_never_passes(name: str, chosen: Chosen) -> None:
    assert judged_clause(emptied(history(), chosen), name).verdict is not Verdict.PASS


@pytest.mark.parametrize("number", [math.nan, None])
@pytest.mark.parametrize("name, chosen", [
    p for p in PARTS if not isinstance(next(c for c in GATE3 if c.id == p.values[0]), ErrorsClause)
])  # fmt: skip
def test_evidence_without_numbers_never_passes(
    name: str, chosen: Chosen, number: float | None
) -> None:
    change = set_to(number)
    assert judged_clause(change(history(), chosen), name).verdict is not Verdict.PASS
    if name != "G3.5":  # one null answer of the engine itself tells nothing yet, or is a FAIL
        for pick in (min, max):
            less = change(history(), one(chosen, pick))
            assert judged_clause(less, name).verdict is not Verdict.PASS


@pytest.mark.parametrize("name, chosen", [
    p for p in PARTS if isinstance(next(c for c in GATE3 if c.id == p.values[0]), CompareClause)
])  # fmt: skip
def test_duplicated_evidence_never_passes(name: str, chosen: Chosen) -> None:
    assert judged_clause(duplicated(history(), chosen), name).verdict is Verdict.INVALID
    for pick in (min, max):
        more = duplicated(history(), one(chosen, pick))
        assert judged_clause(more, name).verdict is Verdict.INVALID


@pytest.mark.parametrize("name, chosen", PARTS)
def test_no_gate_passes_with_some_evidence_twice(name: str, chosen: Chosen) -> None:
    """Counting clauses too: a duplicate of any part spoils every clause of the gate."""
    found = judged(twice(history(), chosen))
    assert {c.verdict for c in found.clauses} == {Verdict.INVALID}


def test_a_bundle_with_every_block_twice_never_passes() -> None:
    assert judged(duplicated(history(), everywhere)).verdict is Verdict.INVALID


@pytest.mark.parametrize("value", [None, math.nan, 0.0, math.inf])
def test_a_tail_that_one_block_does_not_know_never_passes(value: float | None) -> None:
    analysis = history()
    n = next(b.n for b in analysis.blocks if b.pair == 1 and b.kind == "cold_restore")
    blocks = tuple(
        replace(b, statistics=replace(b.statistics, ttft_p99_s=value)) if b.n == n else b
        for b in analysis.blocks
    )
    found = judged_clause(replace(analysis, blocks=blocks), "G3.3")
    assert found.verdict is Verdict.INVALID


def test_a_gate_without_any_evidence_is_invalid_in_every_clause() -> None:
    nothing = Analysis((), (), (), (), (), {}, 1.0)
    for gate in contract().gates:
        verdict = judged(nothing, gate=gate)
        assert {c.verdict for c in verdict.clauses} == {Verdict.INVALID}
        canonical_json(verdict)


def test_every_clause_of_the_contract_has_a_verdict_even_when_none_was_selected() -> None:
    verdict = judged(history(), selected=())
    assert [c.clause for c in verdict.clauses] == [c.id for c in GATE3]
    assert {c.verdict for c in verdict.clauses} == {Verdict.INVALID}
    assert clause(verdict, "G3.1").reason.code == "not_selected"
    assert facts().selected == tuple(c.id for c in GATE3)
