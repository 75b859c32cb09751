"""The clocks of this host. Durations come from CLOCK_MONOTONIC; CLOCK_REALTIME is a label only, and
its jumps are found by comparing the two."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

STEP_LIMIT_NS: Final = 1_000_000
"""1 ms: far above the jitter of reading two clocks, far below a step that NTP makes (128 ms)."""
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ClockState:
    """Both clocks at one moment, in ns; ``offset_ns`` is realtime minus monotonic."""

    monotonic_ns: int
    realtime_ns: int
    offset_ns: int

    def to_json(self) -> dict[str, int]:
        """``{"monotonic_ns": int, "realtime_ns": int, "offset_ns": int}``."""
        return {
            "monotonic_ns": self.monotonic_ns,
            "realtime_ns": self.realtime_ns,
            "offset_ns": self.offset_ns,
        }


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of the wall clock by ``step_ns`` (negative: backwards), seen at ``monotonic_ns``."""

    monotonic_ns: int
    step_ns: int

    def to_json(self) -> dict[str, Any]:
        """``{"monotonic_ns": int, "step_ns": int}``."""
        return {"monotonic_ns": self.monotonic_ns, "step_ns": self.step_ns}


def clock_state() -> ClockState:
    """Both clocks now. Of a few readings the tightest is taken, for a reading that was preempted
    half-way looks like a step."""
    best: tuple[int, ClockState] | None = None
    for _ in range(_TRIES):
        before_ns = time.monotonic_ns()
        realtime_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        middle_ns = (before_ns + after_ns) // 2
        if best is None or after_ns - before_ns < best[0]:
            state = ClockState(middle_ns, realtime_ns, realtime_ns - middle_ns)
            best = (after_ns - before_ns, state)
    if best is None:  # pragma: no cover - the loop runs at least once
        raise RuntimeError("no clock")
    return best[1]


def detect_steps(
    states: Sequence[ClockState], limit_ns: int = STEP_LIMIT_NS
) -> tuple[ClockStep, ...]:
    """Jumps of more than ``limit_ns`` between successive states.

    NTP's slewing bends both clocks alike and is no step; a suspended host, whose monotonic clock
    stood still, is one.
    """
    return tuple(
        ClockStep(after.monotonic_ns, after.offset_ns - before.offset_ns)
        for before, after in pairwise(states)
        if abs(after.offset_ns - before.offset_ns) > limit_ns
    )
