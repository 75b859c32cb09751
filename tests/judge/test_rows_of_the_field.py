"""Faults of statistics that people met in public with real tools, as small histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvgate.analyse.results import BlockResult
from kvgate.verdict import Decision, Verdict

from .builders import (
    GOOD,
    WOBBLE,
    cell,
    changed,
    history,
    judged,
    judged_clause,
    plan,
)


def test_row_80_each_cell_has_its_own_noise_and_a_noisy_one_is_not_passed_by_quiet_ones() -> None:
    """Repeats of one level spread by 20 %, those of the others by less than 1 %."""

    def noisy(block: BlockResult) -> BlockResult:
        pair = block.pair or 0
        assert block.statistics.ttft_p50_s is not None
        wild = block.statistics.ttft_p50_s * (1 + 0.4 * WOBBLE[pair % len(WOBBLE)])
        return replace(block, statistics=replace(block.statistics, ttft_p50_s=wild))

    analysis = changed(
        history(replace(GOOD, noise=0.005)), cell("cold_restore", 8, "test"), noisy
    )  # fmt: skip
    found = judged_clause(analysis, "G3.1")
    assert [f.verdict for f in found.figures] == [
        Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.PASS,
    ]  # fmt: skip
    assert found.verdict is Verdict.INCONCLUSIVE
    widths = [f.high - f.low for f in found.figures if f.high is not None and f.low is not None]
    assert widths[0] > 10 * max(widths[1:])


def test_row_80_one_run_gives_no_verdict_however_good_it_looks() -> None:
    verdict = judged(history(pairs=1))
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.RERUN)
    assert {c.verdict for c in verdict.clauses if c.form == "compare"} == {Verdict.INVALID}


def test_row_81_one_odd_run_neither_fails_nor_is_left_out_and_is_seen() -> None:
    """The p99 of a single run jumps fivefold, as right after a cold start."""
    odd = 2

    def jumped(block: BlockResult) -> Any:
        p99 = block.statistics.ttft_p99_s
        assert p99 is not None
        return replace(block, statistics=replace(block.statistics, ttft_p99_s=5 * p99))

    pairs = plan().max_pairs
    analysis = changed(
        history(pairs=pairs),
        lambda b: cell("cold_restore", 16, "test")(b) and b.pair == odd,
        jumped,
    )
    verdict = judged(analysis)
    tail = next(c for c in verdict.clauses if c.clause == "G3.3")
    figure = tail.figures[1]
    assert figure.verdict is not Verdict.FAIL
    assert figure.low is not None and figure.high is not None
    quiet = judged_clause(history(pairs=pairs), "G3.3").figures[1]
    assert quiet.high is not None and quiet.low is not None
    assert figure.high - figure.low > 3 * (quiet.high - quiet.low)
    assert verdict.exclusions == ()
    said = [f for f in verdict.findings if "G3.3 cold_restore@16" in str(f.params.get("where"))]
    assert "robust_disagrees" in [f.code for f in said]
