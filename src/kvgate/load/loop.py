"""The epoll loop that issues requests and reads answers: one thread, no framework.

Kernel receive stamps say when bytes arrived, whenever the loop comes round to read them. What the
loop itself adds is measured: how long it was away (stall) and how late it read (lag).
"""

from __future__ import annotations

import heapq
import os
import select
import time
from typing import Final

from kvgate.load.arrivals import intended_times, level_changes
from kvgate.load.clock import ReceiveClock
from kvgate.load.exchange import Exchange
from kvgate.load.histogram import Histogram
from kvgate.load.http import ProtocolFault
from kvgate.load.in_flight import InFlight
from kvgate.load.job import (
    Closed,
    Conversation,
    Job,
    Progress,
    RampConcurrency,
    Replay,
    Trace,
)
from kvgate.load.links import Links
from kvgate.load.pace import ClosedPace, OpenPace, Pace
from kvgate.load.requests import Request, RequestStock
from kvgate.load.spool import ProgressLines, RecordSpool
from kvgate.load.trace import trace_times
from kvgate.load.transport import Connection, is_local_fault
from kvgate.record import NS_PER_S, Outcome

_TICK_NS: Final = 100_000_000
_PROGRESS_NS: Final = 250_000_000
_FLUSH_NS: Final = 500_000_000

_now_ns = time.monotonic_ns


def pace_of(job: Job, start_ns: int) -> Pace:
    """The pace of a job, or of its shard, that starts at ``start_ns``."""
    arrival = job.arrival
    if isinstance(arrival, Closed | RampConcurrency):
        return ClosedPace(start_ns, level_changes(arrival, job.shard))
    if isinstance(arrival, Replay):
        # read_job has seen to it that a replay comes with a trace.
        assert isinstance(job.prompts.shape, Trace)
        return OpenPace(start_ns, trace_times(arrival, job.prompts.shape, job.shard), job.level)
    return OpenPace(start_ns, intended_times(arrival, job.shard), job.level)


class LoadLoop:
    """Runs one job. ``run`` returns the state; the counters below are for the report.

    ``skipped`` counts turns of conversations that were not issued, since a turn before them failed
    or the time was over.
    """

    def __init__(
        self,
        job: Job,
        links: Links,
        stock: RequestStock,
        spool: RecordSpool,
        progress: ProgressLines,
        *,
        parent: int | None,
    ) -> None:
        self._job = job
        self._links = links
        self._stock = stock
        self._spool = spool
        self._progress = progress
        self._parent = parent
        self._flying: dict[Exchange, Connection | None] = {}
        # Turns that wait for their moment; each holds the place of the turn before it.
        self._turns: list[tuple[int, int, Request]] = []
        shape = job.prompts.shape
        self._think_ns = int(shape.think_s * NS_PER_S) if isinstance(shape, Conversation) else 0
        self._keep_tokens = job.logprobs is not None
        self._pace: Pace = ClosedPace(0, [])
        self._shown_at = 0
        self._flushed_at = 0
        self.stop = False
        self.clock = ReceiveClock()
        self.stalls = Histogram()
        self.flights = InFlight(job.level)
        self.started_ns = 0
        self.ended_ns = 0
        self.start_late_ns = 0
        self.done = 0
        self.failed = 0
        self.skipped = 0
        self.reads = 0

    # --- the block -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make requests ahead and open the connections. Raises :class:`Unreachable`."""
        while self._stock.refill():
            pass
        job = self._job
        wanted = job.level
        if isinstance(job.arrival, Closed):
            wanted = min(wanted, job.requests)
        elif not isinstance(job.arrival, RampConcurrency):
            rate = getattr(job.arrival, "rate_per_s", getattr(job.arrival, "to_per_s", 4.0))
            wanted = min(wanted, job.requests, max(8, int(rate * 2)))
        deadline = _now_ns() + int(job.connect_deadline_s * NS_PER_S)
        self._links.open_ahead(wanted, deadline, self._event, lambda: self.stop)

    def run(self, start_at_ns: int | None) -> str:
        """Run the block; returns ``done``, ``interrupted`` or ``block_deadline``.

        It starts at ``start_at_ns`` (CLOCK_MONOTONIC), or at once; where that moment has passed
        the lateness is in ``start_late_ns`` and the times wanted stay as planned. Raises OSError
        when the records cannot be written, CannotMeasure when a conversation cannot go on.
        """
        if start_at_ns is not None:
            self._wait_until(start_at_ns)
            self.start_late_ns = max(0, _now_ns() - start_at_ns)
        self.started_ns = _now_ns() if start_at_ns is None else start_at_ns
        self._pace = pace_of(self._job, self.started_ns)
        state = self._turn()
        self._abandon(state)
        self.ended_ns = _now_ns()
        self._show()
        self._links.close_all()
        return state

    def _wait_until(self, start_ns: int) -> None:
        while (left := start_ns - _now_ns()) > 0 and not self.stop:
            for fd, mask in self._links.poll(min(left / NS_PER_S, 0.1)):
                connection = self._links.get(fd)
                if connection is not None:
                    self._event(connection, mask)

    def _turn(self) -> str:
        job = self._job
        pace, stock, poll = self._pace, self._stock, self._links.poll
        free = pace.free
        deadline = self.started_ns + int(job.block_deadline_s * NS_PER_S)
        issue_until = deadline
        if job.duration_s is not None:
            issue_until = min(deadline, self.started_ns + int(job.duration_s * NS_PER_S))
        next_tick = awake = self.started_ns
        while True:
            now = _now_ns()
            if now >= next_tick:
                self._tick(now)
                next_tick = now + _TICK_NS
            if self.stop:
                return "interrupted"
            if now >= deadline:
                return "block_deadline"
            issuing = now < issue_until and not (stock.exhausted and not self._turns)
            if issuing:
                self._issue_due(now)
            elif not self._flying:
                return "done"
            self.stalls.add(_now_ns() - awake)
            events = poll(0)
            awake = _now_ns()
            # Nothing to read: the time to make a request ahead, or to sleep.
            if not events and not stock.refill():
                wake = next_tick
                if issuing:
                    if pace.next_ns is not None:
                        wake = min(wake, pace.next_ns)
                    if self._turns:
                        wake = min(wake, self._turns[0][0])
                # Whole milliseconds, rounded down: the rest is polled away.
                wait_ms = max(0, wake - awake) // 1_000_000
                events = poll(wait_ms / 1000)
                woke = _now_ns()
                # Stopped or starved in its sleep it read nothing either.
                overslept = woke - awake - wait_ms * 1_000_000
                if overslept > 0:
                    self.stalls.add(overslept)
                awake = woke
            for fd, mask in events:
                connection = self._links.get(fd)
                if connection is not None:
                    self._event(connection, mask)
                    # A free place is filled at once: the others' stamps are the kernel's and wait.
                    if (free or self._turns) and issuing and not self.stop:
                        self._issue_due(awake)

    def _tick(self, now: int) -> None:
        self.clock.offset.measure()
        if self._parent is not None and os.getppid() != self._parent:
            self.stop = True
        self._pace.tick(now)
        self._check_deadlines(now)
        self._links.replace_old(now, self._job.idle_limit_s)
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
        for _, _, request in self._turns:
            self.skipped += 1 + self._stock.turns_after(request)
        self._turns.clear()

    # --- issuing -------------------------------------------------------------------------------

    def _issue_due(self, now: int) -> None:
        turns = self._turns
        while turns and turns[0][0] <= now:
            ready_ns, _, turn = heapq.heappop(turns)
            self._issue(turn, ready_ns)
        while not self._stock.exhausted:
            intended = self._pace.due(now, len(self._flying) + len(turns))
            if intended is None:
                return
            request = self._stock.take()
            if request is not None:
                self._issue(request, intended)

    def _issue(self, request: Request, intended_ns: int) -> None:
        now = _now_ns()
        exchange = Exchange(request, intended_ns, now, keep_tokens=self._keep_tokens)
        self._flying[exchange] = None
        self.flights.issued(now)
        connection = self._links.take()
        if connection is not None:
            connection.load = exchange
            self._flying[exchange] = connection
            self._send(connection, exchange)
            return
        try:
            self._flying[exchange] = self._links.open(exchange)
        except OSError as fault:
            self._fail(exchange, _connect_outcome(fault), f"connect: {fault}", _now_ns())

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        exchange.sent_ns = _now_ns()
        try:
            self._links.send(connection, exchange.request.wire)
        except OSError as fault:
            self._broken(connection, fault)

    # --- events --------------------------------------------------------------------------------

    def _event(self, connection: Connection, mask: int) -> None:
        if not connection.ready:
            self._handshake(connection)
            return
        if mask & select.EPOLLOUT:
            try:
                self._links.flush(connection)
            except OSError as fault:
                self._broken(connection, fault)
                return
        if mask & ~select.EPOLLOUT:
            self._readable(connection)

    def _handshake(self, connection: Connection) -> None:
        exchange: Exchange | None = connection.load
        try:
            ready = self._links.advance(connection)
        except OSError as fault:
            if exchange is not None:
                self._fail(exchange, _connect_outcome(fault), f"connect: {fault}", _now_ns())
            else:
                self._links.close(connection)
            return
        if ready and exchange is not None:
            self._send(connection, exchange)

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
            self._links.close(connection)
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
            self._links.close(connection)
            return
        if is_local_fault(fault):
            self._fail(exchange, Outcome.CLIENT_FAULT, str(fault), _now_ns())
        else:
            self._fail(exchange, Outcome.RESET, str(fault), _now_ns())

    # --- endings -------------------------------------------------------------------------------

    def _finish(self, connection: Connection, exchange: Exchange, end_ns: int) -> None:
        outcome, error = exchange.judge_end(exact=self._job.ignore_eos)
        connected_ns = connection.connected_ns
        if exchange.http.keep_alive and not connection.wants_write:
            self._links.keep(connection, connection.user_ns)
        else:
            self._links.close(connection)
        self._write(exchange, connected_ns, end_ns, outcome, error)

    def _fail(self, exchange: Exchange, outcome: Outcome, error: str, end_ns: int) -> None:
        connection = self._flying.get(exchange)
        connected_ns = None
        if connection is not None:
            connected_ns = connection.connected_ns
            self._links.close(connection)
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
        if exchange.request.said is not None and self._goes_on(exchange, end_ns, outcome):
            return
        back_off = outcome in (Outcome.CONNECT_FAILED, Outcome.CLIENT_FAULT)
        self._pace.ended(end_ns, now, back_off=back_off)

    def _goes_on(self, exchange: Exchange, end_ns: int, outcome: Outcome) -> bool:
        """Whether a turn of the same conversation takes the place of the one that ended."""
        request = exchange.request
        if outcome is not Outcome.OK:
            self.skipped += self._stock.turns_after(request)
            return False
        turn = self._stock.follow(request, exchange.answer)
        if turn is None:
            return False
        heapq.heappush(self._turns, (end_ns + self._think_ns, turn.number, turn))
        return True


def _connect_outcome(fault: OSError) -> Outcome:
    return Outcome.CLIENT_FAULT if is_local_fault(fault) else Outcome.CONNECT_FAILED
