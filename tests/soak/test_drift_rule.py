"""Window noise fails no good appliance; a late or short slowdown never passes."""

from __future__ import annotations

import numpy as np
import pytest

from kvgate.analyse.results import SoakWindow
from kvgate.analyse.soak.windows import drift, longest_silence, worst_window

HOUR_S = 3600.0


def windows(factor: np.ndarray, sd: float = 0.0, seed: int = 0) -> list[SoakWindow]:
    """72 hours, the first of them left out as warm-up, in a closed loop."""
    rng = np.random.default_rng(seed)
    ttft = 12.0 * factor * np.exp(sd * rng.normal(size=72))
    return [SoakWindow(k * HOUR_S, (k + 1) * HOUR_S, 4000, 0, float(t), 75 / float(t), 1e9)
            for k, t in enumerate(ttft) if k]  # fmt: skip


def fails(found: list[SoakWindow]) -> bool:
    rise = drift(found, "ttft_p50_s", 6 * HOUR_S)
    fall = drift(found, "output_tok_per_s", 6 * HOUR_S, sign=-1)
    worst = worst_window(found)
    assert rise is not None
    assert fall is not None
    assert worst is not None
    return max(rise, fall) > 0.10 or worst > 0.5


def test_noise_of_three_percent_fails_no_good_appliance() -> None:
    assert not any(fails(windows(np.ones(72), 0.03, seed)) for seed in range(50))


@pytest.mark.parametrize("last_hours", [1, 2, 6, 18, 20, 36])
def test_ten_times_the_ttft_at_the_end_never_passes(last_hours: int) -> None:
    factor = np.where(np.arange(72) >= 72 - last_hours, 10.0, 1.0)
    assert fails(windows(factor))
    assert all(fails(windows(factor, 0.03, seed)) for seed in range(10))


def test_a_window_in_which_nothing_came_out_is_the_worst() -> None:
    found = windows(np.ones(72))
    found[40] = SoakWindow(41 * HOUR_S, 42 * HOUR_S, 0, 0, None, 0.0, 1e9)
    assert worst_window(found) == pytest.approx(999.0)
    assert drift(found, "ttft_p50_s", 6 * HOUR_S) is None


def test_too_few_windows_or_a_stretch_without_one_say_nothing() -> None:
    found = windows(np.ones(72))
    assert drift(found[:5], "ttft_p50_s", 6 * HOUR_S) is None
    assert worst_window(found[:5]) is None
    assert drift(found, "ttft_p50_s", 600.0) is None


def test_silence_is_counted_from_the_first_request_to_the_very_end() -> None:
    good = np.array([10.0, 20.0, 30.0])
    assert longest_silence(good, 5.0, 100.0, []) == 70.0
    assert longest_silence(good, 0.0, 35.0, []) == 10.0
    assert longest_silence(good, 5.0, 100.0, [(30.0, 90.0)]) == 10.0
    assert longest_silence(np.empty(0), 0.0, 50.0, []) == 50.0
