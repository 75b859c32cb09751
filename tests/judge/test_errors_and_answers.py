"""Requests that fail and answers that are wrong: when they are held against the appliance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.analyse.agreement import differs
from kvgate.analyse.pairs import cell_pairs
from kvgate.analyse.results import BlockResult
from kvgate.cells import Cell
from kvgate.contract import AnswersClause, ErrorsClause
from kvgate.decide import judge
from kvgate.decide.answers import judge_answers, judge_errors
from kvgate.verdict import About, Decision, Verdict

from .builders import (
    PROBES,
    answer,
    breaking,
    cell,
    changed,
    clause,
    contract,
    everywhere,
    facts,
    failing,
    history,
    judged,
    judged_clause,
    of_appliance,
    paired,
    plan,
    statistics,
    with_wrong_answers,
)

# --- errors ----------------------------------------------------------------------------------


def test_errors_only_on_the_appliance_fail() -> None:
    verdict = judged(failing(history(), of_appliance, 2, "error_event"))
    found = clause(verdict, "G3.6")
    assert (found.verdict, found.reason.code) == (Verdict.FAIL, "appliance_errors")
    assert "error_event" in str(found.reason)
    assert verdict.decision is Decision.STOP_LOSS


def test_streams_truncated_in_both_arms_are_invalid() -> None:
    verdict = judged(failing(history(), paired, 2))
    assert verdict.verdict is Verdict.INVALID
    assert clause(verdict, "G3.6").reason.code == "errors_everywhere"


def test_a_reference_that_was_healthy_by_luck_does_not_convict_the_appliance() -> None:
    def unlucky(block: BlockResult) -> bool:
        lucky = cell("probe", role="reference")(block) and block.pair in {1, 3, 4}
        return paired(block) and not lucky

    found = judged_clause(failing(history(), unlucky, 2), "G3.6")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "errors_everywhere")


def test_a_reference_that_fails_alone_does_not_stop_a_good_appliance() -> None:
    def chosen(block: BlockResult) -> bool:
        return cell("cold_restore", 8, "reference")(block) and block.pair == 2

    found = judged_clause(failing(history(), chosen, 1), "G3.6")
    assert found.verdict is Verdict.PASS


def test_errors_in_too_few_pairs_to_compare_are_invalid() -> None:
    assert (
        judged_clause(failing(history(pairs=1), of_appliance, 2), "G3.6").verdict is Verdict.INVALID
    )


def test_a_clause_on_errors_needs_requests() -> None:
    def empty(block: BlockResult) -> BlockResult:
        nothing = statistics(block.cell.level, n_requests=0, n_ok=0)
        return replace(block, statistics=nothing)

    assert judged_clause(changed(history(), everywhere, empty), "G3.6").verdict is Verdict.INVALID


def test_errors_against_an_arm_that_only_the_reference_session_has_are_judged() -> None:
    assert judged_clause(history(gate=2, pairs=3), "G2.4").verdict is Verdict.PASS
    found = judged_clause(failing(history(gate=2, pairs=3), of_appliance, 1), "G2.4")
    assert found.verdict is Verdict.FAIL


# --- answers ---------------------------------------------------------------------------------


def errors_judged(failed: int, share_at_most: float) -> Verdict:
    """``failed`` requests of one appliance block of 48 among six pairs of level 8."""
    clause_ = next(c for c in contract().gate(3).clause if isinstance(c, ErrorsClause))
    good = history()
    one = next(b.n for b in good.blocks if of_appliance(b) and b.cell.level == 8)
    analysis = failing(good, lambda b: b.n == one, failed) if failed else good
    pairs = cell_pairs(analysis, Cell("cold_restore", 8)).pairs
    terms = clause_.model_copy(update={"share_at_most": share_at_most})
    return judge_errors(terms, pairs).verdict


@pytest.mark.parametrize("failed, share_at_most, verdict", [
    (0, 0.0, Verdict.PASS),
    (1, 0.0, Verdict.FAIL),
    (1, 0.01, Verdict.PASS),
    (4, 0.01, Verdict.INCONCLUSIVE),
    (12, 0.01, Verdict.FAIL),
])  # fmt: skip
def test_failures_fail_only_beyond_chance(
    failed: int, share_at_most: float, verdict: Verdict
) -> None:
    assert errors_judged(failed, share_at_most) is verdict


def test_row_37_wrong_answers_fail_and_have_no_retest() -> None:
    terms = contract()
    granting = terms.model_copy(
        update={"gate3": terms.gate(3).model_copy(update={"retests": 2})}
    )  # fmt: skip
    verdict = judge(granting, with_wrong_answers(history(), "appliance"), facts())
    found = clause(verdict, "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.FAIL, "wrong_answers")
    assert found.reason.params["count"] == 6 * PROBES
    assert verdict.decision is Decision.STOP_LOSS


def test_wrong_answers_of_the_reference_tier_are_not_the_appliances() -> None:
    assert judged(with_wrong_answers(history(), "baseline")).verdict is Verdict.PASS


def test_one_wrong_answer_is_enough_where_the_contract_allows_none() -> None:
    analysis = history()
    first = next(i for i, a in enumerate(analysis.answers) if a.arm == "appliance")
    answers = list(analysis.answers)
    answers[first] = answer(answers[first].block, "appliance", 0, word="z")
    found = judged_clause(replace(analysis, answers=tuple(answers)), "G3.5")
    assert (found.verdict, found.reason.params["count"]) == (Verdict.FAIL, 1)


def test_a_wrong_answer_counts_although_its_block_was_excluded() -> None:
    analysis = breaking(history(), of_appliance, "telemetry_coverage")
    found = judged_clause(with_wrong_answers(analysis, "appliance"), "G3.5")
    assert found.verdict is Verdict.FAIL


def test_an_answer_that_was_not_restored_says_nothing_of_the_appliance() -> None:
    analysis = breaking(history(), of_appliance, "declared_source")
    found = judged_clause(with_wrong_answers(analysis, "appliance"), "G3.5")
    assert found.verdict is Verdict.INVALID


def in_two_probe_blocks(block: BlockResult) -> bool:
    return cell("probe", role="test")(block) and block.pair in {0, 3}


def test_wrong_answers_hidden_in_blocks_that_restored_nothing_never_pass() -> None:
    good = history()
    hidden = {b.n for b in good.blocks if in_two_probe_blocks(b)}
    answers = tuple(
        answer(a.block, "appliance", int(a.prompt_digest[7:]), word="z") if a.block in hidden else a
        for a in good.answers
    )
    for name in ("declared_source", "engine_alive", "client_ran"):
        analysis = breaking(replace(good, answers=answers), in_two_probe_blocks, name)
        found = judged_clause(analysis, "G3.5")
        assert (found.verdict, found.reason.code) == (Verdict.INVALID, "wrong_answers_unclear")


def test_probe_blocks_that_the_appliance_spoiled_forbid_a_pass() -> None:
    analysis = breaking(
        history(), in_two_probe_blocks, "declared_source", about=About.APPLIANCE, ok=False
    )
    found = judged_clause(analysis, "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "probe_block_at_fault")


def test_an_answer_without_a_reference_forbids_a_pass() -> None:
    good = history()
    lost = next(a.prompt_digest for a in good.answers if a.arm == "recompute")
    answers = tuple(
        a for a in good.answers if not (a.arm == "recompute" and a.prompt_digest == lost)
    )
    found = judged_clause(replace(good, answers=answers), "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "answers_without_reference")


def test_row_41_an_engine_that_disagrees_with_itself_is_invalid_before_anything_is_said() -> None:
    analysis = with_wrong_answers(history(), "appliance")
    answers = tuple(
        answer(1, "recompute", int(a.prompt_digest[7:]), word="y") if a.block == 1 else a
        for a in analysis.answers
    )
    found = judged_clause(replace(analysis, answers=answers), "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "engine_disagrees_with_itself")


def test_an_engine_that_was_never_compared_with_itself_is_invalid() -> None:
    analysis = history()
    once = tuple(a for a in analysis.answers if a.block != 1)
    assert judged_clause(replace(analysis, answers=once), "G3.5").verdict is Verdict.INVALID
    # The same block's answers listed twice are no second opinion.
    twice = once + tuple(a for a in analysis.answers if a.block == 0)
    assert judged_clause(replace(analysis, answers=twice), "G3.5").verdict is Verdict.INVALID


def test_repeated_answers_do_not_make_up_for_missing_ones() -> None:
    analysis = history()
    few = [a for a in analysis.answers if a.arm == "recompute"]
    one = next(a for a in analysis.answers if a.arm == "appliance")
    copied = replace(analysis, answers=(*few, *([one] * 100)))
    found = judged_clause(copied, "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "few_answers")


@pytest.mark.parametrize("change, is_wrong", [
    ({"tokens": ("a", "b", "x")}, True),
    ({"tokens": ("a", "b")}, True),
    ({"tokens": ()}, True),
    ({"logprobs": (-0.1, -0.2, -0.34)}, False),
    ({"logprobs": (-0.1, -0.2, -0.36)}, True),
    ({"logprobs": (None, -0.2, -0.3)}, True),
])  # fmt: skip
def test_row_42_what_makes_an_answer_wrong(change: dict[str, object], is_wrong: bool) -> None:
    reference = answer(0, "recompute", 0)
    got = replace(answer(9, "appliance", 0), **change)  # type: ignore[arg-type]
    assert differs(reference, got, 0.05) is is_wrong


def test_tokens_may_part_only_where_the_reference_was_nearly_undecided() -> None:
    got = replace(answer(9, "appliance", 0), tokens=("a", "x", "y"))
    sure = answer(0, "recompute", 0)
    undecided = replace(sure, margins=(1.0, 0.04, 1.0))
    unknown = replace(sure, margins=(1.0, None, 1.0))
    assert differs(sure, got, 0.05)
    assert not differs(undecided, got, 0.05)
    assert differs(unknown, got, 0.05)


def test_right_answers_do_not_count_where_too_many_of_their_blocks_were_excluded() -> None:
    def chosen(block: BlockResult) -> bool:
        return cell("probe", role="test")(block) and block.pair in {0, 2, 4}

    analysis = breaking(history(), chosen, "telemetry_coverage")
    found = judged_clause(analysis, "G3.5")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "blocks_excluded")
    assert "50.0 % of the probe blocks of the appliance arm" in str(found.reason)


def test_right_answers_of_excluded_blocks_do_not_make_up_the_number() -> None:
    terms = contract()
    first, *rest = [c for c in terms.gate(3).clause if c.id == "G3.5"]
    wanting = first.model_copy(update={"min_answers": 6 * PROBES})
    assert rest == []

    def chosen(block: BlockResult) -> bool:
        return cell("probe", role="test")(block) and block.pair == 3

    assert isinstance(wanting, AnswersClause)
    assert judge_answers(wanting, history(), plan()).verdict is Verdict.PASS
    fewer = breaking(history(), chosen, "telemetry_coverage")
    assert judge_answers(wanting, fewer, plan()).verdict is Verdict.INVALID
