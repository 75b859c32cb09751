"""Kernel stamps on the monotonic clock, and the count in flight."""

from __future__ import annotations

import time

import pytest

from kvgate.load import clock
from kvgate.load.in_flight import InFlight


def test_row_78_a_stepped_clock_is_counted_and_stamps_follow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offset = clock.Offset()
    before = offset.ns
    assert not offset.measure()
    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) - 30 * 10**9)
    assert offset.measure()
    assert offset.steps == 1
    assert abs(offset.ns - (before - 30 * 10**9)) < 10**6
    assert not offset.measure()


def test_row_78_a_stamp_is_never_in_the_future_and_a_step_is_followed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamps = clock.ReceiveClock()
    ns = stamps.offset.ns
    assert stamps.stamp(1_000_000_000 + ns, 1_000_000_700) == (1_000_000_000, 700)
    # Within the noise of the offset: now.
    assert stamps.stamp(1_000_000_900 + ns, 1_000_000_700) == (1_000_000_700, 0)
    # No stamp, or one that no offset explains: user space's time, an upper bound.
    assert stamps.stamp(None, 1_000_000_700) == (1_000_000_700, None)
    assert stamps.stamp(9_000_000_000 + ns, 1_000_000_700) == (1_000_000_700, None)
    assert stamps.unstamped == 2
    assert stamps.offset.steps == 0
    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) - 30 * 10**9)
    now = time.monotonic_ns()
    stamp, lag = stamps.stamp(now + ns - 30 * 10**9 - 5000, now)
    assert lag is not None
    assert abs(lag - 5000) < 100_000
    assert stamp == now - lag
    assert stamps.offset.steps == 1


def test_the_mean_in_flight_is_taken_from_the_first_full_moment_to_the_last_issue() -> None:
    flights = InFlight(2)
    for at in (0, 10):
        flights.issued(at)
    assert flights.mean is None
    flights.ended(20)
    flights.issued(25)
    assert flights.mean == pytest.approx((10 * 2 + 5 * 1) / 15)
    flights.ended(90)
    flights.ended(99)
    assert flights.mean == pytest.approx(25 / 15)
    assert flights.most == 2
