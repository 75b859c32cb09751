"""Whether an engine lives. A health page says that a front end answers; only tokens say that the
engine behind it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from kvgate.observe.counters import EngineCounters, increase


class Progress(StrEnum):
    """What two looks at an engine say together."""

    WORKING = "working"  # tokens were made
    IDLE = "idle"  # nothing to do at either look
    HUNG = "hung"  # requests at both looks, and not one token between them
    RESTARTED = "restarted"
    UNKNOWN = "unknown"  # a counter or a whole look is missing


@dataclass(frozen=True, slots=True)
class Stall:
    """Requests without a token from ``from_ns`` to ``to_ns`` (CLOCK_MONOTONIC)."""

    from_ns: int
    to_ns: int

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return (self.to_ns - self.from_ns) / 1e9


def progress(before: EngineCounters | None, after: EngineCounters | None) -> Progress:
    """What happened between two looks. Waiting requests count as work: engines call a request
    waiting while its cache is being loaded."""
    grown = increase(before, after)
    if grown is None or before is None or after is None:
        return Progress.UNKNOWN
    if grown.restarts:
        return Progress.RESTARTED
    made = [grown.delta[name] for name in ("generation_tokens", "prompt_tokens_computed")]
    if any(tokens is not None and tokens > 0 for tokens in made):
        return Progress.WORKING
    loads = [_load(before), _load(after)]
    if made[0] is None or None in loads:
        return Progress.UNKNOWN
    if all(loads):
        return Progress.HUNG
    return Progress.IDLE


def stalls(
    looks: Sequence[tuple[int, EngineCounters | None]], at_least_s: float
) -> tuple[Stall, ...]:
    """Stretches of at least ``at_least_s`` in which every pair of successive looks (t_ns,
    counters) is HUNG. A missing look ends a stretch: it is a gap, and gaps are reported as such."""
    found: list[Stall] = []
    begin_ns: int | None = None
    end_ns = 0
    for (t_before, before), (t_after, after) in pairwise(looks):
        if progress(before, after) is Progress.HUNG:
            begin_ns = t_before if begin_ns is None else begin_ns
            end_ns = t_after
        elif begin_ns is not None:
            found.append(Stall(begin_ns, end_ns))
            begin_ns = None
    if begin_ns is not None:
        found.append(Stall(begin_ns, end_ns))
    return tuple(stall for stall in found if stall.duration_s >= at_least_s)


def _load(counters: EngineCounters) -> float | None:
    if counters.running is None:
        return None
    return counters.running + (counters.waiting or 0.0)
