"""Kernel stamps are CLOCK_REALTIME; records are CLOCK_MONOTONIC. This keeps the two together."""

from __future__ import annotations

import time
from typing import Final

_STEP_NS: Final = 1_000_000


def _realtime_minus_monotonic_ns() -> int:
    best_width = 1 << 62
    best = 0
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.monotonic_ns()
        # The narrowest bracket was interrupted the least.
        if after - before < best_width:
            best_width = after - before
            best = real - (before + after) // 2
    return best


class Offset:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, measured again and again.

    NTP slews both clocks alike, so the difference moves only when somebody sets the clock. A change
    of more than 1 ms is counted as a step.
    """

    __slots__ = ("ns", "start_ns", "steps")

    def __init__(self) -> None:
        self.ns = _realtime_minus_monotonic_ns()
        self.start_ns = self.ns
        self.steps = 0

    def measure(self) -> bool:
        """Measure anew; whether the clock was stepped since the last time."""
        now = _realtime_minus_monotonic_ns()
        stepped = abs(now - self.ns) > _STEP_NS
        self.steps += stepped
        self.ns = now
        return stepped
