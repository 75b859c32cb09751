"""Who may go next: free places of a closed loop, or the times of an open one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

BACKOFF_NS: Final = 250_000_000


class Pace(Protocol):
    """Decides when the next request goes out.

    ``free`` is what the loop looks at after every event; it stays empty in an open loop.
    ``next_ns`` is when to look again, ``None`` where only an answer can change anything.
    """

    free: deque[int]
    next_ns: int | None

    def due(self, now_ns: int, in_flight: int) -> int | None:
        """The intended time of a request that may go now, ``None`` if none may."""

    def ended(self, end_ns: int, now_ns: int, *, back_off: bool) -> None:
        """A request ended at ``end_ns``; its place may be free."""

    def tick(self, now_ns: int) -> None:
        """Called every 100 ms."""


class ClosedPace:
    """A request whenever one ends. ``changes`` are those of ``arrivals.level_changes``."""

    def __init__(self, start_ns: int, changes: list[int]) -> None:
        self.free: deque[int] = deque()
        self._start_ns = start_ns
        self._changes = deque(changes)
        self._leaving = 0
        self._back_off: deque[tuple[int, int]] = deque()
        self.next_ns: int | None = start_ns
        self._change(start_ns)

    def _change(self, now_ns: int) -> None:
        while self._changes and (at := self._start_ns + abs(self._changes[0])) <= now_ns:
            if self._changes.popleft() >= 0:
                self.free.append(at)
            elif self.free:
                self.free.pop()
            else:
                self._leaving += 1
        self.next_ns = self._start_ns + abs(self._changes[0]) if self._changes else None

    def due(self, now_ns: int, in_flight: int) -> int | None:
        """The moment at which the next place became free."""
        if self.next_ns is not None and self.next_ns <= now_ns:
            self._change(now_ns)
        return self.free.popleft() if self.free else None

    def ended(self, end_ns: int, now_ns: int, *, back_off: bool) -> None:
        """A dead server must not eat the whole plan in a moment: its place rests."""
        if self._leaving:
            self._leaving -= 1
        elif back_off:
            self._back_off.append((now_ns + BACKOFF_NS, now_ns))
        else:
            self.free.append(end_ns)

    def tick(self, now_ns: int) -> None:
        """Give back the places that have rested."""
        while self._back_off and self._back_off[0][0] <= now_ns:
            self.free.append(self._back_off.popleft()[1])


class OpenPace:
    """Requests at their times, at most ``bound`` in flight; the waiting shows in the record."""

    def __init__(self, start_ns: int, times: Iterator[int], bound: int) -> None:
        self.free: deque[int] = deque()
        self._start_ns = start_ns
        self._times = times
        self._bound = bound
        self.next_ns: int | None = None
        self._advance()

    def _advance(self) -> None:
        offset = next(self._times, None)
        self.next_ns = None if offset is None else self._start_ns + offset

    def due(self, now_ns: int, in_flight: int) -> int | None:
        """The next time, once it is there and there is room."""
        intended = self.next_ns
        if intended is None or intended > now_ns or in_flight >= self._bound:
            return None
        self._advance()
        return intended

    def ended(self, end_ns: int, now_ns: int, *, back_off: bool) -> None:
        """Nothing: arrivals do not wait for answers."""

    def tick(self, now_ns: int) -> None:
        """Nothing."""
