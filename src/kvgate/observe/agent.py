"""Telemetry of a host, at the word of a kvgate elsewhere: ``python -m kvgate.observe.agent``.

Orders come as lines on standard input (see :mod:`kvgate.talk`): ``observe`` begins, ``end`` takes
the last looks, ``clock`` and ``alive``. Rows and looks are told as they come, so that what was seen
of a host that dies is kept. It needs Python 3.10 alone.
"""

from __future__ import annotations

import contextlib
import math
import platform
import select
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvgate import __version__
from kvgate.observe.polling import TOOL_PERIOD_S, Poller, host_look, tool_look, tools_of_host
from kvgate.talk import Listener, Message, Silence

SEND_EVERY_S: Final = 2.0
_JOIN_S: Final = 6.0
"""A vendor's tool may take 5 s; a look that takes longer is left behind."""


class HostAgent:
    """Polls the kernel and the vendors' tools of its host from ``observe`` to ``end``."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._stop = threading.Event()
        self._host: Poller | None = None
        self._tools: tuple[Poller, ...] = ()
        self._told = (0, 0, 0)

    def serve(self) -> None:
        """Obey until the orders end."""
        self._listener.say("hello", kvgate=__version__, python=platform.python_version())
        try:
            while not self._listener.closed:
                readable, _, _ = select.select([self._listener.fd], [], [], SEND_EVERY_S)
                if readable:
                    for order in self._listener.read():
                        self._obey(order)
                self._send_rows()
        finally:
            self._stop.set()

    def _obey(self, order: Message) -> None:
        what = order.get("do")
        if what == "clock":
            self._listener.say_clock()
        elif what == "observe" and self._host is None:
            self._observe(float(order["period_s"]), [int(pid) for pid in order["pids"]])
        elif what == "end":
            self._end()

    def _observe(self, period_s: float, pids: Sequence[int]) -> None:
        self._stop = threading.Event()
        self._told = (0, 0, 0)
        look = host_look(tuple(pids), Path("/proc"))
        self._host = Poller("host", look, period_s, self._stop)
        self._tools = tuple(
            Poller(tool.name, tool_look(tool), max(period_s, TOOL_PERIOD_S), self._stop)
            for tool in tools_of_host()
        )
        for poller in (self._host, *self._tools):
            poller.thread.start()
        self._host.first.wait(_JOIN_S)
        self._listener.say("observing")

    def _send_rows(self) -> None:
        host = self._host
        if host is None:
            return
        for poller in (host, *self._tools):
            # What a vendor's tool prints in place of a number is no value, and no message either.
            rows = [row for row in poller.take_rows() if math.isfinite(row.value)]
            if rows:
                # Columns and a list of names: a third of the size of rows.
                keys: dict[tuple[str, str], int] = {}
                at = [keys.setdefault((row.source, row.name), len(keys)) for row in rows]
                self._listener.say(
                    "rows", keys=list(keys), at=at,
                    t_ns=[row.t_ns for row in rows], value=[row.value for row in rows],
                )  # fmt: skip
        with host.lock:
            good = list(host.good_ns[self._told[0] :])
            faults = host.faults[self._told[1] :]
            clocks = [[c.monotonic_ns, c.realtime_ns] for c in host.clocks[self._told[2] :]]
        sent_good, sent_faults, sent_clocks = self._told
        self._told = (
            sent_good + len(good), sent_faults + len(faults), sent_clocks + len(clocks)
        )  # fmt: skip
        if good or faults:
            self._listener.say("looks", good_ns=good, faults=faults, clocks=clocks)

    def _end(self) -> None:
        host = self._host
        if host is None:
            return
        self._stop.set()
        until_s = time.monotonic() + _JOIN_S
        for poller in (host, *self._tools):
            poller.thread.join(max(0.0, until_s - time.monotonic()))
        self._send_rows()
        notes = [*host.notes]
        for tool in self._tools:
            notes += [*tool.notes, *(fault for _, fault in tool.faults[:3])]
        with host.lock:
            host.ended = True
        self._listener.say("observed", notes=list(dict.fromkeys(notes)))
        self._host, self._tools = None, ()


def main() -> int:
    """Serve until the orders end; 1 where nobody was heard for too long."""
    try:
        with contextlib.suppress(BrokenPipeError):
            HostAgent(Listener()).serve()
    except Silence:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
