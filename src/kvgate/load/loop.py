"""The epoll loop that issues requests and reads answers: one thread, no framework.

Kernel receive stamps say when bytes arrived, whenever the loop comes round to read them. What the
loop itself adds is measured: how long it was away (stall) and how late it read (lag).
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from kvgate.load.arrivals import intended_times
from kvgate.load.clock import ReceiveClock
from kvgate.load.exchange import Exchange
from kvgate.load.histogram import Histogram
from kvgate.load.http import ProtocolFault
from kvgate.load.in_flight import InFlight
from kvgate.load.job import Closed, Job, Progress
from kvgate.load.requests import RequestStock
from kvgate.load.spool import ProgressLines, RecordSpool
from kvgate.load.transport import Connection, Endpoint, is_local_fault
from kvgate.record import NS_PER_S, Outcome

_TICK_NS: Final = 100_000_000
_PROGRESS_NS: Final = 250_000_000
_FLUSH_NS: Final = 500_000_000
_BACKOFF_NS: Final = 250_000_000
_OPEN_AT_ONCE: Final = 64
_READ: Final = select.EPOLLIN
_READ_WRITE: Final = select.EPOLLIN | select.EPOLLOUT

_now_ns = time.monotonic_ns


class Unreachable(Exception):  # noqa: N818 - what the engine is
    """No connection could be opened before the block."""


class LoadLoop:
    """Runs one job. ``run`` returns the state; the counters below are for the report."""

    def __init__(
        self,
        job: Job,
        endpoint: Endpoint,
        stock: RequestStock,
        spool: RecordSpool,
        progress: ProgressLines,
        *,
        parent: int | None,
    ) -> None:
        self._job = job
        self._endpoint = endpoint
        self._stock = stock
        self._spool = spool
        self._progress = progress
        self._parent = parent
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._idle: dict[int, Connection] = {}
        self._flying: dict[Exchange, Connection | None] = {}
        # Closed loop: free slots with the moment each became free, and slots in back-off.
        self._free: deque[int] = deque()
        self._backoff: deque[tuple[int, int]] = deque()
        self._times: Iterator[int] | None = None
        self._next_time: int | None = None
        self._level = job.arrival.planned_in_flight
        self._closed = isinstance(job.arrival, Closed)
        self._keep_tokens = job.logprobs is not None
        self._last_connect_error = ""
        self._shown_at = 0
        self._flushed_at = 0
        self.stop = False
        self.clock = ReceiveClock()
        self.stalls = Histogram()
        self.flights = InFlight(self._level)
        self.started_ns = 0
        self.ended_ns = 0
        self.done = 0
        self.failed = 0
        self.reads = 0
        self.opened = 0

    # --- the block -----------------------------------------------------------------------------

    def run(self) -> str:
        """Run the block; returns ``done``, ``interrupted`` or ``block_deadline``.

        Raises :class:`Unreachable` when no connection could be opened, OSError when the records
        cannot be written.
        """
        while self._stock.refill():
            pass
        self._open_ahead()
        self.started_ns = _now_ns()
        if self._closed:
            self._free.extend([self.started_ns] * self._level)
        else:
            self._times = intended_times(self._job.arrival)
            self._next_time = self.started_ns + next(self._times)
        state = self._turn()
        self._abandon(state)
        self.ended_ns = _now_ns()
        self._show()
        for connection in list(self._connections.values()):
            self._close(connection)
        return state

    def _turn(self) -> str:
        job = self._job
        deadline = self.started_ns + int(job.block_deadline_s * NS_PER_S)
        issue_until = deadline
        if job.duration_s is not None:
            issue_until = min(deadline, self.started_ns + int(job.duration_s * NS_PER_S))
        next_tick = self.started_ns
        awake = self.started_ns
        while True:
            now = _now_ns()
            if now >= next_tick:
                self._tick(now)
                next_tick = now + _TICK_NS
            if self.stop:
                return "interrupted"
            if now >= deadline:
                return "block_deadline"
            issuing = now < issue_until and not self._stock.exhausted
            if issuing:
                self._issue_due(now)
            elif not self._flying:
                return "done"
            self.stalls.add(_now_ns() - awake)
            events = self._epoll.poll(0)
            awake = _now_ns()
            # Nothing to read: the time to make a request ahead, or to sleep.
            if not events and not self._stock.refill():
                wake = next_tick
                if issuing and self._next_time is not None:
                    wake = min(wake, self._next_time)
                # Whole milliseconds, rounded down: the rest is polled away.
                wait_ms = max(0, wake - awake) // 1_000_000
                events = self._epoll.poll(wait_ms / 1000)
                awake = _now_ns()
            for fd, mask in events:
                connection = self._connections.get(fd)
                if connection is not None:
                    self._event(connection, mask)
                    # A free slot is filled at once: the others' stamps are the kernel's and wait.
                    if self._free and issuing and not self.stop:
                        self._issue_due(awake)

    def _tick(self, now: int) -> None:
        self.clock.offset.measure()
        if self._parent is not None and os.getppid() != self._parent:
            self.stop = True
        while self._backoff and self._backoff[0][0] <= now:
            self._free.append(self._backoff.popleft()[1])
        self._check_deadlines(now)
        idle_limit = now - int(self._job.idle_limit_s * NS_PER_S)
        for connection in [c for c in self._idle.values() if c.idle_since_ns < idle_limit]:
            self._close(connection)
            self._open(None)
        self._show(now)

    def _show(self, now: int | None = None) -> None:
        if now is None or now - self._shown_at >= _PROGRESS_NS:
            self._shown_at = now or self._shown_at
            self._progress.show(Progress(self.done, self.failed, len(self._flying)))
        if now is None or now - self._flushed_at >= _FLUSH_NS:
            self._flushed_at = now or self._flushed_at
            self._spool.flush()

    def _check_deadlines(self, now: int) -> None:
        limit = int(self._job.request_deadline_s * NS_PER_S)
        quiet = self._job.stall_deadline_s
        late: list[tuple[Exchange, str]] = []
        for exchange in self._flying:
            since = exchange.sent_ns or exchange.scheduled_ns
            if now - since > limit:
                late.append((exchange, f"not finished within {self._job.request_deadline_s:g} s"))
            elif quiet is not None and now - max(exchange.last_byte_ns, since) > quiet * NS_PER_S:
                late.append((exchange, f"no byte for {quiet:g} s"))
            elif quiet is None:
                break  # in the order of issue: the rest is younger
        for exchange, why in late:
            self._fail(exchange, Outcome.TIMEOUT, why, now)

    def _abandon(self, state: str) -> None:
        why = "stopped by a signal" if state == "interrupted" else "the block's deadline passed"
        now = _now_ns()
        for exchange in list(self._flying):
            self._fail(exchange, Outcome.INTERRUPTED, why, now)

    # --- issuing -------------------------------------------------------------------------------

    def _issue_due(self, now: int) -> None:
        if self._closed:
            while self._free and not self._stock.exhausted:
                self._issue(self._free.popleft())
            return
        assert self._times is not None
        while self._next_time is not None and self._next_time <= now:
            if len(self._flying) >= self._level or self._stock.exhausted:
                return
            self._issue(self._next_time)
            self._next_time = self.started_ns + next(self._times)

    def _issue(self, intended_ns: int) -> None:
        request = self._stock.take()
        if request is None:
            return
        now = _now_ns()
        exchange = Exchange(request, intended_ns, now, keep_tokens=self._keep_tokens)
        self._flying[exchange] = None
        self.flights.issued(now)
        if self._idle:
            _, connection = self._idle.popitem()
            connection.load = exchange
            self._flying[exchange] = connection
            self._send(connection, exchange)
        else:
            self._open(exchange)

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        exchange.sent_ns = _now_ns()
        try:
            connection.send(exchange.request.wire)
        except OSError as fault:
            self._broken(connection, fault)
            return
        if connection.wants_write:
            self._epoll.modify(connection.fd, _READ_WRITE)

    # --- connections ---------------------------------------------------------------------------

    def _open_ahead(self) -> None:
        """Open the connections of the block before it starts. Raises :class:`Unreachable`."""
        arrival = self._job.arrival
        wanted = self._level
        if not isinstance(arrival, Closed):
            wanted = min(self._level, max(8, int(arrival.rate_per_s * 2)))
        wanted = min(wanted, self._job.prompts.count)
        deadline = _now_ns() + int(self._job.connect_deadline_s * NS_PER_S)
        while len(self._idle) < wanted and not self.stop:
            now = _now_ns()
            if now > deadline:
                break
            # Few at a time: a full accept queue costs each newcomer a second.
            for _ in range(min(_OPEN_AT_ONCE, wanted - len(self._connections))):
                if not self._open(None):
                    break
            for fd, mask in self._epoll.poll(0.02):
                connection = self._connections.get(fd)
                if connection is not None:
                    self._event(connection, mask)
            if len(self._connections) < wanted:
                time.sleep(0.005)
        if not self._idle and not self.stop:
            raise Unreachable(self._last_connect_error or "no connection in time")

    def _open(self, exchange: Exchange | None) -> bool:
        try:
            connection = Connection(self._endpoint)
        except OSError as fault:
            self._last_connect_error = str(fault)
            if exchange is not None:
                self._fail(exchange, self._connect_outcome(fault), f"connect: {fault}", _now_ns())
            return False
        connection.load = exchange
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLOUT)
        if exchange is not None:
            self._flying[exchange] = connection
        return True

    @staticmethod
    def _connect_outcome(fault: OSError) -> Outcome:
        return Outcome.CLIENT_FAULT if is_local_fault(fault) else Outcome.CONNECT_FAILED

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.fd, None)
        self._idle.pop(connection.fd, None)
        connection.load = None
        connection.close()

    def _event(self, connection: Connection, mask: int) -> None:
        if not connection.ready:
            self._handshake(connection)
            return
        if mask & select.EPOLLOUT:
            try:
                connection.flush()
            except OSError as fault:
                self._broken(connection, fault)
                return
            if not connection.wants_write:
                self._epoll.modify(connection.fd, _READ)
        if mask & ~select.EPOLLOUT:
            self._readable(connection)

    def _handshake(self, connection: Connection) -> None:
        try:
            connection.advance()
        except OSError as fault:
            self._last_connect_error = str(fault)
            exchange = connection.load
            if exchange is not None:
                self._fail(exchange, self._connect_outcome(fault), f"connect: {fault}", _now_ns())
            else:
                self._close(connection)
            return
        self._epoll.modify(connection.fd, _READ_WRITE if connection.wants_write else _READ)
        if connection.ready:
            self.opened += 1
            if connection.load is None:
                self._idle[connection.fd] = connection
            else:
                self._send(connection, connection.load)

    # --- reading -------------------------------------------------------------------------------

    def _readable(self, connection: Connection) -> None:
        try:
            data = connection.receive()
        except OSError as fault:
            self._broken(connection, fault)
            return
        if data is None:
            return
        exchange: Exchange | None = connection.load
        if exchange is None:
            # An idle connection has nothing to say: the server closed it.
            self._close(connection)
            return
        self.reads += 1
        stamp, lag = self.clock.stamp(connection.stamp_real_ns, connection.user_ns)
        if lag is None:
            exchange.answer.unsure(stamp)
        elif exchange.lag_ns is None or lag > exchange.lag_ns:
            exchange.lag_ns = lag
        if not data:
            exchange.http.close()
            if exchange.http.complete:
                self._finish(connection, exchange, stamp)
            else:
                outcome, why = exchange.cut_off("connection closed")
                self._fail(exchange, outcome, why, stamp)
            return
        try:
            exchange.take(data, stamp)
        except ProtocolFault as fault:
            self._fail(exchange, Outcome.BAD_STREAM, str(fault), stamp)
            return
        if exchange.http.complete:
            self._finish(connection, exchange, stamp)

    def _broken(self, connection: Connection, fault: OSError) -> None:
        exchange: Exchange | None = connection.load
        if exchange is None:
            self._close(connection)
            return
        if is_local_fault(fault):
            self._fail(exchange, Outcome.CLIENT_FAULT, str(fault), _now_ns())
        else:
            self._fail(exchange, Outcome.RESET, str(fault), _now_ns())

    # --- endings -------------------------------------------------------------------------------

    def _finish(self, connection: Connection, exchange: Exchange, end_ns: int) -> None:
        job = self._job
        outcome, error = exchange.judge_end(job.output_tokens, exact=job.ignore_eos)
        connected_ns = connection.connected_ns
        if exchange.http.keep_alive and not connection.wants_write:
            connection.load = None
            connection.idle_since_ns = connection.user_ns
            self._idle[connection.fd] = connection
        else:
            self._close(connection)
        self._write(exchange, connected_ns, end_ns, outcome, error)

    def _fail(self, exchange: Exchange, outcome: Outcome, error: str, end_ns: int) -> None:
        connection = self._flying.get(exchange)
        connected_ns = None
        if connection is not None:
            connected_ns = connection.connected_ns
            self._close(connection)
        self._write(exchange, connected_ns, end_ns, outcome, error)

    def _write(
        self,
        exchange: Exchange,
        connected_ns: int | None,
        end_ns: int,
        outcome: Outcome,
        error: str | None,
    ) -> None:
        now = _now_ns()
        self.flights.ended(now)
        del self._flying[exchange]
        self.done += 1
        self.failed += outcome is not Outcome.OK
        self._spool.add(exchange.record(self._job.load_host, connected_ns, end_ns, outcome, error))
        if not self._closed:
            return
        if outcome in (Outcome.CONNECT_FAILED, Outcome.CLIENT_FAULT):
            # A dead server must not eat the whole plan in a moment.
            self._backoff.append((now + _BACKOFF_NS, now))
        else:
            self._free.append(end_ns)
