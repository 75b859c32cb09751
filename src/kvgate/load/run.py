"""Start the load process, watch it, and make sure that it ends."""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.job import Job, Progress, write_job
from kvgate.record import ClientReport

_GRACE_S: Final = 10.0
_EXIT_INTERRUPTED: Final = 5


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load process left behind.

    ``state``: ``done``, ``interrupted``, ``block_deadline``, or ``killed`` when the process had to
    be ended or died without a report; then ``report`` is ``None`` and the records are partial.
    """

    records_path: Path
    report: ClientReport | None
    state: str
    exit_code: int

    @property
    def complete(self) -> bool:
        """Whether the whole plan was carried out."""
        return self.state == "done"


def run_load(
    job: Job,
    work_dir: Path,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    deadline_s: float,
) -> LoadResult:
    """Run ``job`` in a process of its own; records and report go where the job says.

    ``work_dir`` takes the job file and the process's log.

    After ``deadline_s`` (s) the process is told to stop, then ended. On Ctrl-C too, and what was
    measured so far is returned with the state ``interrupted``: look at ``complete``. Raises
    :class:`CannotMeasure` when the load host could not carry the job or the engine could not be
    reached, :class:`UsageError` when the job is wrong.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    job_path = work_dir / "job.json"
    write_job(job, job_path)
    log_path = work_dir / "load.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvgate.load.client", str(job_path), "--stop-with-parent"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(process, on_progress, time.monotonic() + deadline_s)
    finally:
        # Whatever happened, also in the callback: no load may be left running.
        _end(process)
        if process.stdout is not None:
            process.stdout.close()
    return _result(job, process.returncode, log_path)


def _watch(
    process: subprocess.Popen[bytes],
    on_progress: Callable[[Progress], None] | None,
    deadline: float,
) -> None:
    """Read progress until the process or its time ends."""
    assert process.stdout is not None
    pending = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        readable, _, _ = select.select([process.stdout], [], [], min(left, 1.0))
        if not readable:
            continue
        data = process.stdout.raw.read(65_536)  # type: ignore[attr-defined]
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if on_progress is not None:
                on_progress(msgspec.json.decode(line, type=Progress))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # A process stuck in the kernel does not even die: time-box, never block on it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _result(job: Job, code: int | None, log_path: Path) -> LoadResult:
    said = log_path.read_text(errors="replace").strip().splitlines()
    last = said[-1] if said else ""
    if code == 2:
        raise UsageError(last or "the load process refused the job", where=job.load_host)
    if code in (3, 4):
        raise CannotMeasure(last or f"the load process ended with {code}", where=job.load_host)
    records = Path(job.records_path)
    report: ClientReport | None = None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        report = msgspec.json.decode(Path(job.report_path).read_bytes(), type=ClientReport)
    if report is None and not records.exists():
        raise CannotMeasure(
            f"the load process died ({code}): {last or 'no word from it'}", where=job.load_host
        )
    state = report.state if report is not None and code in (0, _EXIT_INTERRUPTED) else "killed"
    return LoadResult(records, report, state, -1 if code is None else code)
