"""However a load ends, nothing is left running and nothing measured is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvgate.evidence.records import read_records
from kvgate.load.job import Closed, Progress, write_job
from kvgate.load.run import run_load
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, StartEngine


def test_an_engine_that_dies_is_counted_and_does_not_eat_the_plan_at_once(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    mortal = start_engine("--ttft-s", "0.05", "--gap-s", "0.001")
    job = make_job(mortal.url, requests=1000, concurrency=2, block_deadline_s=1.5)
    killed = False

    def kill_engine(progress: Progress) -> None:
        nonlocal killed
        if progress.done >= 2 and not killed:
            killed = True
            mortal.process.kill()
            mortal.process.wait()

    result = run_load(job, tmp_path, on_progress=kill_engine, deadline_s=30)
    records = list(read_records(result.records_path))
    kinds = [r.outcome for r in records]
    assert result.state == "block_deadline"
    assert Outcome.OK in kinds
    assert Outcome.CONNECT_FAILED in kinds
    assert len(records) < 100


def test_a_signal_stops_the_load_and_keeps_what_was_measured(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.01", "--gap-s", "0.005")
    job = make_job(slow.url, requests=10_000, concurrency=4)
    path = tmp_path / "job.json"
    write_job(job, path)
    process = subprocess.Popen(
        [sys.executable, "-m", "kvgate.load.client", str(path)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["done"] >= 4:
                break
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(20) == 5
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    kinds = [r.outcome for r in read_records(Path(job.records_path))]
    assert kinds.count(Outcome.INTERRUPTED) == 4
    assert kinds.count(Outcome.OK) == len(kinds) - 4 >= 4
    assert json.loads(Path(job.report_path).read_bytes())["state"] == "interrupted"


def test_ctrl_c_in_the_parent_ends_the_load_process_and_returns_the_part(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.01", "--gap-s", "0.005")
    job = make_job(slow.url, requests=10_000, concurrency=2)

    def interrupt(progress: Progress) -> None:
        if progress.done >= 2:
            raise KeyboardInterrupt

    result = run_load(job, tmp_path, on_progress=interrupt, deadline_s=60)
    assert result.state == "interrupted"
    assert not result.complete
    assert len(list(read_records(result.records_path))) >= 2


def test_a_fault_in_the_parent_ends_the_load_process(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    def fail(_progress: Progress) -> None:
        raise ZeroDivisionError

    job = make_job(engine.url, requests=100_000, concurrency=2)
    before = _children()
    with pytest.raises(ZeroDivisionError):
        run_load(job, tmp_path, on_progress=fail, deadline_s=60)
    assert _children() == before


def _children() -> set[str]:
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return set(listed.split())


def test_the_deadline_of_the_parent_ends_the_load_process(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, model="misbehave:silent", requests=2)
    result = run_load(job, tmp_path, deadline_s=5.0)
    assert result.state == "interrupted"


def test_the_load_ends_with_the_process_that_started_it(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.01", "--gap-s", "0.005")
    path = tmp_path / "job.json"
    write_job(make_job(slow.url, requests=100_000, concurrency=Closed(2).concurrency), path)
    code = (
        "import subprocess, sys; "
        "p = subprocess.Popen([sys.executable, '-m', 'kvgate.load.client', sys.argv[1],"
        " '--stop-with-parent'], stdout=sys.stdout); "
        "print(p.pid, flush=True); p.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert parent.stdout.readline()  # the load is under way
        parent.kill()
        parent.wait()
        # The pipe ends when the last process that writes to it is gone.
        parent.stdout.read()
        assert json.loads((tmp_path / "client.json").read_bytes())["state"] == "interrupted"
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        if (
            Path(f"/proc/{child}/cmdline").exists()
            and b"kvgate.load.client" in Path(f"/proc/{child}/cmdline").read_bytes()
        ):
            os.kill(child, signal.SIGKILL)
