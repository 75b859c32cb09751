"""The processes below one process, and their end.

Ansible puts every worker into a session of its own, so ending the group of ``ansible-playbook``
leaves the running task alive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process by id and start time (clock ticks since boot), so that a reused id is another."""

    pid: int
    started_ticks: int


def below(root: int) -> tuple[Process, ...]:
    """Every process that ``root`` or a process below it started and that was not handed over."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            said = _stat(int(entry.name))
            if said is not None:
                parents[int(entry.name)] = said
    found: list[Process] = []
    wanted = [root]
    while wanted:
        parent = wanted.pop()
        for pid, (ppid, started) in parents.items():
            if ppid == parent:
                found.append(Process(pid, started))
                wanted.append(pid)
    return tuple(found)


def only(pid: int) -> tuple[Process, ...]:
    """The process itself, where it lives."""
    said = _stat(pid)
    return () if said is None else (Process(pid, said[1]),)


def end(processes: tuple[Process, ...]) -> None:
    """SIGTERM, and SIGKILL for what is still there after GRACE_S; others' processes are spared."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if _lives(process):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, number)
        deadline = time.monotonic() + GRACE_S
        while any(_lives(p) for p in processes) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _lives(process: Process) -> bool:
    said = _stat(process.pid)
    return said is not None and said[1] == process.started_ticks


def _stat(pid: int) -> tuple[int, int] | None:
    """(parent, start time) of a process; None for one that is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else (int(fields[1]), int(fields[19]))
