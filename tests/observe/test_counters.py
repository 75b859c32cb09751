"""Increases know about restarts; readings of hits know whom to believe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.analyse.hits import read_external_hits
from kvgate.observe.counters import (
    EngineCounters,
    Increase,
    StoreCounters,
    increase,
    increase_over,
)
from kvgate.observe.liveness import Progress, progress, stalls


def _grown(
    before: EngineCounters | StoreCounters, after: EngineCounters | StoreCounters
) -> Increase:
    grown = increase(before, after)
    assert grown is not None
    return grown


def _engine(**after: float) -> Increase:
    return _grown(EngineCounters(**dict.fromkeys(after, 0.0)), EngineCounters(**after))


def _store(**after: float) -> Increase:
    return _grown(StoreCounters(**dict.fromkeys(after, 0.0)), StoreCounters(**after))


def test_row_35_a_restart_is_counted_and_gives_no_negative_increase() -> None:
    before = EngineCounters(generation_tokens=1000, process_start_time_s=100.0)
    after = EngineCounters(generation_tokens=200, process_start_time_s=160.0)
    grown = _grown(before, after)
    assert grown.delta["generation_tokens"] == 200
    assert (grown.restarts, grown.fell) == (1, ("generation_tokens",))


def test_row_35_a_restart_that_outgrew_its_predecessor_is_seen_by_its_start_time() -> None:
    before = EngineCounters(generation_tokens=1000, process_start_time_s=100.0)
    after = EngineCounters(generation_tokens=1500, process_start_time_s=160.0)
    grown = _grown(before, after)
    assert (grown.delta["generation_tokens"], grown.restarts) == (1500, 1)


def test_row_35_without_a_start_time_a_fall_is_a_restart_of_all_counters() -> None:
    before = EngineCounters(generation_tokens=1000, prompt_tokens=10)
    after = EngineCounters(generation_tokens=200, prompt_tokens=40)
    grown = _grown(before, after)
    assert (grown.delta["prompt_tokens"], grown.restarts) == (40, 1)


def test_row_35_every_restart_inside_a_window_is_counted() -> None:
    looks = [
        EngineCounters(generation_tokens=100, process_start_time_s=1.0),
        EngineCounters(generation_tokens=150, process_start_time_s=1.0),
        None,
        EngineCounters(generation_tokens=30, process_start_time_s=2.0),
        EngineCounters(generation_tokens=20, process_start_time_s=3.0),
        EngineCounters(generation_tokens=25, process_start_time_s=3.0),
    ]
    grown = increase_over(looks)
    assert grown is not None
    assert (grown.delta["generation_tokens"], grown.restarts) == (50 + 30 + 20 + 5, 2)


def test_a_missing_side_gives_no_increase() -> None:
    there = EngineCounters(prompt_tokens=5)
    assert increase(None, there) is None
    assert increase(there, None) is None
    assert increase_over([there]) is None
    grown = _grown(EngineCounters(), there)
    assert grown.delta["prompt_tokens"] is None
    with pytest.raises(TypeError):
        increase(there, StoreCounters())


def test_gauges_have_no_increase() -> None:
    grown = _grown(StoreCounters(used_bytes=5), StoreCounters(used_bytes=3))
    assert "used_bytes" not in grown.delta and grown.restarts == 0


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=20))
def test_an_increase_is_never_negative_and_adds_up_without_restarts(values: list[int]) -> None:
    looks = [EngineCounters(prompt_tokens=value) for value in values]
    grown = increase_over(looks)
    assert grown is not None
    total = grown.delta["prompt_tokens"]
    assert total is not None and total >= 0
    if values == sorted(values):
        assert (total, grown.restarts) == (values[-1] - values[0], 0)


# -- hits ----------------------------------------------------------------------------------------


def test_row_26_queries_above_the_prompt_tokens_are_no_divisor() -> None:
    prompts, queries = 22_470_000, 13_290_000_000
    engine = _engine(prompt_tokens=prompts, external_queries=queries, external_hits=11_235_000)
    reading = read_external_hits(engine, None)
    assert reading.share == 0.5
    assert reading.basis == "external_hits / prompt_tokens"
    assert any(
        "591 times" in note and "prompt_tokens is the divisor" in note for note in reading.notes
    )


def test_row_28_queries_recorded_twice_do_not_halve_the_rate() -> None:
    engine = _engine(prompt_tokens=1000, external_queries=2000, external_hits=960)
    store = _store(lookup_tokens=1000, hit_tokens=960)
    reading = read_external_hits(engine, store)
    assert (reading.share, reading.trusted) == (0.96, True)
    assert any("external_queries grew by 2 times" in note for note in reading.notes)


def test_row_28_hits_that_the_store_contradicts_are_not_trusted() -> None:
    engine = _engine(prompt_tokens=1000, external_hits=400, prompt_tokens_engine_cache=0)
    reading = read_external_hits(engine, _store(lookup_tokens=1000, hit_tokens=960))
    assert (reading.share, reading.trusted) == (None, False)
    assert any("twice or not at all" in note for note in reading.notes)


def test_a_store_that_also_counts_warm_requests_is_no_contradiction() -> None:
    engine = _engine(prompt_tokens=1000, prompt_tokens_external=0, prompt_tokens_engine_cache=960)
    reading = read_external_hits(engine, _store(lookup_tokens=1000, hit_tokens=960, loads=0))
    assert (reading.share, reading.trusted) == (0.0, True)


def test_a_store_that_counts_lookups_many_times_is_no_witness() -> None:
    engine = _engine(prompt_tokens=1000, prompt_tokens_external=0)
    reading = read_external_hits(engine, _store(lookup_tokens=9000, hit_tokens=8000, loads=0))
    assert (reading.share, reading.trusted) == (0.0, True)
    assert any("no witness" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("store", "ttft_ratio"),
    [(None, 7.0), (_store(loads=3), None), (_store(bytes_read=1 << 30), 1.0)],
    ids=["ttft", "loads", "bytes"],
)
def test_row_31_no_hits_against_another_witness_is_not_trusted(
    store: Increase | None, ttft_ratio: float | None
) -> None:
    engine = _engine(prompt_tokens=1000, external_hits=0)
    reading = read_external_hits(engine, store, ttft_ratio=ttft_ratio)
    assert (reading.share, reading.trusted) == (None, False)
    assert any("counter not trusted" in note for note in reading.notes)


def test_row_31_no_hits_that_nothing_contradicts_are_no_hits() -> None:
    engine = _engine(prompt_tokens=1000, external_hits=0)
    reading = read_external_hits(engine, _store(loads=0, bytes_read=0), ttft_ratio=1.02)
    assert (reading.share, reading.trusted) == (0.0, True)


def test_row_33_a_rate_is_that_of_the_window_and_not_of_the_whole_life() -> None:
    before = EngineCounters(prompt_tokens=9000, prompt_tokens_external=9000)
    after = EngineCounters(prompt_tokens=10_000, prompt_tokens_external=9100)
    assert read_external_hits(increase(before, after), None).share == 0.1


def test_row_35_a_restart_inside_the_window_is_not_trusted() -> None:
    before = EngineCounters(prompt_tokens=9000, prompt_tokens_external=9000)
    after = EngineCounters(prompt_tokens=1000, prompt_tokens_external=900)
    assert not read_external_hits(increase(before, after), None).trusted


@pytest.mark.parametrize("engine", [None, _engine(prompt_tokens=5), _engine(external_hits=5)])
def test_missing_counters_are_missing_and_not_zero(engine: Increase | None) -> None:
    reading = read_external_hits(engine, None)
    assert (reading.share, reading.basis, reading.trusted) == (None, "missing", False)


def test_more_hits_than_prompt_tokens_are_not_trusted() -> None:
    assert not read_external_hits(_engine(prompt_tokens=100, external_hits=150), None).trusted


def test_an_empty_window_has_no_share() -> None:
    assert read_external_hits(_engine(prompt_tokens=0, external_hits=0), None).share is None


# -- liveness ------------------------------------------------------------------------------------


def _look(tokens: float | None, running: float | None, waiting: float = 0) -> EngineCounters:
    return EngineCounters(generation_tokens=tokens, running=running, waiting=waiting)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (_look(10, 3), _look(10, 3), Progress.HUNG),
        (_look(10, 0, 3), _look(10, 0, 3), Progress.HUNG),
        (_look(10, 3), _look(11, 3), Progress.WORKING),
        (_look(10, 0), _look(10, 0), Progress.IDLE),
        (_look(10, 0), _look(10, 2), Progress.IDLE),
        (_look(10, 3), _look(2, 3), Progress.RESTARTED),
        (_look(None, 3), _look(None, 3), Progress.UNKNOWN),
        (_look(10, None), _look(10, None), Progress.UNKNOWN),
        (None, _look(10, 3), Progress.UNKNOWN),
    ],
    ids=["hung", "hung-waiting", "working", "idle", "new-work", "restarted", "no-tokens", "no-load",
         "no-look"],
)  # fmt: skip
def test_row_72_an_engine_lives_by_its_tokens(
    before: EngineCounters | None, after: EngineCounters | None, expected: Progress
) -> None:
    assert progress(before, after) is expected


def test_row_72_a_long_prefill_is_progress() -> None:
    before = EngineCounters(generation_tokens=5, prompt_tokens_computed=0, running=1)
    after = EngineCounters(generation_tokens=5, prompt_tokens_computed=8192, running=1)
    assert progress(before, after) is Progress.WORKING


def test_row_72_a_stall_is_found_with_its_length() -> None:
    second = 1_000_000_000
    tokens = [0, 50, 100, 100, 100, 100, 150, 150]
    looks: list[tuple[int, EngineCounters | None]] = [
        (n * second, _look(count, 4)) for n, count in enumerate(tokens)
    ]
    [stall] = stalls(looks, at_least_s=3.0)
    assert (stall.from_ns, stall.to_ns, stall.duration_s) == (2 * second, 5 * second, 3.0)
    looks[4] = (4 * second, None)
    assert stalls(looks, at_least_s=3.0) == ()
