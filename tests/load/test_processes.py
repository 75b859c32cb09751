"""Several processes on one host send together what one would have sent."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Constant, Conversation, Progress, Prompts
from kvgate.load.run import run_load
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, StartEngine, run_job


def test_level_and_requests_are_those_of_the_plan_from_one_common_start(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.05", "--gap-s", "0.001")
    job = make_job(slow.url, requests=20, concurrency=5)
    told: list[Progress] = []
    result = run_load(job, tmp_path, deadline_s=60, processes=2, on_progress=told.append)
    assert result.complete
    records = list(read_records(result.records_path))
    assert [r.outcome for r in records] == [Outcome.OK] * 20
    assert {int(r.request_id.rpartition("-")[2]) for r in records} == set(range(20))
    assert len(result.parts) == 2
    assert len({p.started_ns for p in result.parts}) == 1
    assert [p.planned_in_flight for p in result.parts] == [3, 2]
    report = result.report
    assert report is not None
    assert report.max_in_flight == 5
    assert report.requests_done == 20
    first = [r for r in records if r.intended_ns == report.started_ns]
    assert len(first) == 5
    assert told[-1].done == 20
    assert msgspec.json.decode(Path(job.report_path).read_bytes(), type=type(report)) == report


def test_the_record_set_is_the_same_for_any_number_of_processes(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    found = []
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        folder.mkdir()
        job = make_job(
            engine.url, arrival=Constant(300.0, 64), requests=30,
            records_path=str(folder / "r.jsonl"), report_path=str(folder / "c.json"),
        )  # fmt: skip
        result = run_load(job, folder, deadline_s=60, processes=processes)
        assert result.report is not None
        started = result.report.started_ns
        found.append(
            {
                (r.request_id, r.prompt_digest, r.intended_ns - started)
                for r in read_records(result.records_path)
            }
        )
    assert found[0] == found[1]
    assert len(found[0]) == 30


def test_conversations_stay_whole_in_their_process(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    prompts = Prompts(seed="s", pool="p", count=12, tokens=8, shape=Conversation(3, 4))
    job = make_job(engine.url, prompts=prompts, concurrency=2, ask_token_ids=True)
    result = run_load(job, tmp_path, deadline_s=60, processes=2)
    records = list(read_records(result.records_path))
    assert [r.outcome for r in records] == [Outcome.OK] * 12
    assert sorted({r.prompt_tokens or 0 for r in records}) == [8, 22, 36]


def test_an_engine_that_is_not_there_is_one_line_and_nothing_is_left(
    make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job("http://127.0.0.1:9", connect_deadline_s=0.3, requests=4, concurrency=4)
    with pytest.raises(CannotMeasure, match="cannot reach the engine"):
        run_load(job, tmp_path, deadline_s=30, processes=2)


def test_more_processes_than_streams_are_refused_before_anything_runs(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="too many"):
        run_load(make_job(engine.url, requests=9), tmp_path, deadline_s=30, processes=2)


def test_a_stop_keeps_the_parts_of_all(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.01", "--gap-s", "0.005")
    job = make_job(slow.url, requests=10_000, concurrency=4)

    def interrupt(progress: Progress) -> None:
        if progress.done >= 4:
            raise KeyboardInterrupt

    result = run_load(job, tmp_path, on_progress=interrupt, deadline_s=60, processes=2)
    assert result.state == "interrupted"
    kinds = [r.outcome for r in read_records(result.records_path)]
    assert kinds.count(Outcome.INTERRUPTED) == 4
    assert kinds.count(Outcome.OK) >= 4


def test_an_earlier_run_is_never_written_over(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, requests=4, arrival=Closed(2))
    run_job(job, tmp_path)
    with pytest.raises(CannotMeasure, match="earlier run"):
        run_load(job, tmp_path, deadline_s=30, processes=2)
