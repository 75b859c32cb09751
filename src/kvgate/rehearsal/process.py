"""What both simulated servers share as processes: a precise alarm, binding, ending in time."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from kvgate.errors import CannotMeasure, UsageError
from kvgate.rehearsal.wire import Application, HttpConnection

STARTED_UNIX_S: Final = time.time()
_TFD_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME: Final = 1
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class _TimeSpec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class Alarm:
    """Calls ``ring`` at an absolute ``time.monotonic()`` second.

    An event loop's own timers wake on whole milliseconds, which is longer than a decode step at a
    time scale of 100; a Linux timerfd wakes within tens of microseconds.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._spec = _TimerSpec()
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timerfd_create"):
            raise CannotMeasure("no timerfd on this system", remedy="rehearse on Linux")
        self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise CannotMeasure(f"no timer: {os.strerror(ctypes.get_errno())}")
        asyncio.get_running_loop().add_reader(self._fd, self._readable)

    def set(self, at_s: float) -> None:
        """Ring at ``at_s`` (at once when past); replaces what was set before."""
        whole = int(at_s)
        self._spec.value.sec = whole
        self._spec.value.nsec = max(1, int((at_s - whole) * 1e9))
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()


def process_metrics() -> list[str]:
    """Prometheus lines of this process: start time, resident memory, CPU, open descriptors."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return [
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {STARTED_UNIX_S:.3f}",
        "# TYPE process_resident_memory_bytes gauge",
        f"process_resident_memory_bytes {resident}",
        "# TYPE process_cpu_seconds_total counter",
        f"process_cpu_seconds_total {time.process_time():.6f}",
        "# TYPE process_open_fds gauge",
        f"process_open_fds {sum(1 for _ in Path('/proc/self/fd').iterdir())}",
        "# TYPE kvgate_rehearsal_late_seconds_total counter",
        f"kvgate_rehearsal_late_seconds_total {LATENESS.total_s:.6f}",
    ]


def start_ticks(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None when gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    fields = text.rpartition(")")[2].split()
    if not fields or fields[0] in {"Z", "X"}:
        return None
    return int(fields[19])


async def serve(app: Application, host: str, port: int, exit_with: int | None) -> None:
    """Serve ``app`` until SIGTERM, SIGINT, or the end of process ``exit_with``.

    Raises ``UsageError`` when the port cannot be had.
    """
    loop = asyncio.get_running_loop()
    connections: set[HttpConnection] = set()
    try:
        server = await loop.create_server(
            lambda: HttpConnection(app, connections), host, port, backlog=1024
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(
            f"cannot listen: {reason}", where=f"{host}:{port}", remedy="choose a free port"
        ) from error
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    watch = loop.create_task(_end_with(exit_with, stopped)) if exit_with else None
    beat = loop.create_task(LATENESS.watch())
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    await stopped.wait()
    if watch is not None:
        watch.cancel()
    beat.cancel()
    server.close()
    for connection in list(connections):
        connection.abort()
    await asyncio.sleep(0)


class Lateness:
    """Real seconds by which this process could not keep its schedule: the machine was too busy.

    A simulation that is late no longer shows its calibration, so such blocks must not count.
    """

    PERIOD_S: Final = 0.02
    IGNORED_S: Final = 0.03

    def __init__(self) -> None:
        self.total_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self.PERIOD_S
            await asyncio.sleep(self.PERIOD_S)
            late_s = loop.time() - due_s
            if late_s > self.IGNORED_S:
                self.total_s += late_s


LATENESS: Final = Lateness()


async def _end_with(pid: int, stopped: asyncio.Event) -> None:
    born = start_ticks(pid)
    while born is not None and start_ticks(pid) == born:
        await asyncio.sleep(0.3)
    stopped.set()


def run(main: Callable[[], int]) -> int:
    """Run a program of the rehearsal: an expected fault is one line on stderr and its exit code."""
    try:
        return main()
    except (UsageError, CannotMeasure) as error:
        print(error, file=sys.stderr)
        return error.exit_code


def to_its_end(body: Coroutine[Any, Any, None]) -> int:
    """Run ``body`` on uvloop's event loop where it is installed, else on asyncio's; returns 0."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(body)
    finally:
        loop.close()
    return 0
