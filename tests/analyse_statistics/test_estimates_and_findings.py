"""The effect, its companions and what makes a reader doubt it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kvgate.analyse.estimate import (
    estimate_effect,
    hodges_lehmann,
    lag1_correlation,
    share_upper_bound,
    slope_interval,
)
from kvgate.criterion import Effect
from kvgate.errors import UsageError

VALUES = [0.30, 0.36, 0.31, 0.39, 0.28, 0.33, 0.35, 0.32]


def test_mean_and_interval_are_students() -> None:
    estimate = estimate_effect(VALUES, effect=Effect.DROP)
    reference = stats.ttest_1samp(VALUES, 0.0).confidence_interval(0.95)
    assert estimate.valid
    assert estimate.mean_log == pytest.approx(np.mean(VALUES))
    assert estimate.sd_log == pytest.approx(np.std(VALUES, ddof=1))
    assert estimate.interval_log == pytest.approx((reference.low, reference.high))
    assert estimate.effect == pytest.approx(1 - math.exp(-float(np.mean(VALUES))))


@pytest.mark.parametrize("effect", list(Effect))
def test_the_effect_lies_in_its_own_interval_in_the_clauses_terms(effect: Effect) -> None:
    estimate = estimate_effect(VALUES, effect=effect)
    assert estimate.effect is not None
    assert estimate.effect_interval is not None
    assert estimate.effect_interval[0] < estimate.effect < estimate.effect_interval[1]


# Critical values of the signed-rank test, two-sided 5 %, from any printed table: W <= 0, 3, 13, 52.
@pytest.mark.parametrize(("n", "critical"), [(6, 0), (8, 3), (12, 13), (20, 52)])
def test_the_robust_interval_is_that_of_the_signed_rank_table(n: int, critical: int) -> None:
    x = np.random.Generator(np.random.PCG64(n)).standard_normal(n)
    walsh = np.sort([(x[i] + x[j]) / 2 for i in range(n) for j in range(i, n)])
    middle, interval = hodges_lehmann(x.tolist())
    assert middle == pytest.approx(np.median(walsh))
    assert interval == pytest.approx((walsh[critical], walsh[-1 - critical]))


def test_five_pairs_have_no_robust_interval_at_95_percent() -> None:
    assert hodges_lehmann([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, None)
    assert hodges_lehmann([]) == (None, None)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([], "empty"),
        ([0.3, math.nan, 0.2, 0.1], "not_finite"),
        ([0.3, math.inf], "not_finite"),
        ([0.3], "too_few_pairs"),
        ([0.3] * 6, "zero_spread"),
    ],
)
def test_what_cannot_be_estimated_says_why(values: list[float], reason: str) -> None:
    estimate = estimate_effect(values)
    assert not estimate.valid
    assert estimate.reason == reason
    assert estimate.interval_log is None
    assert estimate.findings == ()


def test_a_wild_pair_makes_the_robust_estimate_disagree() -> None:
    assert "robust_disagrees" in estimate_effect([*VALUES, 3.0]).findings
    assert "robust_disagrees" not in estimate_effect(VALUES).findings


def test_a_trend_is_found_with_its_slope() -> None:
    values = [0.30 + 0.01 * k + (-1) ** k * 0.004 for k in range(12)]
    estimate = estimate_effect(values)
    assert "drift" in estimate.findings
    assert estimate.drift_log == pytest.approx(0.01, abs=0.001)
    assert estimate.drift_interval_log is not None
    assert estimate.drift_interval_log[0] > 0


def test_noise_that_carries_over_is_found() -> None:
    values = [0.3, 0.31, 0.33, 0.34, 0.34, 0.33, 0.31, 0.29, 0.27, 0.26, 0.27, 0.29]
    estimate = estimate_effect(values)
    assert "lag1" in estimate.findings
    assert estimate.lag1 is not None
    assert estimate.lag1 > 0.6
    assert lag1_correlation(np.array([1.0, 2.0, 3.0])) is None


def test_the_order_of_the_arms_is_found_and_keeps_its_sign() -> None:
    second = [True, False, False, True, True, False, False, True]
    values = [0.3 + (-0.05 if late else 0.05) + 0.002 * k for k, late in enumerate(second)]
    estimate = estimate_effect(values, tested_second=second)
    assert "order_effect" in estimate.findings
    assert estimate.order_log == pytest.approx(-0.1, abs=0.01)
    assert estimate_effect(values).order_log is None
    assert estimate_effect(values, tested_second=[True] * 8).order_log is None
    with pytest.raises(UsageError):
        estimate_effect(values, tested_second=[True])


def test_clean_campaigns_seldom_raise_findings() -> None:
    rng = np.random.Generator(np.random.PCG64(11))
    second = [True, False] * 6
    counts = dict.fromkeys(("robust_disagrees", "lag1", "drift", "order_effect"), 0)
    campaigns = 250
    for _ in range(campaigns):
        for code in estimate_effect(
            rng.normal(0.3, 0.06, 12).tolist(), tested_second=second
        ).findings:
            counts[code] += 1
    # Nominal 1 % (lag1 5 %); limits four standard errors above.
    assert counts.pop("lag1") <= campaigns * 0.05 + 4 * math.sqrt(campaigns * 0.05 * 0.95)
    assert max(counts.values()) <= campaigns * 0.01 + 4 * math.sqrt(campaigns * 0.01 * 0.99)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-1, 1), min_size=2, max_size=16),
    shift=st.floats(-1, 1),
    seed=st.integers(0, 999),
)
def test_estimates_move_with_the_data_and_ignore_their_order(
    values: list[float], shift: float, seed: int
) -> None:
    plain = estimate_effect(values)
    moved = estimate_effect([value + shift for value in values])
    shuffled = list(values)
    random.Random(seed).shuffle(shuffled)
    other = estimate_effect(shuffled)
    if not (plain.valid and moved.valid):
        return
    assert plain.mean_log is not None and plain.robust_log is not None
    assert moved.mean_log == pytest.approx(plain.mean_log + shift, abs=1e-9)
    assert moved.robust_log == pytest.approx(plain.robust_log + shift, abs=1e-9)
    assert other.mean_log == plain.mean_log
    assert other.robust_log == plain.robust_log


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=14),
)
def test_no_input_raises_and_no_broken_input_is_valid(values: list[float]) -> None:
    estimate = estimate_effect(values)
    if not all(math.isfinite(value) for value in values):
        assert not estimate.valid
    if estimate.valid:
        assert estimate.interval_log is not None
        assert all(math.isfinite(end) for end in estimate.interval_log)


def test_the_slope_survives_wild_points_and_refuses_too_little() -> None:
    times = [float(k) for k in range(20)]
    values = [2.0 * t + (-1) ** k * 0.1 for k, t in enumerate(times)]
    values[3] = values[15] = 1e6
    slope = slope_interval(times, values)
    assert slope.slope == pytest.approx(2.0, abs=0.05)
    assert slope.lower is not None
    assert slope.upper is not None
    assert slope.lower <= 2.0 <= slope.upper
    assert slope_interval([1.0, 2.0], [1.0, 2.0]).reason == "too_few_points"
    assert slope_interval([1.0] * 8, values[:8]).reason == "one_time"
    assert slope_interval(times, [math.nan] * 20).reason == "not_finite"
    with pytest.raises(UsageError):
        slope_interval([1.0], [])


def test_the_bound_of_a_share_is_clopper_pearsons() -> None:
    assert share_upper_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert share_upper_bound(3, 50, 0.99) == pytest.approx(float(stats.beta.ppf(0.99, 4, 47)))
    assert share_upper_bound(7, 7) == 1.0
    assert share_upper_bound(0, 0) is None
    with pytest.raises(UsageError):
        share_upper_bound(3, 2)
