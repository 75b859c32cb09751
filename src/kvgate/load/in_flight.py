"""How many requests were in flight, on average and at most."""

from __future__ import annotations


class InFlight:
    """Counts issues and ends; ``mean`` is the time average over the planned level.

    It runs from the moment the level was first reached (``full_since_ns``) to the last issue, and
    is ``None`` where the level was never reached.
    """

    __slots__ = ("_area", "_at_ns", "_level", "_now", "full_since_ns", "mean", "most")

    def __init__(self, level: int) -> None:
        self._level = level
        self._now = 0
        self._area = 0
        self._at_ns = 0
        self.full_since_ns: int | None = None
        self.most = 0
        self.mean: float | None = None

    def issued(self, now_ns: int) -> None:
        """One more."""
        self._count(now_ns)
        self._now += 1
        if self._now > self.most:
            self.most = self._now
        if self.full_since_ns is None:
            if self._now >= self._level:
                self.full_since_ns = now_ns
                self._area = 0
        elif now_ns > self.full_since_ns:
            self.mean = self._area / (now_ns - self.full_since_ns)

    def ended(self, now_ns: int) -> None:
        """One less."""
        self._count(now_ns)
        self._now -= 1

    def _count(self, now_ns: int) -> None:
        self._area += self._now * (now_ns - self._at_ns)
        self._at_ns = now_ns
