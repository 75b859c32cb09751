"""A long run: where its tokens came from, what is a fault of ours, what injected faults explain.

Each test changes one thing of a quiet run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kvgate.analyse.assemble import RawBlock, assemble
from kvgate.analyse.soak.windows import worst_share
from kvgate.errors import CannotMeasure
from kvgate.record import Outcome
from kvgate.verdict import Decision, Verdict

from .builders import clause, contract, judged
from .soak_story import (
    END,
    EXTERNAL,
    FAULT,
    LATE,
    READ,
    STORE,
    TTFT_S,
    Story,
    W,
    reference_rows,
    table,
)

PASS, FAIL, INVALID = Verdict.PASS, Verdict.FAIL, Verdict.INVALID


def test_a_quiet_run_passes_every_clause() -> None:
    assert set(Story().verdicts().values()) == {PASS}


# --- was the appliance used at all? --------------------------------------------------------------


def test_a_tier_that_never_restores_passes_nothing_and_is_nobodys_fault() -> None:
    """The engine never asked: no external token, no byte, no lookup."""
    story = Story().lost(0, END, EXTERNAL, READ, *STORE)
    found = story.verdicts()
    assert FAIL not in found.values()
    assert found["soak_restored_share"] is INVALID
    assert found["soak_ttft_drift"] is INVALID
    assert story.broken() == {"declared_source"}
    assert judged(story.analysis(), gate=4).decision is Decision.RERUN


def test_one_window_in_which_the_store_was_not_asked_spoils_the_run() -> None:
    story = Story().lost(LATE, LATE + W, EXTERNAL, READ, *STORE)
    assert story.broken() == {"declared_source"}
    assert story.verdicts()["soak_restored_share"] is INVALID


def test_a_store_that_was_asked_and_lost_what_it_acknowledged_fails() -> None:
    story = Story().lost(LATE, LATE + W, EXTERNAL, READ, "store-appliance/hit_tokens")
    assert story.verdicts()["soak_restored_share"] is FAIL
    assert PASS not in {v for m, v in story.verdicts().items() if m == "soak_ttft_drift"}


def test_a_store_that_never_acknowledged_is_not_to_blame_for_misses() -> None:
    story = Story().lost(LATE, LATE + W, EXTERNAL, READ, "store-appliance/hit_tokens")
    story.told(primed_tokens=None)
    assert story.verdicts()["soak_restored_share"] is INVALID


def test_what_is_recomputed_while_a_fault_heals_is_excused() -> None:
    story = Story().lost(FAULT, FAULT + 40, EXTERNAL, READ, *STORE)
    assert story.broken() == set()
    assert set(story.verdicts().values()) == {PASS}


def test_an_engine_cache_that_answers_is_found_in_its_window() -> None:
    story = Story()
    warm = story.within(LATE, LATE + W) * 2048.0 * 0.03
    story.counts["engine/prompt_tokens_engine_cache"] += warm
    assert story.broken() == {"engine_cache_cold"}
    assert PASS not in {story.verdicts()[m] for m in ("soak_ttft_drift", "soak_restored_share")}


@pytest.mark.parametrize(
    "counter", ["engine/prompt_tokens_dram", "store-appliance/hit_tokens_dram"]
)
def test_a_dram_tier_that_answers_is_not_the_appliance(counter: str) -> None:
    story = Story()
    story.counts[counter] = story.within(LATE, LATE + W) * 2048.0 * 0.5
    assert story.broken() == {"dram_tier_cold"}


@pytest.mark.parametrize(("factor", "name"), [(0.5, "bytes_read"), (1.5, "bytes_not_too_many")])
def test_bytes_that_were_read_must_fit_what_was_restored(factor: float, name: str) -> None:
    story = Story()
    story.counts[READ][story.within(LATE, LATE + W)] *= factor
    assert story.broken() == {name}
    story = Story()
    del story.counts[READ]
    assert story.told(moved={"bytes": None}).broken() >= {"bytes_read"}


def test_a_pool_that_fits_the_engines_own_tiers_is_no_cold_pool() -> None:
    story = Story().told(prompts={"pool": "p", "first": 0, "count": 60})
    assert story.broken() == {"pool_beyond_tiers"}
    assert PASS not in {story.verdicts()["soak_ttft_drift"]}


def test_more_bytes_than_the_link_carries_are_impossible() -> None:
    story = Story()
    for name in story.counts:
        story.counts[name] *= 10
    assert "store_rate_possible" in story.broken()


def test_a_load_host_that_was_not_tried_or_cannot_hold_the_level_spoils_the_run() -> None:
    story = Story()
    story.block["calibration"]["attempts"][0]["held"] = 1.0
    assert story.broken() == {"client_holds_level"}
    del story.block["calibration"]
    assert story.broken() == {"client_holds_level"}


@pytest.mark.parametrize(
    ("key", "to", "name"),
    [
        ("loop_stall_p99_ns", 3e9, "client_stall"),
        ("cpu_s", 1.0, "client_cpu"),
        ("mean_in_flight", 2.0, "in_flight"),
        ("clock_offset_end_ns", 9e9, "clock_step"),
    ],
)
def test_a_load_host_that_was_not_up_to_it_spoils_the_run(key: str, to: float, name: str) -> None:
    story = Story()
    story.block["client"][key] = to
    assert story.broken() == {name}
    assert FAIL not in story.slow(LATE, END, 3.0).verdicts().values()


# --- drift ---------------------------------------------------------------------------------------


def test_a_slow_end_fails_however_short() -> None:
    """A tenth of the run at ten times the TTFT: the slope alone does not see it."""
    for part in (0.03, 0.1, 0.25):
        story = Story().slow(END * (1 - part), END, 10.0)
        assert FAIL in story.verdicts().values(), part


def test_a_drift_of_the_first_token_fails() -> None:
    story = Story()
    rise = TTFT_S * (1 + 0.3 * story.sent_s / END)
    story.frame = table(story.sent_s, rise)
    assert story.verdicts()["soak_ttft_drift"] is FAIL
    assert story.verdicts()["soak_worst_window"] is PASS


def test_one_bad_window_in_the_middle_is_the_worst_window() -> None:
    found = Story().slow(LATE, LATE + W, 3.0).verdicts()
    assert (found["soak_worst_window"], found["soak_ttft_drift"]) == (FAIL, PASS)


def test_a_throughput_that_falls_fails() -> None:
    story = Story()
    story.frame["output_tokens"] = pd.array(
        np.round(64 * (1 - 0.2 * story.sent_s / END)).astype(int), dtype="Int64"
    )
    found = story.verdicts()
    assert (found["soak_throughput_drift"], found["soak_ttft_drift"]) == (FAIL, PASS)


def test_what_the_arm_without_a_store_shows_too_is_not_the_appliances_drift() -> None:
    story = Story()
    story.frame = table(story.sent_s, TTFT_S * (1 + 0.3 * story.sent_s / END))
    after = reference_rows(END + 600)
    late = pd.array([20_000_000] * len(after), dtype="Int64")
    for column in ("first_byte_ns", "first_token_ns", "first_text_ns", "last_token_ns", "end_ns"):
        after[column] = after[column] + late
    after["token_ns"] = [[t + 20_000_000 for t in stamps] for stamps in after["token_ns"]]
    story.references[1] = after
    assert story.verdicts()["soak_ttft_drift"] is INVALID


def test_memory_that_grows_fails_and_memory_that_nobody_saw_is_invalid() -> None:
    story = Story()
    story.resident = story.resident * np.linspace(1, 1.5, len(story.resident))
    assert story.verdicts()["soak_memory_slope"] is FAIL
    story.resident = story.resident[:0]
    assert story.verdicts()["soak_memory_slope"] is INVALID


# --- errors --------------------------------------------------------------------------------------


def test_failed_requests_fail_the_run() -> None:
    assert Story().fail(LATE, END, every=10).verdicts()["soak_error_share"] is FAIL


def test_windows_slide_so_that_a_burst_on_an_edge_is_seen_whole() -> None:
    """A thousand requests a window; six failures before an edge and six behind it."""
    ended, failed = np.arange(0.5, 4000), np.zeros(4000)
    failed[1994:2006] = 1
    tumbling = max(failed[k : k + 1000].mean() for k in range(0, 4000, 1000))
    assert tumbling == pytest.approx(0.006)
    assert worst_share(ended, failed, 1000.0, 4000.0) == pytest.approx(0.012)
    # The last stretch is no whole window and is looked at all the same.
    last = np.where(np.arange(4000) >= 3700, 1.0, 0.0)
    assert worst_share(ended[:3800], last[:3800], 1000.0, 3800.0) == pytest.approx(0.1)


def test_requests_that_end_after_the_planned_time_count() -> None:
    """Streams that hang at the end time out behind it."""
    story = Story()
    last = story.frame.index[-8:]
    story.frame.loc[last, "outcome"] = "timeout"
    story.frame.loc[last, "end_ns"] = round((END + 60) * 1e9)
    assert story.verdicts()["soak_error_share"] is FAIL


def test_a_run_that_dies_in_the_middle_of_its_last_window_fails() -> None:
    assert Story().fail(END - W / 2, END).verdicts()["soak_error_share"] is FAIL
    silent = Story().without(END - W * 0.9, END)
    assert silent.verdicts()["soak_error_share"] is FAIL


def test_row_51_a_stretch_without_a_finished_request_is_a_hang() -> None:
    assert Story().without(LATE, LATE + W).verdicts()["soak_error_share"] is FAIL


def test_silence_while_a_fault_heals_is_recovery() -> None:
    story = Story().without(FAULT, FAULT + 100)
    assert story.verdicts()["soak_error_share"] is PASS


def test_failures_of_the_load_host_are_not_the_appliances() -> None:
    found = Story().fail(LATE, END, 10, Outcome.CLIENT_FAULT.value).verdicts()
    assert found["soak_error_share"] is INVALID
    assert FAIL not in found.values()


def test_requests_that_we_gave_up_ourselves_are_no_failures() -> None:
    story = Story()
    story.frame.loc[len(story.frame) - 1, "outcome"] = Outcome.INTERRUPTED.value
    assert story.verdicts()["soak_error_share"] is PASS


def test_failed_canaries_are_failed_requests() -> None:
    story = Story()
    assert story.canary is not None
    story.canary.loc[story.canary.index[-4:], "outcome"] = "truncated"
    assert story.verdicts()["soak_error_share"] is FAIL


def everything_failed() -> Story:
    return Story().fail(0, END, kind="http_5xx").ended(W / 2)


def test_a_run_that_failed_from_its_first_request_is_the_appliances() -> None:
    """The same engine answered without the store, right before and right after."""
    found = judged(everything_failed().analysis(), gate=4)
    assert clause(found, "G4.1").verdict is FAIL
    assert found.decision is Decision.STOP_LOSS


def no_reference_after(story: Story) -> None:
    story.references.pop()


def no_reference(story: Story) -> None:
    story.references.clear()


def the_engine_fails_without_the_store_too(story: Story) -> None:
    story.references[1].loc[0, "outcome"] = "http_5xx"


def the_engine_restarted(story: Story) -> None:
    story.restarts["engine"] = 1


def nobody_saw_the_engine(story: Story) -> None:
    story.block["observation"]["coverage"] = {"host": 1.0}


@pytest.mark.parametrize(
    "change",
    [
        no_reference_after,
        no_reference,
        the_engine_fails_without_the_store_too,
        the_engine_restarted,
        nobody_saw_the_engine,
    ],
)
def test_failures_without_a_witness_are_not_held_against_the_appliance(
    change: Callable[[Story], None],
) -> None:
    story = everything_failed()
    change(story)
    assert story.verdicts()["soak_error_share"] is INVALID
    assert FAIL not in story.verdicts().values()


def test_the_stores_own_counters_are_a_witness_too() -> None:
    """Without a reference: it promised what it did not deliver, or did not answer."""
    story = Story().fail(LATE, END).lost(LATE, END, EXTERNAL, READ)
    story.references.clear()
    assert story.verdicts()["soak_error_share"] is FAIL
    silent = Story().fail(LATE, END)
    silent.references.clear()
    assert silent.verdicts()["soak_error_share"] is INVALID
    gap = {"source": "store-appliance", "from_ns": LATE * 1e9, "to_ns": END * 1e9, "reason": "x"}
    silent.block["observation"]["gaps"] = [gap]
    assert silent.verdicts()["soak_error_share"] is FAIL


def test_a_load_that_ended_by_itself_is_not_the_appliances_hang() -> None:
    for state in ("failed", "killed", "interrupted", None):
        story = Story().without(END / 2, END).told(load_state=state)
        found = story.verdicts()
        assert found["soak_error_share"] is INVALID
        assert FAIL not in found.values()


def test_a_run_without_requests_is_invalid() -> None:
    found = Story().without(-1, END + 1).verdicts()
    assert found["soak_error_share"] is INVALID
    assert FAIL not in found.values()


# --- observation ---------------------------------------------------------------------------------


def test_a_run_that_ended_early_is_invalid_not_a_fail() -> None:
    story = Story()
    story.block["observation"]["ended_ns"] = round(END / 2 * 1e9)
    assert story.verdicts()["soak_duration"] is INVALID


def test_gaps_in_the_observation_are_invalid() -> None:
    for coverage in ({"engine": 0.9, "host": 1.0}, {"engine": 1.0}, {}, None):
        story = Story()
        story.block["observation"]["coverage"] = coverage
        assert story.verdicts()["soak_coverage"] is INVALID


def test_a_run_whose_counters_nobody_saw_passes_nothing() -> None:
    story = Story()
    story.counts.clear()
    story.told(moved={"bytes": None})
    assert story.verdicts()["soak_restored_share"] is INVALID
    assert story.verdicts()["soak_ttft_drift"] is INVALID


def test_a_run_that_stands_twice_in_the_bundle_is_invalid() -> None:
    story = Story()
    story.times = 2
    assert set(story.verdicts().values()) == {INVALID}


@pytest.mark.parametrize("more", [{"observation": {}}, {"observation": None}, {"events": [{}]}])
def test_a_run_whose_record_is_spoilt_has_no_verdict(more: dict[str, Any]) -> None:
    with pytest.raises(CannotMeasure, match="block 2 is not usable"):
        Story().told(**more).analysis()


def test_the_tables_rows_are_those_that_were_counted() -> None:
    story = Story()
    raw = RawBlock(2, story.block | {"requests_recorded": 3}, story.frame, pd.DataFrame())
    with pytest.raises(CannotMeasure, match="recorded 3 requests"):
        assemble(contract(), 4, [raw], {}, {}, 1.0)
