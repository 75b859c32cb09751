"""A command from outside: the processor time and memory of it and all that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PERIOD_S: Final = 0.1
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Watched:
    """``cpu_s``: user and system time of the tree. ``peak_rss_bytes``: the highest sum over its
    processes, seen every 0.1 s (pages shared between them count in each)."""

    exit_code: int
    started_ns: int
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    said: str


def run_watched(
    command: list[str], log: Path, *, limit_s: float, cwd: Path, extra: dict[str, str] | None = None
) -> Watched:
    """Run to the end, at most ``limit_s`` (s); everything that it started is ended with it.

    ``extra``: added to the environment.
    """
    with log.open("wb") as out:
        started_ns = time.monotonic_ns()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd,
            start_new_session=True, env=os.environ | (extra or {}),
        )  # fmt: skip
        tree = _Tree(process.pid)
        tree.start()
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            tree.stop()
            # The session is its own: nothing of it may go on while the next tool is measured.
            for number in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None or tree.alive():
                    try:
                        os.killpg(process.pid, number)
                    except ProcessLookupError:
                        break
                    time.sleep(0.5)
            code = process.wait()
    return Watched(
        exit_code=code,
        started_ns=started_ns,
        wall_s=(time.monotonic_ns() - started_ns) / 1e9,
        cpu_s=tree.cpu_s,
        peak_rss_bytes=tree.peak_rss_bytes,
        said=log.read_text(errors="replace"),
    )


class _Tree(threading.Thread):
    """Adds up /proc of a process and its descendants; the last word of each process is kept."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self._ticks: dict[int, int] = {}
        self.peak_rss_bytes = 0

    @property
    def cpu_s(self) -> float:
        return sum(self._ticks.values()) / _TICKS

    def run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self._look()

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._look()

    def alive(self) -> bool:
        return bool(self._members())

    def _members(self) -> dict[int, tuple[int, int]]:
        """pid: (ticks, resident pages) of the session."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (OSError, IndexError):
                continue
            if int(fields[3]) == self._pid and fields[0] != "Z":
                ticks = int(fields[11]) + int(fields[12])
                found[int(folder.name)] = (ticks, int(fields[21]))
        return found

    def _look(self) -> None:
        members = self._members()
        for pid, (ticks, _) in members.items():
            self._ticks[pid] = ticks
        resident = sum(pages for _, pages in members.values()) * _PAGE
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident)
