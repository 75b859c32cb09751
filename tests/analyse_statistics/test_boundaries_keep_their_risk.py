"""The multipliers of the looks spend exactly the risk that they are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kvgate.analyse.boundary import critical_values, spent_risk
from kvgate.errors import UsageError


@pytest.mark.parametrize(("n", "alpha"), [(2, 0.05), (4, 0.01), (12, 0.05), (48, 0.001)])
def test_a_single_look_is_the_one_sample_t_test(n: int, alpha: float) -> None:
    (critical,) = critical_values(n, n, alpha)
    assert critical == pytest.approx(float(stats.t.isf(alpha, n - 1)), rel=1e-9)


def test_the_first_look_spends_what_is_due_by_then() -> None:
    first = critical_values(4, 12, 0.05)[0]
    due = 0.05 * math.expm1(2 * 4 / 12) / math.expm1(2)
    assert float(stats.t.sf(first, 3)) == pytest.approx(due, rel=1e-9)


def test_two_looks_cross_as_often_as_the_sphere_says() -> None:
    # Three normal values are a radius and a point on the sphere; t knows only the point, whose
    # height and longitude are uniform. The share of the sphere that crosses is the risk, by area.
    alpha = 0.10
    second, third = critical_values(2, 3, alpha)
    steps = 1000
    longitude = (np.arange(steps) + 0.5) / steps * 2 * math.pi
    height = (np.arange(steps) + 0.5) / steps * 2 - 1
    radius = np.sqrt(1 - height**2)[:, None]
    x = np.stack(
        np.broadcast_arrays(radius * np.cos(longitude), radius * np.sin(longitude), height[:, None])
    )
    crossed = np.zeros((steps, steps), dtype=bool)
    for n, critical in ((2, second), (3, third)):
        part = x[:n]
        crossed |= part.mean(axis=0) > critical * part.std(axis=0, ddof=1) / math.sqrt(n)
    assert float(crossed.mean()) == pytest.approx(alpha, abs=5e-4)


@pytest.mark.parametrize("plan", [(2, 12, 0.05), (4, 24, 0.025), (8, 16, 0.2)])
def test_simulated_campaigns_cross_within_four_standard_errors(
    plan: tuple[int, int, float],
) -> None:
    low, high, alpha = plan
    rng = np.random.Generator(np.random.PCG64(7))
    campaigns = 40_000
    x = rng.standard_normal((campaigns, high))
    n = np.arange(1, high + 1)
    mean = np.cumsum(x, axis=1) / n
    square = np.cumsum(x * x, axis=1) - n * mean**2
    looks = slice(low - 1, high)
    error = np.sqrt(square[:, looks] / (n[looks] - 1) / n[looks])
    rate = float((mean[:, looks] > np.array(critical_values(*plan)) * error).any(axis=1).mean())
    assert abs(rate - alpha) < 4 * math.sqrt(alpha * (1 - alpha) / campaigns)


@settings(max_examples=15, deadline=None)
@given(
    low=st.integers(2, 16),
    more=st.integers(0, 32),
    alpha=st.floats(0.001, 0.2),
)
def test_every_plan_has_multipliers_and_less_risk_means_wider(
    low: int, more: int, alpha: float
) -> None:
    wide = critical_values(low, low + more, alpha)
    wider = critical_values(low, low + more, alpha / 2)
    assert len(wide) == more + 1
    assert all(0 < a < b < math.inf for a, b in zip(wide, wider, strict=True))
    # No look is easier than a plain t test at the whole risk.
    for n, critical in enumerate(wide, start=low):
        assert critical >= float(stats.t.isf(alpha, n - 1)) * (1 - 1e-6)


def test_the_risk_spent_rises_to_the_whole_and_not_beyond() -> None:
    spent = [spent_risk(k / 12, 0.05) for k in range(14)]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert spent[12] == spent[13] == 0.05
    assert spent_risk(0.5, 0.05, gamma=0.0) == 0.025


@pytest.mark.parametrize(
    "plan", [(1, 4, 0.05), (5, 4, 0.05), (2, 257, 0.05), (4, 12, 0.0), (4, 12, 0.5)]
)
def test_impossible_plans_are_refused_with_a_remedy(plan: tuple[int, int, float]) -> None:
    with pytest.raises(UsageError, match="choose"):
        critical_values(*plan)
    with pytest.raises(UsageError):
        critical_values(4, 12, math.nan)
