"""How far another host's monotonic clock is from ours, from round trips alone.

``python -m kvgate.load.offsets`` answers each line of its standard input with its host's
CLOCK_MONOTONIC in ns; whoever asks over a connection that is already open notes when.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from kvgate.errors import CannotMeasure


class RoundTrip(NamedTuple):
    """Asked and answered on our clock, ``remote_ns`` on the other's in between."""

    asked_ns: int
    remote_ns: int
    answered_ns: int


class ClockOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The other clock minus ours, ns, and the most by which that may be wrong.

    ``agreed`` is False where no single offset explains all round trips: a clock was stepped, or
    ran at another speed; the uncertainty then spans them all.
    """

    offset_ns: int
    uncertainty_ns: int
    round_trips: int
    agreed: bool


SAME_HOST = ClockOffset(offset_ns=0, uncertainty_ns=0, round_trips=0, agreed=True)
"""Processes of one host share one CLOCK_MONOTONIC."""


def ask(clock: Callable[[], int], times: int) -> list[RoundTrip]:
    """Ask ``clock`` (the other host's, ns) so many times in a row."""
    trips = []
    for _ in range(times):
        asked = time.monotonic_ns()
        remote = clock()
        trips.append(RoundTrip(asked, remote, time.monotonic_ns()))
    return trips


def estimate_offset(trips: Sequence[RoundTrip]) -> ClockOffset:
    """The offset that all round trips allow.

    Each says that the offset lies between ``remote - answered`` and ``remote - asked``, however
    the delay was spread over the two ways (Cristian 1989); the truth lies in all these intervals
    (Marzullo 1984). The estimate is the middle of their intersection, the uncertainty half of it.
    Raises :class:`CannotMeasure` without a round trip, or where one ends before it begins.
    """
    if not trips:
        raise CannotMeasure("no round trip to the load host: its clock is unknown")
    if any(trip.answered_ns < trip.asked_ns for trip in trips):
        raise CannotMeasure("a round trip ended before it began: the clock is not monotonic")
    low = max(trip.remote_ns - trip.answered_ns for trip in trips)
    high = min(trip.remote_ns - trip.asked_ns for trip in trips)
    agreed = low <= high
    if not agreed:
        low = min(trip.remote_ns - trip.answered_ns for trip in trips)
        high = max(trip.remote_ns - trip.asked_ns for trip in trips)
    return ClockOffset(
        offset_ns=(low + high) // 2,
        uncertainty_ns=-(-(high - low) // 2),
        round_trips=len(trips),
        agreed=agreed,
    )


def refreshed(known: ClockOffset, new: ClockOffset) -> ClockOffset:
    """``new`` where it contradicts what was ``known``, since the clocks drifted apart; else
    ``known``, for an answer that was long on its way says little and would move times by seconds.
    """
    within = abs(new.offset_ns - known.offset_ns) <= new.uncertainty_ns
    return known if within else new


def over_block(before: ClockOffset, after: ClockOffset) -> ClockOffset:
    """One offset for a block between two estimates; their difference is uncertainty."""
    low = min(e.offset_ns - e.uncertainty_ns for e in (before, after))
    high = max(e.offset_ns + e.uncertainty_ns for e in (before, after))
    return ClockOffset(
        offset_ns=(before.offset_ns + after.offset_ns) // 2,
        uncertainty_ns=max(
            high - (before.offset_ns + after.offset_ns) // 2,
            (before.offset_ns + after.offset_ns) // 2 - low,
        ),
        round_trips=before.round_trips + after.round_trips,
        agreed=before.agreed and after.agreed,
    )


def main() -> int:
    """Answer every line with this host's clock, until the input ends."""
    for _ in sys.stdin:
        print(time.monotonic_ns(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
