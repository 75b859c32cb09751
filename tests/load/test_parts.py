"""Several load processes are one: work split exactly, clocks brought together, records merged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Prompts
from kvgate.load.offsets import RoundTrip, ask, estimate_offset, over_block, refreshed
from kvgate.load.parts import PartOfRun, merge_parts, shard_job
from kvgate.record import ClientReport, Outcome, RequestRecord

from .conftest import MakeJob


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20),
)
def test_the_offset_lies_in_its_interval_however_the_delay_is_spread(
    offset: int, delays: list[tuple[int, int]]
) -> None:
    trips = []
    at = 10**12
    for there, back in delays:
        trips.append(RoundTrip(at, at + there + offset, at + there + back))
        at += there + back + 1000
    found = estimate_offset(trips)
    assert found.agreed
    assert abs(found.offset_ns - offset) <= found.uncertainty_ns
    assert found.uncertainty_ns <= min(there + back for there, back in delays) // 2 + 1


def test_a_step_between_round_trips_shows_as_disagreement_and_widens_the_interval() -> None:
    trips = [RoundTrip(0, 1000, 10), RoundTrip(100, 901_100, 110)]
    found = estimate_offset(trips)
    assert not found.agreed
    assert found.offset_ns - found.uncertainty_ns <= 990
    assert found.offset_ns + found.uncertainty_ns >= 901_000


def test_no_round_trip_and_one_that_runs_backwards_are_one_line() -> None:
    with pytest.raises(CannotMeasure, match="no round trip"):
        estimate_offset([])
    with pytest.raises(CannotMeasure, match="before it began"):
        estimate_offset([RoundTrip(5, 3, 4)])


def test_a_slow_answer_moves_no_clock_and_a_drift_does() -> None:
    known = estimate_offset([RoundTrip(0, 5_000_100, 200)])
    # True still, but nine seconds on its way back: its middle alone would be 4.5 s wrong.
    slow = estimate_offset([RoundTrip(0, 5_000_100, 9_000_000_000)])
    assert slow.offset_ns < -4_000_000_000
    assert refreshed(known, slow) == known
    drifted = estimate_offset([RoundTrip(0, 5_900_100, 200)])
    assert refreshed(known, drifted) == drifted


def test_drift_over_a_block_is_uncertainty() -> None:
    before = estimate_offset([RoundTrip(0, 1000, 10)])
    after = estimate_offset([RoundTrip(100, 3100, 110)])
    found = over_block(before, after)
    for end in (before, after):
        assert found.offset_ns - found.uncertainty_ns <= end.offset_ns - end.uncertainty_ns
        assert found.offset_ns + found.uncertainty_ns >= end.offset_ns + end.uncertainty_ns
    assert found.round_trips == 2


def test_a_hosts_clock_answers_over_a_pipe() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvgate.load.offsets"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def clock() -> int:
            to.write(b"\n")
            to.flush()
            return int(back.readline())

        found = estimate_offset(ask(clock, 5))
        to.close()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    # The same host: the same clock, whatever the pipe took.
    assert found.agreed
    assert abs(found.offset_ns) <= found.uncertainty_ns


def row(number: int, start: int, end: int, **fields: Any) -> RequestRecord:
    given_: dict[str, Any] = {
        "request_id": f"r{number}",
        "load_host": "h",
        "prompt_digest": "d",
        "intended_ns": start,
        "scheduled_ns": start,
        "sent_ns": start + 1,
        "first_token_ns": end - 2,
        "end_ns": end,
        "token_ns": [end - 2, end - 1],
        "client_lag_ns": 77,
        "outcome": Outcome.OK,
    }
    return RequestRecord(**(given_ | fields))


def report(**fields: Any) -> ClientReport:
    given_: dict[str, Any] = {
        "state": "done", "started_ns": 0, "ended_ns": 100, "requests_planned": 2,
        "requests_done": 2, "requests_failed": 0, "cpu_s": 0.5, "wall_s": 1e-7, "start_up_s": 0.1,
        "peak_rss_bytes": 1000, "nofile_limit": 9, "planned_in_flight": 1, "max_in_flight": 1,
        "mean_in_flight": 1.0, "connections_opened": 1, "reads": 4, "unstamped_reads": 0,
        "loop_stall_p99_ns": 5, "loop_stall_max_ns": 6, "receive_lag_p99_ns": None,
        "receive_lag_max_ns": None, "clock_offset_start_ns": 1, "clock_offset_end_ns": 1,
        "clock_steps": 0, "versions": {},
    }  # fmt: skip
    return ClientReport(**(given_ | fields))


def part(
    path: Path, rows: list[RequestRecord], told: ClientReport | None, ahead: int = 0
) -> PartOfRun:
    path.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in rows))
    offset = estimate_offset([RoundTrip(0, ahead + 5, 10)])
    return PartOfRun(path, told, offset)


def test_two_hosts_become_one_record_set_and_their_flights_are_counted_on_our_clock(
    tmp_path: Path,
) -> None:
    here = part(tmp_path / "a", [row(0, 0, 50), row(2, 50, 100)], report())
    there = part(
        tmp_path / "b",
        [row(1, 9_000_010, 9_000_060, load_host="b"), row(3, 9_000_060, 9_000_110, load_host="b")],
        report(started_ns=9_000_010, ended_ns=9_000_110, start_late_ns=10, loop_stall_p99_ns=9),
        ahead=9_000_000,
    )
    merged = merge_parts([here, there], 2, tmp_path / "all")
    records = list(read_records(tmp_path / "all"))
    assert merged.rows == len(records) == 4
    assert {r.load_host for r in records} == {"h", "b"}
    assert {r.scheduled_ns for r in records} == {0, 9_000_010, 50, 9_000_060}
    assert merged.rows_of == (2, 2)
    told = merged.report
    assert told is not None
    assert (told.requests_done, told.cpu_s, told.peak_rss_bytes) == (4, 1.0, 2000)
    assert (told.started_ns, told.ended_ns, told.wall_s) == (0, 110, 110 / 1e9)
    assert (told.loop_stall_p99_ns, told.receive_lag_p99_ns, told.start_late_ns) == (9, None, 10)
    assert (told.planned_in_flight, told.max_in_flight) == (2, 2)
    # Up to the last issue of each: one of 50 ns, and the other that began 10 ns late of 60.
    assert told.mean_in_flight == pytest.approx(1 + 50 / 60)
    assert merged.uncertainty_ns == 5


def stream(first: int, begin: int, lasts: int, rounds: int) -> list[RequestRecord]:
    """The records of one stream that always has one request in flight."""
    at = [begin + lasts * n for n in range(rounds)]
    return [row(first + n, start, start + lasts) for n, start in enumerate(at)]


@pytest.mark.parametrize("slower", [1.0, 1.3, 5.0])
def test_a_part_behind_a_slower_engine_holds_its_share_of_the_level(
    tmp_path: Path, slower: float
) -> None:
    fast = part(tmp_path / "a", stream(0, 0, 1000, 6), report())
    slow = part(tmp_path / "b", stream(10, 0, int(1000 * slower), 6), report())
    told = merge_parts([fast, slow], 2, tmp_path / "all").report
    assert told is not None
    assert told.mean_in_flight == pytest.approx(2.0)


def test_a_part_that_leaves_its_share_empty_does_not_hold_the_level(tmp_path: Path) -> None:
    full = part(tmp_path / "a", stream(0, 0, 1000, 6), report())
    gaps = [row(10 + n, 1000 * n, 1000 * n + 500) for n in range(6)]
    told = merge_parts([full, part(tmp_path / "b", gaps, report())], 2, tmp_path / "all").report
    assert told is not None
    assert told.mean_in_flight == pytest.approx(1.5)


def test_a_part_that_begins_when_the_other_is_done_does_not_hold_the_level(tmp_path: Path) -> None:
    early = part(tmp_path / "a", stream(0, 0, 1000, 6), report())
    late = part(tmp_path / "b", stream(10, 6000, 1000, 6), report())
    told = merge_parts([early, late], 2, tmp_path / "all").report
    assert told is not None
    assert told.mean_in_flight == pytest.approx(1 + 5 / 11)


@pytest.mark.parametrize("share", [2, 1])
def test_a_part_that_never_reaches_its_share_leaves_the_mean_unknown(
    tmp_path: Path, share: int
) -> None:
    full = part(tmp_path / "a", stream(0, 0, 1000, 6), report())
    other = part(tmp_path / "b", stream(10, 0, 1000, 6), report(planned_in_flight=share))
    told = merge_parts([full, other], 1 + share, tmp_path / "all").report
    assert told is not None
    assert (told.mean_in_flight is None) == (share == 2)


def test_a_part_without_a_report_leaves_the_whole_without_one(tmp_path: Path) -> None:
    whole = part(tmp_path / "a", [row(0, 0, 50)], report())
    died = part(tmp_path / "b", [row(1, 0, 40)], None)
    never = PartOfRun(tmp_path / "none", None)
    merged = merge_parts([whole, died, never], 2, tmp_path / "all")
    assert merged.rows == 2
    assert merged.report is None


def test_what_one_part_does_not_tell_is_not_known_of_the_whole(tmp_path: Path) -> None:
    told = part(tmp_path / "a", [row(0, 0, 50)], report())
    silent = part(tmp_path / "b", [row(1, 0, 50)], report(loop_stall_max_ns=None))
    merged = merge_parts([told, silent], 2, tmp_path / "all").report
    assert merged is not None
    assert merged.loop_stall_max_ns is None
    assert merged.loop_stall_p99_ns == 5


def test_a_request_in_two_parts_is_refused(tmp_path: Path) -> None:
    parts = [part(tmp_path / name, [row(0, 0, 50)], report()) for name in ("a", "b")]
    with pytest.raises(CannotMeasure, match="in two parts"):
        merge_parts(parts, 2, tmp_path / "all")


def test_shards_have_level_and_requests_of_the_whole(make_job: MakeJob) -> None:
    prompts = Prompts(seed="s", pool="p", count=26, tokens=8)
    job = make_job("http://h", arrival=Closed(7), prompts=prompts)
    shards = [shard_job(job, i, 3, "/tmp/x", load_host=f"h{i}", start_at_ns=5) for i in range(3)]
    assert [s.level for s in shards] == [3, 2, 2]
    assert [s.requests for s in shards] == [9, 9, 8]
    assert len({s.records_path for s in shards}) == 3
    assert [s.load_host for s in shards] == ["h0", "h1", "h2"]
    with pytest.raises(UsageError, match="too many"):
        shard_job(job, 7, 8, "/tmp/x")
