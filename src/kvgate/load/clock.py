"""Kernel stamps are CLOCK_REALTIME; records are CLOCK_MONOTONIC. This keeps the two together."""

from __future__ import annotations

import time
from typing import Final

from kvgate.load.histogram import Histogram

_STEP_NS: Final = 1_000_000
_SUSPECT_LAG_NS: Final = 50_000_000
_NOISE_NS: Final = 100_000


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

    __slots__ = ("largest_step_ns", "ns", "start_ns", "steps")

    def __init__(self) -> None:
        self.ns = _realtime_minus_monotonic_ns()
        self.start_ns = self.ns
        self.steps = 0
        self.largest_step_ns = 0

    def measure(self) -> bool:
        """Measure anew; whether the clock was stepped since the last time."""
        now = _realtime_minus_monotonic_ns()
        stepped = abs(now - self.ns) > _STEP_NS
        self.largest_step_ns = max(self.largest_step_ns, abs(now - self.ns) if stepped else 0)
        self.steps += stepped
        self.ns = now
        return stepped


class ReceiveClock:
    """Kernel receive stamps on CLOCK_MONOTONIC, and how late user space was beside them."""

    __slots__ = ("lags", "offset", "unstamped")

    def __init__(self) -> None:
        self.offset = Offset()
        self.lags = Histogram()
        self.unstamped = 0

    def stamp(self, real_ns: int | None, user_ns: int) -> tuple[int, int | None]:
        """Receive time and lag, ns, of a read that had its bytes at ``user_ns``.

        The lag is ``None`` where there is no kernel stamp to trust: then the time is the user space
        one, an upper bound.
        """
        if real_ns is None:
            self.unstamped += 1
            return user_ns, None
        stamp = real_ns - self.offset.ns
        lag = user_ns - stamp
        if lag < 0 or lag > _SUSPECT_LAG_NS:
            # From the future or long ago: clock noise, late reading, or a stepped clock.
            if lag < -_NOISE_NS or lag > _SUSPECT_LAG_NS:
                self.offset.measure()
                stamp = real_ns - self.offset.ns
                lag = user_ns - stamp
            if lag < -_NOISE_NS:
                self.unstamped += 1
                return user_ns, None
            if lag < 0:
                stamp, lag = user_ns, 0
        self.lags.add(lag)
        return stamp, lag
