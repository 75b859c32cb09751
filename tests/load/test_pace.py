"""When requests go out: levels, rates, ramps, and what was intended is kept."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from kvgate.load.arrivals import intended_times, level_changes
from kvgate.load.job import Closed, Constant, Poisson, RampConcurrency, RampRate, Shard
from kvgate.load.pace import ClosedPace
from kvgate.record import NS_PER_S, Outcome

from .conftest import Engine, MakeJob, StartEngine, run_job


def test_a_ramp_of_rates_integrates_to_its_arrivals() -> None:
    # From 0 to 20/s over 10 s: 100 arrivals on the ramp, then 20 a second.
    times = list(islice(intended_times(RampRate(0.0, 20.0, 10.0)), 141))
    assert times == sorted(times)
    assert times[0] == 0
    assert times[25] == pytest.approx(5 * NS_PER_S, abs=2)
    assert times[100] == pytest.approx(10 * NS_PER_S, abs=2)
    assert times[140] == pytest.approx(12 * NS_PER_S, abs=2)
    falling = list(islice(intended_times(RampRate(20.0, 10.0, 10.0)), 171))
    assert falling[150] == pytest.approx(10 * NS_PER_S, abs=2)
    assert falling[160] == pytest.approx(11 * NS_PER_S, abs=2)
    level = list(islice(intended_times(RampRate(4.0, 4.0, 1.0)), 9))
    assert level == [round(i * NS_PER_S / 4) for i in range(9)]


def test_a_random_ramp_follows_from_its_seed_and_keeps_its_mean() -> None:
    ramp = RampRate(10.0, 30.0, 100.0, "a")
    times = list(islice(intended_times(ramp), 2000))
    assert times == list(islice(intended_times(ramp), 2000))
    assert times != list(islice(intended_times(RampRate(10.0, 30.0, 100.0, "b")), 2000))
    assert times == sorted(times)
    # 2000 are expected at 100 s; five standard deviations of a Poisson count either way.
    assert times[1999] / NS_PER_S == pytest.approx(100.0, abs=5 * 2000**0.5 / 30)


def test_shards_together_meet_exactly_the_planned_times() -> None:
    for arrival in (Constant(7.0), Poisson(7.0, "s"), RampRate(1.0, 9.0, 3.0, "s")):
        whole = list(islice(intended_times(arrival), 30))
        parts = [list(islice(intended_times(arrival, Shard(i, 3)), 10)) for i in range(3)]
        assert sorted(t for part in parts for t in part) == whole


@pytest.mark.parametrize("arrival", [Closed(7), RampConcurrency(2, 9, 7.0)])
def test_shards_together_have_exactly_the_planned_streams(
    arrival: Closed | RampConcurrency,
) -> None:
    parts = [level_changes(arrival, Shard(i, 2)) for i in range(2)]
    assert sorted(t for part in parts for t in part) == sorted(level_changes(arrival))
    assert abs(len(parts[0]) - len(parts[1])) <= 1


def test_a_falling_ramp_ends_the_streams_of_the_shard_that_has_them() -> None:
    ramp = RampConcurrency(5, 2, 3.0)
    assert level_changes(ramp) == [0] * 5 + [-1 * NS_PER_S, -2 * NS_PER_S, -3 * NS_PER_S]
    # Streams 0, 2, 4 and 1, 3: 4, 3 and 2 end in that order.
    assert level_changes(ramp, Shard(0, 2)) == [0, 0, 0, -1 * NS_PER_S, -3 * NS_PER_S]
    assert level_changes(ramp, Shard(1, 2)) == [0, 0, -2 * NS_PER_S]


def test_a_stream_ends_with_the_request_it_is_in() -> None:
    pace = ClosedPace(1000, [0, 0, -50])
    assert [pace.due(1000, 0), pace.due(1000, 1), pace.due(1000, 2)] == [1000, 1000, None]
    assert pace.next_ns == 1050
    assert pace.due(1060, 2) is None
    pace.ended(1070, 1070, back_off=False)
    assert pace.due(1070, 1) is None
    pace.ended(1080, 1080, back_off=False)
    assert pace.due(1080, 0) == 1080


def test_a_ramp_of_concurrency_never_exceeds_its_level(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.03", "--gap-s", "0.001")
    job = make_job(slow.url, requests=40, arrival=RampConcurrency(1, 4, 0.3))
    run = run_job(job, tmp_path)
    report = run.result.report
    assert report is not None
    assert [r.outcome for r in run.records] == [Outcome.OK] * 40
    assert report.max_in_flight == 4
    for level, until_ms in ((1, 100), (2, 200), (3, 300)):
        before = report.started_ns + until_ms * 1_000_000
        spans = [(r.sent_ns or 0, r.end_ns) for r in run.records if (r.sent_ns or 0) < before]
        assert _most_at_once(spans) <= level


def test_row_21_the_level_is_never_exceeded_from_the_first_request_on(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    run = run_job(make_job(engine.url, requests=24, concurrency=3), tmp_path)
    assert _most_at_once([(r.sent_ns or 0, r.end_ns) for r in run.records]) <= 3
    truths = [engine.truths()[r.request_id] for r in run.records]
    assert _most_at_once([(t.received_ns, t.last_write_ns or 0) for t in truths]) <= 3


def test_row_20_no_hidden_limit_caps_the_concurrency(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.6", "--gap-s", "0.001")
    run = run_job(make_job(slow.url, requests=200, concurrency=200), tmp_path)
    report = run.result.report
    assert report is not None
    assert report.max_in_flight == 200
    truths = [slow.truths()[r.request_id] for r in run.records]
    seen = _most_at_once([(t.received_ns, t.last_write_ns or 0) for t in truths])
    assert seen > 150


def _most_at_once(spans: list[tuple[int, int]]) -> int:
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    most = now = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def test_rates_issue_at_their_times_and_keep_what_was_intended(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, arrival=Constant(200.0, 64), requests=40)
    run = run_job(job, tmp_path)
    report = run.result.report
    assert report is not None
    intended = sorted(r.intended_ns - report.started_ns for r in run.records)
    assert intended == [i * 5_000_000 for i in range(40)]
    assert all(r.scheduled_ns >= r.intended_ns for r in run.records)


def test_a_rate_beyond_its_bound_waits_and_the_waiting_is_recorded(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.05", "--gap-s", "0.001")
    job = make_job(slow.url, arrival=Constant(1000.0, 2), requests=8)
    run = run_job(job, tmp_path)
    assert run.result.report is not None
    assert run.result.report.max_in_flight == 2
    last = max(run.records, key=lambda r: r.intended_ns)
    assert last.scheduled_ns - last.intended_ns > 100_000_000


def test_a_duration_stops_issuing_and_lets_the_rest_finish(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, requests=100_000, concurrency=2, duration_s=0.3)
    run = run_job(job, tmp_path)
    assert run.result.complete
    assert {r.outcome for r in run.records} == {Outcome.OK}
