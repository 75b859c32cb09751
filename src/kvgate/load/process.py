"""One load process seen from outside: started, read, told to stop, and ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import msgspec

from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.job import Job, Progress, write_job
from kvgate.record import ClientReport

_GRACE_S: Final = 10.0
_READY: Final = b'"ready"'
_EXIT_INTERRUPTED: Final = 5


class LoadProcess:
    """A running ``kvgate.load.client``. ``progress`` is its last word, ``over`` that it said all.

    With ``await_start`` it says that it is ``ready`` and waits for ``start``.
    """

    def __init__(self, job: Job, work_dir: Path, name: str, *, await_start: bool) -> None:
        self.job = job
        self.progress = Progress(0, 0, 0)
        self.ready = False
        self.over = False
        self._pending = b""
        self._log_path = work_dir / f"{name}.log"
        job_path = work_dir / f"{name}.json"
        write_job(job, job_path)
        options = ["--stop-with-parent", *(["--await-start"] if await_start else [])]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kvgate.load.client", str(job_path), *options],
                stdin=subprocess.PIPE if await_start else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        self.fd = self._process.stdout.fileno()

    def read(self) -> bool:
        """Take what the process says; whether its progress changed."""
        data = os.read(self.fd, 65_536)
        if not data:
            self.over = True
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        changed = False
        for line in lines:
            if line == _READY:
                self.ready = True
            else:
                self.progress = msgspec.json.decode(line, type=Progress)
                changed = True
        return changed

    def start(self, at_ns: int) -> None:
        """Tell a ready process when to start, on this host's CLOCK_MONOTONIC."""
        assert self._process.stdin is not None
        # One that has died meanwhile shows in its result.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"%d\n" % at_ns)
            self._process.stdin.flush()

    def wait(self, timeout_s: float) -> None:
        """Wait for the end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, timeout_s))

    def stop(self) -> None:
        """Ask the process to stop, if it still runs; ``end`` makes sure."""
        self._close(self._process.stdin)  # one that waits for its start hears that there is none
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait until it has stopped, kill it when it does not."""
        if self._process.poll() is None:
            self.wait(_GRACE_S)
        if self._process.poll() is None:
            self._process.kill()
            # A process stuck in the kernel does not even die: time-box, never block on it.
            self.wait(_GRACE_S)
        self._close(self._process.stdout)

    @staticmethod
    def _close(pipe: IO[bytes] | None) -> None:
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def result(self) -> tuple[ClientReport | None, str, int]:
        """Report, state and exit code of an ended process (see ``LoadResult``).

        Raises :class:`CannotMeasure` or :class:`UsageError` with the process's own last line where
        nothing was measured.
        """
        code = self._process.returncode
        job = self.job
        said = self._log_path.read_text(errors="replace").strip().splitlines()
        last = said[-1] if said else ""
        if code == 2:
            raise UsageError(last or "the load process refused the job", where=job.load_host)
        if code in (3, 4):
            raise CannotMeasure(last or f"the load process ended with {code}", where=job.load_host)
        report: ClientReport | None = None
        with contextlib.suppress(OSError, msgspec.DecodeError):
            report = msgspec.json.decode(Path(job.report_path).read_bytes(), type=ClientReport)
        if report is None and not Path(job.records_path).exists():
            raise CannotMeasure(
                f"the load process died ({code}): {last or 'no word from it'}", where=job.load_host
            )
        state = report.state if report is not None and code in (0, _EXIT_INTERRUPTED) else "killed"
        return report, state, -1 if code is None else code
