"""One source looked at on its schedule, in a thread of its own.

It needs the standard library alone, for it runs on engine hosts that have nothing else.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kvgate.observe.accelerators import installed
from kvgate.observe.clock import ClockState, clock_state
from kvgate.observe.counters import Counters, Increase, combine, increase
from kvgate.observe.fabric import read_ports
from kvgate.observe.host import Reading, read_host
from kvgate.observe.pauses import Ethtool
from kvgate.observe.rows import Row, Rows
from kvgate.observe.throttling import read_cpu_throttling

TOOL_PERIOD_S: Final = 5.0
"""Vendors' tools take up to a second of CPU a look: too dear for every second of a block."""
_MAX_FAULTS: Final = 10_000


class Beside(Protocol):
    """A program that says something of this host; it is looked at more rarely than the kernel."""

    @property
    def name(self) -> str: ...

    def look(self) -> tuple[list[Reading], str | None]:
        """(readings, fault) now; raises nothing."""
        ...


def tools_of_host() -> tuple[Beside, ...]:
    """The programs that this host has."""
    ethtool = Ethtool.of_host()
    return (*installed(), *(() if ethtool is None else (ethtool,)))


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a source: ``error`` where it gave nothing, ``notes`` where a part is missing."""

    t_ns: int
    rows: Sequence[Row]
    error: str | None = None
    notes: Sequence[str] = ()
    counters: Counters | None = None
    clock: ClockState | None = None


class Poller:
    """One source on its schedule, in a thread of its own."""

    def __init__(
        self, name: str, look: Callable[[bool], Look], period_s: float, stop: threading.Event
    ) -> None:
        self.thread = threading.Thread(target=self._run, name=f"observe-{name}", daemon=True)
        self.first = threading.Event()
        self.lock = threading.Lock()
        self.ended = False
        self.rows = Rows()
        self.good_ns = array("q")
        self.faults: list[tuple[int, str]] = []
        self.notes: dict[str, None] = {}
        self.clocks: list[ClockState] = []
        self.before: Counters | None = None
        self.after: Counters | None = None
        self.growth: Increase | None = None
        self._last: Counters | None = None
        self._look = look
        self._period_s = period_s
        self._stop = stop

    def take_rows(self) -> Rows:
        """The rows since the last call; they are kept here no longer."""
        with self.lock:
            taken, self.rows = self.rows, Rows()
        return taken

    def _run(self) -> None:
        begin_s = time.monotonic()
        self.before = self._take(raw=True)
        self.first.set()
        while True:
            now_s = time.monotonic()
            ticks = int((now_s - begin_s) / self._period_s) + 1
            if self._stop.wait(max(0.0, begin_s + ticks * self._period_s - now_s)):
                break
            self._take(raw=False)
        self.after = self._take(raw=True)

    def _take(self, *, raw: bool) -> Counters | None:
        look = self._look(raw)
        with self.lock:
            # A thread that was stuck beyond the end must not change what was handed over.
            if self.ended:
                return None
            self._keep(look)
        return look.counters

    def _keep(self, look: Look) -> None:
        if look.error is None:
            self.good_ns.append(look.t_ns)
        elif len(self.faults) < _MAX_FAULTS:
            self.faults.append((look.t_ns, look.error))
        self.rows.extend(look.rows)
        self.notes.update(dict.fromkeys(look.notes))
        if look.clock is not None:
            self.clocks.append(look.clock)
        if look.counters is not None:
            self.growth = combine(self.growth, increase(self._last, look.counters))
            self._last = look.counters


def tool_look(tool: Beside) -> Callable[[bool], Look]:
    def look(raw: bool) -> Look:
        t_ns = time.monotonic_ns()
        readings, fault = tool.look()
        return Look(t_ns, [Row(t_ns, *reading) for reading in readings], error=fault)

    return look


def host_look(pids: tuple[int, ...], proc: Path | None) -> Callable[[bool], Look]:
    start: list[ClockState] = []

    def look(raw: bool) -> Look:
        clock = clock_state()
        if not start:
            start.append(clock)
        change_s = (clock.offset_ns - start[0].offset_ns) / 1e9
        rows = [Row(clock.monotonic_ns, "clock", "offset_change_s", change_s)]
        notes: list[str] = []
        if proc is not None:
            readings, notes = read_host(pids, proc=proc)
            readings += [*read_ports(), *read_cpu_throttling()]
            rows += [Row(clock.monotonic_ns, *reading) for reading in readings]
            if not readings:
                return Look(clock.monotonic_ns, rows, "; ".join(notes)[:300], clock=clock)
        return Look(clock.monotonic_ns, rows, notes=notes, clock=clock)

    return look
