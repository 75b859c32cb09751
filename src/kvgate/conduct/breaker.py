"""Ends a lost long run: too many failed requests within one sliding window."""

from __future__ import annotations

from collections import deque
from typing import Final

from kvgate.reason import Reason

LEAST: Final = 20
"""Finished requests without which a share says nothing; or two rounds of the level."""


class Breaker:
    """Looks at the counts of finished and failed requests as they grow.

    A share over the whole run would be blind after a good day: sixty thousand good requests
    outweigh fifty thousand failed ones. Only what finished within the last ``window_s`` counts.
    Before half of the first window only a run without a single good request is lost: an engine that
    is away for a minute fails more requests in it than it serves.
    """

    def __init__(self, window_s: float, failed_share: float, level: int) -> None:
        self._window_s = window_s
        self._limit = failed_share
        self._least = max(LEAST, 2 * level)
        self._told: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    def tell(self, now_s: float, done: int, failed: int) -> Reason | None:
        """Counts since the run's start at ``now_s``; why the run is lost, None where it is not."""
        told = self._told
        if (done, failed) != told[-1][1:]:
            told.append((now_s, done, failed))
        # The newest state that lies at least a window back is what the window began with.
        while len(told) > 1 and told[1][0] <= now_s - self._window_s:
            told.popleft()
        _, done_before, failed_before = told[0]
        finished, lost = done - done_before, failed - failed_before
        young = now_s < self._window_s / 2 and lost < finished
        if finished >= self._least and lost / finished > self._limit and not young:
            told_s = f"{self._window_s:,.0f}"
            return Reason("too_many_failed", {"count": lost, "n": finished, "seconds": told_s})
        return None
