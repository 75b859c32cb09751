"""The load process: light, bounded, and honest about the host it runs on."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.job import Constant, write_job
from kvgate.load.run import run_load
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, run_job


def test_the_load_process_imports_no_heavy_library() -> None:
    """It must start fast and stay small: another process writes Parquet."""
    names = "'numpy', 'pandas', 'pyarrow', 'scipy', 'rich', 'typer', 'pydantic', 'asyncio'"
    code = f"import sys, kvgate.load.client; print([m for m in ({names}) if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert said.stdout.strip() == "[]"


def test_every_planned_request_is_recorded_once_with_times_in_order(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    run = run_job(make_job(engine.url, requests=30, concurrency=4), tmp_path)
    assert run.result.complete
    assert len({r.request_id for r in run.records}) == 30
    assert len({r.prompt_digest for r in run.records}) == 30
    report = run.result.report
    assert report is not None
    for r in run.records:
        assert r.outcome is Outcome.OK
        assert r.connected_ns is not None
        assert r.sent_ns is not None
        assert r.first_byte_ns is not None
        assert r.first_token_ns is not None
        assert r.last_token_ns is not None
        # Connections are opened before the block.
        assert r.connected_ns < report.started_ns
        assert r.intended_ns <= r.scheduled_ns <= r.sent_ns <= r.first_byte_ns
        assert r.first_byte_ns <= r.first_token_ns <= r.last_token_ns <= r.end_ns
        assert len(r.token_ns) == r.output_tokens == 10
        assert r.prompt_tokens == 8
        assert r.client_lag_ns is not None
    assert report.unstamped_reads < report.reads
    assert report.connections_opened == 4
    assert report.max_in_flight == 4


def test_row_18_a_level_beyond_the_descriptors_is_the_clients_fault_before_the_block(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, requests=400, concurrency=400)
    path = tmp_path / "job.json"
    write_job(job, path)
    said = subprocess.run(
        [sys.executable, "-m", "kvgate.load.client", str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
    )
    assert said.returncode == 3
    assert said.stderr.count("\n") == 1
    assert "client_fault" in said.stderr
    assert "ulimit" in said.stderr
    assert not Path(job.records_path).exists()


def test_row_18_the_soft_limit_is_raised_to_the_hard_one(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    write_job(make_job(engine.url, requests=2), path)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    subprocess.run(
        [sys.executable, "-m", "kvgate.load.client", str(path)],
        capture_output=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
    )
    report = json.loads((tmp_path / "client.json").read_bytes())
    assert report["nofile_limit"] == hard


def test_an_engine_that_is_not_there_is_one_line(make_job: MakeJob, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        job = make_job(f"http://127.0.0.1:{free.getsockname()[1]}", connect_deadline_s=0.2)
        with pytest.raises(CannotMeasure, match="cannot reach the engine") as caught:
            run_load(job, tmp_path, deadline_s=30)
    assert "\n" not in str(caught.value)


def test_a_secret_is_taken_from_the_environment_and_never_written(
    engine: Engine, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(engine.url, header_env={"Authorization": "KVGATE_TEST_TOKEN"})
    with pytest.raises(UsageError, match="KVGATE_TEST_TOKEN"):
        run_load(job, tmp_path, deadline_s=30)
    monkeypatch.setenv("KVGATE_TEST_TOKEN", "Bearer canary-4711")
    assert run_job(job, tmp_path).only.outcome is Outcome.OK
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"canary-4711" not in path.read_bytes()


def test_idle_connections_are_replaced_before_a_server_drops_them(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, arrival=Constant(2.0, 8), requests=2, idle_limit_s=0.1)
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK, Outcome.OK]
    assert run.result.report is not None
    assert run.result.report.connections_opened > 2


def test_an_earlier_run_is_never_written_over(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    run_job(make_job(engine.url), tmp_path)
    with pytest.raises(CannotMeasure, match="exists"):
        run_load(make_job(engine.url), tmp_path, deadline_s=30)
