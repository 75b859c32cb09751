"""The rehearsal's processes in a run directory: recorded, started, waited for and ended by pid.

A run directory keeps one ``<name>.json`` (pid and start time in clock ticks) and ``<name>.log`` for
each process. A process is only ever signalled while its start time still is the recorded one, so
that a reused pid is never hit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvgate.errors import CannotMeasure, UsageError
from kvgate.rehearsal.process import start_ticks

HOST: Final = "127.0.0.1"
_KILL_AFTER_S: Final = 3.0
_LOG_TAIL_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is written down about a process when it is started."""

    pid: int
    start_ticks: int
    port: int
    argv: list[str]

    def alive(self) -> bool:
        """The very process that was recorded still runs."""
        return start_ticks(self.pid) == self.start_ticks


class RunDirectory:
    """Pid records and logs of one run directory."""

    def __init__(self, path: Path) -> None:
        if not path.is_absolute():
            raise UsageError("not an absolute path", where=str(path), remedy="give a full path")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotMeasure(
                f"cannot make the run directory: {error.strerror}", where=str(path)
            ) from error
        self._path = path

    def log(self, name: str) -> Path:
        """Where ``name`` writes its output."""
        return self._path / f"{name}.log"

    def kept(self, name: str) -> Path:
        """Where the store ``name`` keeps what it holds over a restart."""
        return self._path / f"{name}.kept"

    def recorded(self, name: str) -> Recorded | None:
        """The record of ``name``; None when there is none or it cannot be read."""
        try:
            return Recorded(**json.loads((self._path / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def record(self, name: str, process: Recorded) -> None:
        """Write the record of ``name``, in one step."""
        text = json.dumps(
            {
                "pid": process.pid,
                "start_ticks": process.start_ticks,
                "port": process.port,
                "argv": process.argv,
            }
        )
        draft = self._path / f"{name}.json.new"
        draft.write_text(text)
        draft.replace(self._path / f"{name}.json")

    def forget(self, name: str) -> None:
        """Remove the record of ``name``."""
        (self._path / f"{name}.json").unlink(missing_ok=True)

    def names(self, kind: str) -> Iterator[str]:
        """The recorded processes of a kind: "engine" has "engine" and "engine-2", ..."""
        for path in sorted(self._path.glob(f"{kind}*.json")):
            if path.stem == kind or path.stem.startswith(f"{kind}-"):
                yield path.stem

    def tail(self, name: str) -> str:
        """The last lines of the log of ``name`` as one line."""
        try:
            lines = self.log(name).read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " | ".join(lines[-_LOG_TAIL_LINES:])

    def stop(self, name: str) -> bool:
        """End ``name`` by TERM, then KILL; True when something was ended. Idempotent.

        Raises ``CannotMeasure`` when the process survives both.
        """
        process = self.recorded(name)
        if process is None or not process.alive():
            self.forget(name)
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                break
            deadline_s = time.monotonic() + _KILL_AFTER_S
            while process.alive() and time.monotonic() < deadline_s:
                time.sleep(0.01)
            if not process.alive():
                break
        if process.alive():
            raise CannotMeasure(f"{name} does not end", where=f"pid {process.pid}")
        self.forget(name)
        return True

    def start(self, name: str, port: int, argv: list[str]) -> Recorded:
        """Start ``argv`` detached, with its output in the log, and record it."""
        with self.log(name).open("wb") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        ticks = start_ticks(child.pid)
        process = Recorded(child.pid, ticks if ticks is not None else -1, port, argv)
        self.record(name, process)
        return process


def fetch(
    url: str, *, method: str = "GET", body: bytes | None = None, timeout_s: float = 5.0
) -> tuple[str, str]:
    """Body and ``x-kvgate-pid`` of an answer; raises ``OSError`` or ``ValueError``."""
    request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - loopback http only
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        return answer.read().decode(), answer.headers.get("x-kvgate-pid") or ""


def wait_healthy(run: RunDirectory, name: str, process: Recorded, timeout_s: float) -> None:
    """Wait until this very process answers /health.

    Raises ``CannotMeasure`` with the tail of its log when it ends or stays silent.
    """
    url = f"http://{HOST}:{process.port}/health"
    deadline_s = time.monotonic() + timeout_s
    while True:
        # The pid in the answer tells our server from another one on the same port.
        try:
            if fetch(url, timeout_s=0.3)[1] == str(process.pid):
                return
        except (OSError, ValueError):
            pass
        if not process.alive():
            run.forget(name)
            raise CannotMeasure(
                f"{name} ended while starting: {run.tail(name) or 'it printed nothing'}",
                where=str(run.log(name)),
            )
        if time.monotonic() > deadline_s:
            run.stop(name)
            raise CannotMeasure(
                f"{name} did not answer /health within {timeout_s:g} s: {run.tail(name)}",
                where=url,
            )
        time.sleep(0.02)
