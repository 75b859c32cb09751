"""Each outcome of a gate, from a history written by hand, and which outcome hides which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.analyse.results import BlockResult
from kvgate.verdict import About, Decision, Verdict, worst

from .builders import (
    GOOD,
    Truth,
    breaking,
    cell,
    changed,
    clause,
    contract,
    failing,
    history,
    judged,
    judged_clause,
    of_appliance,
    paired,
    plan,
    with_wrong_answers,
)


def test_a_good_appliance_passes_every_clause() -> None:
    verdict = judged(history())
    assert {c.clause: c.verdict for c in verdict.clauses} == dict.fromkeys(
        ("G3.1", "G3.2", "G3.3", "G3.4", "G3.5", "G3.6", "G3.8"), Verdict.PASS
    )
    assert (verdict.verdict, verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    assert verdict.exit_code == 0
    assert (verdict.pairs_measured, verdict.blocks_measured) == (6, 62)
    assert verdict.exclusions == ()


def test_beside_each_estimate_stand_its_companion_and_what_pairs_should_not_show() -> None:
    """Hodges-Lehmann in the clause's own terms; drift and order as changes; lag-1 and spread."""
    verdict = judged(history(pairs=6))
    compared = [c for c in verdict.clauses if c.form == "compare"]
    assert len(compared) > 3
    for found in compared:
        for figure in found.figures:
            details = figure.details or {}
            assert set(details) >= {"robust", "sd_log", "lag1", "drift", "order"}, found.clause
            assert isinstance(figure.value, float)
            assert details["robust"] == pytest.approx(figure.value, abs=0.02), found.clause
            assert all(isinstance(details[k], float) for k in ("drift", "order", "lag1", "sd_log"))


def test_the_first_crossing_decides_at_the_fewest_pairs() -> None:
    figures = judged_clause(history(), "G3.1").figures
    assert [f.n for f in figures] == [plan().min_pairs] * 3
    assert figures[0].low is not None and figures[0].low > 0.25 - 0.03


def test_an_effect_below_the_threshold_fails_with_figure_threshold_and_bound() -> None:
    found = judged_clause(history(replace(GOOD, drop=0.10)), "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.FAIL, "below_threshold")
    assert found.reason.params["threshold"] == "25 %"
    assert str(found.reason.params["value"]).endswith(" %")
    assert 9.0 < float(str(found.reason.params["value"]).split()[0]) < 11.0


def test_one_level_below_the_threshold_fails_the_clause() -> None:
    def slow(block: BlockResult) -> BlockResult:
        factor = 0.95 * (1 + 0.001 * (block.pair or 0))
        stats = replace(block.statistics, ttft_p50_s=block.cell.level * factor)
        return replace(block, statistics=stats)

    analysis = changed(history(), cell("cold_restore", 16, "test"), slow)
    found = judged_clause(analysis, "G3.1")
    assert [f.verdict for f in found.figures] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    assert found.verdict is Verdict.FAIL


def test_noise_that_leaves_both_answers_open_is_inconclusive() -> None:
    verdict = judged(history(replace(GOOD, drop=0.26, noise=0.3)))
    found = clause(verdict, "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INCONCLUSIVE, "open")
    assert verdict.exit_code == 10


def test_a_good_interval_with_a_short_estimate_is_inconclusive() -> None:
    found = judged_clause(history(replace(GOOD, drop=0.243, noise=0.002)), "G3.1")
    # So sharp that even the favourable end misses the threshold: that is a FAIL.
    assert found.verdict is Verdict.FAIL
    found = judged_clause(history(replace(GOOD, drop=0.247, noise=0.01)), "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INCONCLUSIVE, "estimate_short")


@pytest.mark.parametrize("name, truth", [
    ("G3.2", replace(GOOD, gain=0.10)),
    ("G3.3", replace(GOOD, p99_rise=0.30)),
    ("G3.4", replace(GOOD, itl_rise=0.30)),
])  # fmt: skip
def test_each_comparing_clause_fails_on_its_own_figure(name: str, truth: Truth) -> None:
    verdict = judged(history(truth))
    assert [c.clause for c in verdict.clauses if c.verdict is Verdict.FAIL] == [name]
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)
    assert name in str(verdict.reason)


def test_above_the_band_passes_with_a_finding_to_investigate_the_baseline() -> None:
    verdict = judged(history(replace(GOOD, gain=0.60)))
    assert verdict.verdict is Verdict.PASS
    above = [f for f in verdict.findings if f.code == "above_band"]
    assert len(above) == 2  # one for each level of the clause
    assert "investigate the baseline" in str(above[0])


def test_within_the_band_there_is_no_such_finding() -> None:
    assert "above_band" not in {f.code for f in judged(history()).findings}


# --- validity first --------------------------------------------------------------------------


def test_too_few_pairs_are_invalid() -> None:
    found = judged_clause(history(pairs=plan().min_pairs - 1), "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "too_few_pairs")


def test_exclusions_beyond_the_contracts_share_are_invalid_and_named() -> None:
    def chosen(block: BlockResult) -> bool:
        return cell("cold_restore", 8, "reference")(block) and block.pair in {0, 1, 2}

    verdict = judged(breaking(history(pairs=8), chosen, "telemetry_coverage"))
    found = clause(verdict, "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "too_many_exclusions")
    assert found.reason.params["arm"] == "baseline"
    assert "telemetry_coverage" in str(found.reason)
    assert {e.condition.name for e in verdict.exclusions} == {"telemetry_coverage"}


def test_few_exclusions_cost_their_pairs_and_nothing_else() -> None:
    def chosen(block: BlockResult) -> bool:
        return cell("cold_restore", 8)(block) and block.pair == 1

    verdict = judged(breaking(history(pairs=7), chosen, "telemetry_coverage"))
    assert verdict.verdict is Verdict.PASS
    assert {(e.pair, e.cell) for e in verdict.exclusions} == {(1, "cold_restore@8")}


@pytest.mark.parametrize("value", [float("nan"), None, 0.0, -1.0, float("inf")])
def test_a_figure_that_is_no_number_is_invalid_at_any_pair(value: float | None) -> None:
    for pair in range(6):

        def broken(block: BlockResult) -> BlockResult:
            return replace(block, statistics=replace(block.statistics, ttft_p50_s=value))

        def chosen(block: BlockResult, pair: int = pair) -> bool:
            return cell("cold_restore", 16, "test")(block) and block.pair == pair

        found = judged_clause(changed(history(), chosen, broken), "G3.1")
        assert (found.verdict, found.reason.code) == (Verdict.INVALID, "not_a_number")


def test_copied_pairs_without_any_spread_are_invalid() -> None:
    found = judged_clause(history(replace(GOOD, noise=0.0)), "G3.1")
    assert found.verdict is Verdict.INVALID
    assert found.reason.params["cause"] == "zero_spread"


def test_a_warm_baseline_is_invalid() -> None:
    analysis = breaking(history(), cell("cold_restore", role="reference"), "engine_cache_cold")
    verdict = judged(analysis)
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.RERUN)
    assert "engine_cache_cold" in str(clause(verdict, "G3.1").reason)


def test_a_tier_that_was_never_asked_is_invalid_not_a_fail() -> None:
    # The cause is not told by the store's counters, so the condition speaks of the environment.
    verdict = judged(breaking(history(), of_appliance, "declared_source"))
    assert verdict.verdict is Verdict.INVALID
    assert Verdict.FAIL not in {c.verdict for c in verdict.clauses}


def test_a_store_that_was_asked_and_missed_fails() -> None:
    analysis = breaking(history(), of_appliance, "declared_source", about=About.APPLIANCE)
    verdict = judged(analysis)
    found = clause(verdict, "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.FAIL, "appliance_at_fault")
    assert verdict.decision is Decision.STOP_LOSS


def test_a_store_at_fault_beside_a_sick_reference_is_invalid() -> None:
    analysis = breaking(history(), of_appliance, "declared_source", about=About.APPLIANCE)
    analysis = breaking(analysis, lambda b: paired(b) and not of_appliance(b), "telemetry_coverage")
    assert judged_clause(analysis, "G3.1").verdict is Verdict.INVALID


def test_a_fault_of_which_nobody_knows_whether_it_was_one_is_invalid() -> None:
    analysis = breaking(history(), of_appliance, "declared_source", ok=None, about=About.APPLIANCE)
    assert judged_clause(analysis, "G3.1").verdict is Verdict.INVALID


def test_an_appliance_that_spoils_some_pairs_keeps_no_better_average() -> None:
    def chosen(block: BlockResult) -> bool:
        return cell("cold_restore", 8, "test")(block) and block.pair in {1, 4}

    analysis = breaking(history(pairs=6), chosen, "declared_source", about=About.APPLIANCE)
    found = judged_clause(analysis, "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "appliance_at_fault")


def test_an_engine_restart_is_invalid_even_with_errors() -> None:
    analysis = failing(history(), of_appliance, 2)
    analysis = breaking(analysis, of_appliance, "engine_alive")
    verdict = judged(analysis)
    assert verdict.verdict is Verdict.INVALID
    assert Verdict.FAIL not in {c.verdict for c in verdict.clauses}


def test_a_client_fault_is_never_held_against_the_appliance() -> None:
    verdict = judged(breaking(failing(history(), of_appliance, 2), of_appliance, "client_ran"))
    assert verdict.verdict is Verdict.INVALID
    assert Verdict.FAIL not in {c.verdict for c in verdict.clauses}


# --- one arm against itself ------------------------------------------------------------------


def test_an_effect_of_an_arm_against_itself_is_invalid_never_a_fail() -> None:
    found = judged_clause(history(gate=2, pairs=3), "G2.3")  # its "test" role is 33 % faster
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "effect_in_same_arm")


def test_no_effect_of_an_arm_against_itself_passes_and_gives_the_noise() -> None:
    verdict = judged(history(Truth(drop=0.0, gain=0.0, p99_rise=0.0), gate=2, pairs=3), gate=2)
    assert clause(verdict, "G2.3").verdict is Verdict.PASS
    assert "pair_noise" in {f.code for f in verdict.findings}


def test_a_noisy_floor_is_inconclusive() -> None:
    truth = Truth(drop=0.0, gain=0.0, p99_rise=0.0, noise=0.2)
    assert judged_clause(history(truth, gate=2, pairs=3), "G2.3").verdict is Verdict.INCONCLUSIVE


# --- dominance -------------------------------------------------------------------------------


def test_the_worst_verdict_wins_and_none_at_all_is_invalid() -> None:
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.FAIL]
    for i, low in enumerate(order):
        for high in order[i:]:
            assert worst([low, high]) is high
            assert worst([high, low]) is high
    assert worst([]) is Verdict.INVALID


def test_a_fail_is_not_hidden_by_an_invalid_clause() -> None:
    analysis = with_wrong_answers(history(), "appliance")
    analysis = breaking(analysis, cell("cold_restore", 8), "telemetry_coverage")
    verdict = judged(analysis)
    assert clause(verdict, "G3.1").verdict is Verdict.INVALID
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)


def test_an_invalid_clause_hides_an_inconclusive_one() -> None:
    analysis = history(replace(GOOD, drop=0.26, noise=0.3))
    verdict = judged(replace(analysis, answers=()))
    assert clause(verdict, "G3.1").verdict is Verdict.INCONCLUSIVE
    assert clause(verdict, "G3.5").verdict is Verdict.INVALID
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.RERUN)


def test_an_inconclusive_clause_hides_a_pass() -> None:
    verdict = judged(history(replace(GOOD, drop=0.26, noise=0.05)))
    assert verdict.verdict is Verdict.INCONCLUSIVE


def test_a_clause_that_was_not_selected_never_passes_but_its_fail_stays() -> None:
    chosen = tuple(c.id for c in contract().gate(3).clause if c.id != "G3.1")
    verdict = judged(history(), selected=chosen)
    found = clause(verdict, "G3.1")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "not_selected")
    assert verdict.verdict is Verdict.INVALID
    failed = clause(judged(history(replace(GOOD, drop=0.1)), selected=chosen), "G3.1")
    assert (failed.verdict, failed.reason.code) == (Verdict.FAIL, "below_threshold")


def test_a_rehearsal_contract_marks_the_verdict_whatever_the_campaign_says() -> None:
    assert judged(history(), rehearsal=False).rehearsal
