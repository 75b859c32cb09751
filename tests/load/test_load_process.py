"""The load process: light, bounded, stoppable, and honest about the host it runs on."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.tables import read_records
from kvgate.load import clock
from kvgate.load.in_flight import InFlight
from kvgate.load.job import Closed, Constant, Progress, write_job
from kvgate.load.run import run_load
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, StartEngine, run_job


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
    result = run_load(job, tmp_path, deadline_s=0.7)
    assert result.state == "interrupted"


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


def test_tls_keeps_the_kernels_stamps(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    cert, key = _certificate(tmp_path)
    secure = start_engine(
        "--ttft-s", "0.01", "--gap-s", "0.002", "--tls", str(cert), str(key), scheme="https"
    )
    job = make_job(secure.url, requests=6, concurrency=2, ca_file=str(cert))
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK] * 6
    assert run.result.report is not None
    assert run.result.report.unstamped_reads < run.result.report.reads
    assert all(r.client_lag_ns is not None for r in run.records)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    cert, key = _certificate(tmp_path)
    secure = start_engine("--tls", str(cert), str(key), scheme="https")
    with pytest.raises(CannotMeasure, match="certificate verify failed"):
        run_load(make_job(secure.url, connect_deadline_s=0.3), tmp_path, deadline_s=30)


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "truth")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


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


def test_row_78_a_stepped_clock_is_counted_and_stamps_follow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offset = clock.Offset()
    before = offset.ns
    assert not offset.measure()
    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) - 30 * 10**9)
    assert offset.measure()
    assert offset.steps == 1
    assert abs(offset.ns - (before - 30 * 10**9)) < 10**6
    assert not offset.measure()


def test_row_78_a_stamp_is_never_in_the_future_and_a_step_is_followed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamps = clock.ReceiveClock()
    ns = stamps.offset.ns
    assert stamps.stamp(1_000_000_000 + ns, 1_000_000_700) == (1_000_000_000, 700)
    # Within the noise of the offset: now.
    assert stamps.stamp(1_000_000_900 + ns, 1_000_000_700) == (1_000_000_700, 0)
    # No stamp, or one that no offset explains: user space's time, an upper bound.
    assert stamps.stamp(None, 1_000_000_700) == (1_000_000_700, None)
    assert stamps.stamp(9_000_000_000 + ns, 1_000_000_700) == (1_000_000_700, None)
    assert stamps.unstamped == 2
    assert stamps.offset.steps == 0
    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) - 30 * 10**9)
    now = time.monotonic_ns()
    stamp, lag = stamps.stamp(now + ns - 30 * 10**9 - 5000, now)
    assert lag is not None
    assert abs(lag - 5000) < 100_000
    assert stamp == now - lag
    assert stamps.offset.steps == 1


def test_the_mean_in_flight_is_taken_from_the_first_full_moment_to_the_last_issue() -> None:
    flights = InFlight(2)
    for at in (0, 10):
        flights.issued(at)
    assert flights.mean is None
    flights.ended(20)
    flights.issued(25)
    assert flights.mean == pytest.approx((10 * 2 + 5 * 1) / 15)
    flights.ended(90)
    flights.ended(99)
    assert flights.mean == pytest.approx(25 / 15)
    assert flights.most == 2
