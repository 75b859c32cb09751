"""The breaker ends a lost run, whatever went well before."""

from __future__ import annotations

from kvgate.conduct.breaker import Breaker

WINDOW_S = 3600.0


def first_trip(breaker: Breaker, told: list[tuple[float, int, int]]) -> float | None:
    """The moment at which it trips; ``told`` are (s, finished, failed) since the start."""
    return next((at for at, done, failed in told if breaker.tell(at, done, failed)), None)


def test_a_good_day_does_not_hide_a_lost_hour() -> None:
    """Sixty thousand good requests, then fifty thousand failed ones: 45 % of all."""
    good = [(60.0 * i, 1000 * i, 0) for i in range(1, 61)]
    lost = [(3600 + 60.0 * i, 60_000 + 1000 * i, 1000 * i) for i in range(1, 51)]
    at_s = first_trip(Breaker(WINDOW_S, 0.5, 8), good + lost)
    assert at_s is not None
    assert 3600 + 1800 <= at_s <= 3600 + 2000


def test_failures_that_lie_a_window_back_are_forgotten() -> None:
    burst = [(float(i), i, i) for i in range(1, 11)]
    calm = [(10.0 + 10 * i, 10 + i, 10) for i in range(1, 1000)]
    breaker = Breaker(WINDOW_S, 0.5, 8)
    assert first_trip(breaker, burst + calm) is None


def test_a_run_that_fails_from_its_first_request_ends_at_once() -> None:
    assert first_trip(Breaker(WINDOW_S, 0.5, 8), [(float(i), i, i) for i in range(1, 200)]) == 20.0


def test_a_minute_without_an_engine_at_the_start_does_not_end_the_run() -> None:
    away = [(60.0, 20, 0), (90.0, 120, 100), (150.0, 180, 100)]
    goes_on = [(60.0 * k, 60 * k, 100) for k in range(3, 70)]
    assert first_trip(Breaker(WINDOW_S, 0.5, 8), away + goes_on) is None
    lost = [(60.0 * k, 40 * k, 40 * k - 20) for k in range(1, 70)]
    assert first_trip(Breaker(WINDOW_S, 0.5, 8), lost) == 1800.0


def test_few_requests_say_nothing_and_a_higher_level_needs_two_rounds() -> None:
    lost = [(float(i), i, i) for i in range(1, 200)]
    assert first_trip(Breaker(WINDOW_S, 0.5, 8), lost[:19]) is None
    assert first_trip(Breaker(WINDOW_S, 0.5, 32), lost) == 64.0


def test_half_is_not_more_than_half() -> None:
    even = [(float(i), 2 * i, i) for i in range(1, 500)]
    assert first_trip(Breaker(WINDOW_S, 0.5, 8), even) is None


def test_what_is_told_once_a_day_is_not_lost() -> None:
    """Counts that did not change keep the state that the window began with."""
    breaker = Breaker(10.0, 0.5, 8)
    assert not breaker.tell(1.0, 100, 0)
    for second in range(2, 1000):
        assert not breaker.tell(float(second), 100, 0)
    assert breaker.tell(1000.0, 150, 40)
