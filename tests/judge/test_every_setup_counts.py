"""A clause passes in every setup of which it speaks: one not measured is no measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.cells import Setup, cells_of, of_clause
from kvgate.contract import AnswersClause, CompareClause, ErrorsClause, LimitClause, PairPlan
from kvgate.contract_tables import Parallelism, Text
from kvgate.decide.answers import judge_answers, judge_errors
from kvgate.decide.compare import judge_compare, look_plan
from kvgate.decide.ended import all_pairs
from kvgate.decide.judge import _measured
from kvgate.decide.limits import judge_limit
from kvgate.verdict import Verdict

from .builders import contract, history, plan

HALVES = Setup("halves")


def in_two_setups(pairs: PairPlan) -> PairPlan:
    both = {"parallelism": ("default", "halves")}
    return pairs.model_copy(
        update={
            key: tuple(line.model_copy(update=both) for line in getattr(pairs, key))
            for key in ("cells", "reference_cells")
        }
    )


TERMS = contract()
TWO = in_two_setups(plan())
TWO_TERMS = TERMS.model_copy(
    update={
        "parallelism": {"halves": Parallelism(text=Text(en="two", zh="两个"))},
        "gate3": TERMS.gate(3).model_copy(update={"pairs": TWO}),
    }
)


@pytest.fixture(scope="module")
def one_measured() -> Analysis:
    """A healthy gate in the plain setup; nothing of the other."""
    return history()


def test_a_comparison_without_the_other_setup_is_invalid(one_measured: Analysis) -> None:
    for clause in TERMS.gate(3).clause:
        if isinstance(clause, CompareClause):
            alone = judge_compare(TERMS, 3, clause, one_measured)
            both = judge_compare(TWO_TERMS, 3, clause, one_measured)
            assert (alone.verdict, both.verdict) == (Verdict.PASS, Verdict.INVALID)
            assert {f.where.partition("/")[2] for f in both.figures} == {"", "halves"}
            named = clause.model_copy(update={"parallelism": ("default",)})
            assert len(judge_compare(TWO_TERMS, 3, named, one_measured).figures) == len(
                clause.levels
            )


def test_answers_of_one_setup_say_nothing_of_the_other(one_measured: Analysis) -> None:
    clause = next(c for c in TERMS.gate(3).clause if isinstance(c, AnswersClause))
    found = judge_answers(clause, one_measured, TWO)
    assert [(f.where, f.verdict) for f in found.figures] == [
        ("probe", Verdict.PASS), ("probe/halves", Verdict.INVALID),
    ]  # fmt: skip
    assert found.verdict is Verdict.INVALID


def test_errors_need_healthy_pairs_in_each_setup(one_measured: Analysis) -> None:
    clause = next(c for c in TERMS.gate(3).clause if isinstance(c, ErrorsClause))
    pairs = all_pairs(TERMS, 3, one_measured)
    assert judge_errors(clause, pairs, (Setup(),)).verdict is Verdict.PASS
    both = judge_errors(clause, pairs, (Setup(), HALVES))
    assert (both.verdict, both.reason.code) == (Verdict.INVALID, "few_healthy_pairs_in")
    assert [both.reason.text(lang)[:9] for lang in ("en", "zh")] == ["halves: 0", "halves：参考"]
    moved = tuple(replace(p, reference=in_halves(p.reference, 0.0), test=in_halves(p.test, 0.0))
                  for p in pairs)  # fmt: skip
    other = judge_errors(clause, moved, (Setup(), HALVES))
    assert [other.reason.text(lang)[:4] for lang in ("en", "zh")] == ["the ", "默认部署"]


def test_a_limit_needs_blocks_of_each_setup(one_measured: Analysis) -> None:
    clause = LimitClause.model_validate({
        "id": "G3.9", "text": {"en": "x", "zh": "x"}, "metric": "throughput", "unit": "tok/s",
        "floor": 0.001, "arm": "appliance", "workload": "cold_restore", "levels": (8,),
    })  # fmt: skip
    assert judge_limit(clause, one_measured, plan()).verdict is Verdict.PASS
    both = judge_limit(clause, one_measured, TWO)
    assert [f.verdict for f in both.figures] == [Verdict.PASS, Verdict.INVALID]


def test_the_risk_of_a_failure_is_divided_over_every_cell() -> None:
    one, two = look_plan(TERMS, 3, plan()), look_plan(TWO_TERMS, 3, TWO)
    assert two.alpha_fail == pytest.approx(one.alpha_fail / 2)
    assert two.alpha_pass == one.alpha_pass
    clause = TERMS.gate(3).clause[0]
    assert len(of_clause(clause, cells_of(TWO.cells))) == 2 * len(
        of_clause(clause, cells_of(plan().cells))
    )


def in_halves(block: BlockResult, failed_share: float) -> BlockResult:
    """The block as if it were of the other setup; the tested arm fails there now and then."""
    told = block.statistics
    failed = round(told.n_requests * failed_share) if block.role == "test" else 0
    return replace(
        block,
        n=block.n + 10_000,
        session=block.session + 10_000,
        cell=replace(block.cell, parallelism="halves"),
        statistics=replace(
            told, n_ok=told.n_requests - failed, failed_by_outcome={"http_error": failed}
        ),
    )


def test_an_arm_that_fails_in_one_setup_does_not_hide_behind_the_other(
    one_measured: Analysis,
) -> None:
    clause = next(c for c in TERMS.gate(3).clause if isinstance(c, ErrorsClause))
    clause = clause.model_copy(update={"share_at_most": 0.01})
    for failed_share, verdict in ((0.0, Verdict.PASS), (0.018, Verdict.FAIL)):
        more = tuple(
            in_halves(b, failed_share if b.pair is not None else 0.0) for b in one_measured.blocks
        )
        both = replace(one_measured, blocks=(*one_measured.blocks, *more))
        pairs = all_pairs(TWO_TERMS, 3, both)
        failed = sum(p.test.statistics.n_requests - p.test.statistics.n_ok for p in pairs)
        assert failed / sum(p.test.statistics.n_requests for p in pairs) < 0.01  # together
        assert _measured(TWO_TERMS, 3, clause, both).verdict is verdict


def test_errors_against_the_reference_arm_need_each_setup_too(one_measured: Analysis) -> None:
    clause = ErrorsClause.model_validate({
        "id": "G3.9", "text": {"en": "x", "zh": "x"}, "metric": "failed_requests",
        "compare": ("recompute", "appliance"), "share_at_most": 0.0, "min_pairs": 3,
    })  # fmt: skip
    assert _measured(TERMS, 3, clause, one_measured).verdict is Verdict.PASS
    both = _measured(TWO_TERMS, 3, clause, one_measured)
    assert (both.verdict, both.reason.code) == (Verdict.INVALID, "few_healthy_pairs_in")
    # A reference that was healthy in another setup vouches for nothing in this one.
    moved = replace(
        one_measured,
        blocks=tuple(in_halves(b, 0.0) if b.arm == "recompute" else b for b in one_measured.blocks),
    )
    assert _measured(TERMS, 3, clause, moved).verdict is Verdict.INVALID


def test_answers_of_the_reference_arm_are_judged_in_its_own_setups(
    one_measured: Analysis,
) -> None:
    clause = next(c for c in TERMS.gate(3).clause if isinstance(c, AnswersClause))
    swapped = TWO.model_copy(
        update={
            "compare": ("recompute", "recompute"), "reference_arm": "appliance",
            "cells": plan().cells,
        }
    )  # fmt: skip
    found = judge_answers(clause, one_measured, swapped)
    assert [f.where for f in found.figures] == ["probe", "probe/halves"]
