"""The walk over the looks: what passes, what fails, and what never does."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvgate.analyse.sequential import (
    Crossing,
    LookPlan,
    carry_over_inflation,
    critical_values,
    first_crossing,
    repeated_interval,
)
from kvgate.errors import UsageError

PLAN = LookPlan(4, 12, 0.05, 0.05)
THRESHOLD = -math.log1p(-0.25)
PASS_BOUND = -math.log1p(-0.22)

effects = st.lists(st.floats(-1.0, 1.0, allow_nan=False), min_size=0, max_size=14)
# Values that a measurement could give: a truth near the bounds with noise.
campaigns = st.builds(
    lambda truth, noise: [truth + value for value in noise],
    st.floats(0.0, 0.6),
    st.lists(st.floats(-0.15, 0.15), min_size=0, max_size=14),
)


def walk(values: list[float], *, require_estimate: bool = True, plan: LookPlan = PLAN) -> Crossing:
    return first_crossing(values, plan, PASS_BOUND, THRESHOLD, THRESHOLD, require_estimate)


def test_a_good_appliance_passes_and_a_bad_one_fails_by_hand() -> None:
    good = walk([0.40, 0.41, 0.42, 0.40, 0.0, 0.0])
    assert (good.outcome, good.look, good.ignored, good.final) == ("pass", 4, 2, True)
    bad = walk([0.10, 0.11, 0.12, 0.10])
    assert (bad.outcome, bad.look, bad.final) == ("fail", 4, True)


def test_the_interval_is_mean_and_spread_times_the_multiplier() -> None:
    values = [0.3, 0.32, 0.35, 0.28, 0.33]
    interval = repeated_interval(
        values, min_pairs=4, max_pairs=12, alpha_lower=0.05, alpha_upper=0.01
    )
    mean = sum(values) / 5
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / 4 / 5)
    assert interval.lower == pytest.approx(mean - critical_values(4, 12, 0.05)[1] * error)
    assert interval.upper == pytest.approx(mean + critical_values(4, 12, 0.01)[1] * error)


def test_an_estimate_below_the_threshold_passes_only_where_the_clause_waives_it() -> None:
    tight = [0.275, 0.277, 0.276, 0.278] * 3  # between the bounds, below the threshold
    wide_plan = LookPlan(4, 12, 0.05, 0.001)
    near = [THRESHOLD - 0.0005 + d for d in (-0.004, 0.004, -0.003, 0.003)] * 3
    assert walk(near, plan=wide_plan).outcome == "open"
    assert walk(near, plan=wide_plan, require_estimate=False).outcome == "pass"
    # Known to lie below the threshold: that fails, waived or not.
    assert walk(tight, require_estimate=False).outcome == "fail"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("place", [0, 3, 5, 11])
def test_a_value_that_is_no_number_decides_nothing(bad: float, place: int) -> None:
    values = [0.40 + 0.01 * (k % 3) for k in range(12)]
    values[place] = bad
    crossing = walk(values)
    assert (crossing.outcome, crossing.reason, crossing.final) == ("open", "not_finite", False)


def test_no_pairs_and_too_few_pairs_decide_nothing() -> None:
    assert walk([]).reason == "empty"
    assert walk([0.5, 0.51, 0.52]).reason == "too_few_pairs"
    assert walk([0.5]).outcome == "open"


def test_values_without_spread_decide_nothing_whatever_the_floor() -> None:
    same = [0.5] * 12
    assert (walk(same).outcome, walk(same).reason) == ("open", "zero_spread")
    floored = LookPlan(4, 12, 0.05, 0.05, sd_floor=0.04)
    assert (walk(same, plan=floored).outcome, walk(same, plan=floored).reason) == (
        "open",
        "zero_spread",
    )
    interval = repeated_interval(
        same, min_pairs=4, max_pairs=12, alpha_lower=0.05, alpha_upper=0.05
    )
    assert (interval.lower, interval.upper, interval.reason) == (None, None, "zero_spread")


def test_max_pairs_is_final() -> None:
    undecided = [THRESHOLD + d for d in (-0.10, 0.10, -0.12, 0.12)] * 3
    crossing = walk([*undecided, 0.9, 0.9])
    assert (crossing.outcome, crossing.look, crossing.final) == ("open", 12, True)
    assert crossing.ignored == 2
    assert not walk(undecided[:8]).final
    with pytest.raises(UsageError, match="max_pairs is final"):
        repeated_interval(
            [*undecided, 0.9], min_pairs=4, max_pairs=12, alpha_lower=0.05, alpha_upper=0.05
        )


@settings(max_examples=300, deadline=None)
@given(values=campaigns, shift=st.floats(0.0, 0.5), waived=st.booleans())
def test_more_of_a_good_effect_never_turns_pass_into_anything_else(
    values: list[float], shift: float, waived: bool
) -> None:
    before = walk(values, require_estimate=not waived)
    after = walk([value + shift for value in values], require_estimate=not waived)
    if before.outcome == "pass":
        assert after.outcome == "pass"
        assert after.look <= before.look
    if after.outcome == "fail":
        assert before.outcome == "fail"


@settings(max_examples=200, deadline=None)
@given(values=campaigns, later=effects)
def test_pairs_after_the_crossing_change_nothing(values: list[float], later: list[float]) -> None:
    before = walk(values)
    after = walk([*values, *later])
    if before.outcome != "open":
        assert (after.outcome, after.look, after.interval) == (
            before.outcome,
            before.look,
            before.interval,
        )


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.floats(-1, 1), min_size=4, max_size=12), seed=st.integers(0, 999))
def test_the_interval_at_one_look_does_not_depend_on_the_order(
    values: list[float], seed: int
) -> None:
    shuffled = list(values)
    random.Random(seed).shuffle(shuffled)
    one, other = (
        repeated_interval(v, min_pairs=4, max_pairs=12, alpha_lower=0.05, alpha_upper=0.05)
        for v in (values, shuffled)
    )
    assert one == other


@settings(max_examples=200, deadline=None)
@given(values=campaigns, carry=st.floats(0.0, 0.8), floor=st.floats(0.0, 0.2))
def test_the_guards_only_widen(values: list[float], carry: float, floor: float) -> None:
    guarded = LookPlan(4, 12, 0.05, 0.05, carry_over=carry, sd_floor=floor)
    # Without spread the plain rule has no interval at all, which a floor replaces.
    assume(max(values[:4], default=0.0) - min(values[:4], default=0.0) > 1e-6)
    plain, careful = walk(values), walk(values, plan=guarded)
    if careful.outcome != "open":
        assert plain.look <= careful.look
        assert plain.outcome != "open"


def test_allowing_for_carry_over_follows_the_variance_of_the_mean() -> None:
    assert carry_over_inflation(0.0, 8) == carry_over_inflation(-0.4, 8) == 1.0
    # Two values with correlation r: var(mean) = (1 + r) / 2, E s^2 = 1 - r.
    assert carry_over_inflation(0.3, 2) == pytest.approx(math.sqrt(1.3 / 0.7))
    assert carry_over_inflation(0.3, 4000) == pytest.approx(math.sqrt(1.3 / 0.7), rel=1e-3)
    with pytest.raises(UsageError):
        carry_over_inflation(1.0, 4)


def test_bounds_that_make_no_clause_are_refused() -> None:
    values = [0.4, 0.41, 0.42, 0.4]
    with pytest.raises(UsageError, match="not finite"):
        first_crossing(values, PLAN, math.nan, THRESHOLD, THRESHOLD)
    with pytest.raises(UsageError, match="indifference"):
        first_crossing(values, PLAN, THRESHOLD + 0.1, THRESHOLD, THRESHOLD)
    with pytest.raises(UsageError):
        LookPlan(4, 12, 0.05, 0.05, carry_over=1.0)
    with pytest.raises(UsageError):
        LookPlan(4, 12, 0.05, 0.05, sd_floor=math.nan)
