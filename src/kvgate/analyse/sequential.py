"""Looks after every pair: repeated confidence intervals and the first crossing.

Everything here lives on a log scale on which larger is better; `kvgate.analyse.estimate` turns
drops and gains into it and back. A value is the log effect of one pair; pairs are independent and
about normal, with a mean (the true effect) and a variance that nobody knows.

A repeated confidence interval (Jennison & Turnbull 1989, J. R. Stat. Soc. B 51, 305-361) holds at
all looks at once: whatever made the campaign stop, each of its bounds is wrong with at most its own
risk. The two bounds have their own risks, so the consumer's and the producer's never mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvgate.analyse.boundary import HSD_GAMMA, check_plan, critical_values, spent_risk
from kvgate.errors import UsageError

__all__ = [
    "Crossing",
    "LookPlan",
    "RepeatedInterval",
    "critical_values",
    "first_crossing",
    "repeated_interval",
    "spent_risk",
]

NoInterval = Literal["", "empty", "not_finite", "too_few_pairs", "zero_spread"]
Outcome = Literal["pass", "fail", "open"]

SPREAD_RESOLUTION = 1e-9
"""A spread below one part in a billion is no measurement: no clock of ours resolves it, so the
values were copied. It would otherwise be an interval without width."""

LARGEST_LOG = 700.0
"""exp of more is infinite, so a value beyond it is no ratio of two measurements."""


@dataclass(frozen=True, slots=True)
class LookPlan:
    """Looks after each pair from ``min_pairs`` to ``max_pairs``.

    ``alpha_pass`` is the risk of the lower bound (the consumer's, divided over granted retests);
    ``alpha_fail`` that of the upper bound (divided over the gate's clauses and levels by whoever
    makes the plan). Two guards against noise that is not independent and normal, both of which can
    only widen the intervals:

    * ``carry_over``: the correlation of neighbouring pairs that the intervals allow for (see
      `carry_over_inflation`). Without it, noise that carries over breaks both risks.
    * ``sd_floor``: a spread per pair, on the log scale, below which no sample is believed. Rare
      stalls leave the first pairs deceptively quiet; three quarters of the spread that the noise
      floor's pairs showed cost next to nothing and mend that.

    Raises UsageError when the numbers make no plan.
    """

    min_pairs: int
    max_pairs: int
    alpha_pass: float
    alpha_fail: float
    gamma: float = HSD_GAMMA
    carry_over: float = 0.0
    sd_floor: float = 0.0

    def __post_init__(self) -> None:
        check_plan(self.min_pairs, self.max_pairs, self.alpha_pass)
        check_plan(self.min_pairs, self.max_pairs, self.alpha_fail)
        if not 0.0 <= self.carry_over < 1.0:
            raise UsageError(
                f"carry_over {self.carry_over} is no correlation", remedy="give a number in [0, 1)"
            )
        if not (self.sd_floor >= 0.0 and math.isfinite(self.sd_floor)):
            raise UsageError(f"sd_floor {self.sd_floor} is no spread", remedy="give 0 or more")


@dataclass(frozen=True, slots=True)
class RepeatedInterval:
    """The state of the evidence at one look; log scale, larger is better.

    ``lower`` and ``upper`` are None exactly when ``reason`` says why there is no interval; nothing
    may be concluded then.
    """

    n: int
    mean: float | None
    sd: float | None
    lower: float | None
    upper: float | None
    reason: NoInterval = ""


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the walk over all looks gave.

    ``look`` is the number of pairs at which the outcome fell, or the last look made (0 when none);
    ``ignored`` counts the pairs after it, which can no longer change anything. ``reason`` is that
    of the interval and is never empty when there is none.
    """

    outcome: Outcome
    look: int
    interval: RepeatedInterval
    ignored: int
    final: bool
    reason: NoInterval = ""


def repeated_interval(
    log_ratios: Sequence[float],
    *,
    min_pairs: int,
    max_pairs: int,
    alpha_lower: float,
    alpha_upper: float,
    gamma: float = HSD_GAMMA,
    carry_over: float = 0.0,
    sd_floor: float = 0.0,
) -> RepeatedInterval:
    """Repeated confidence interval of the mean at the look after the last of ``log_ratios``.

    ``log_ratios``: one value per pair in the order of measurement, at most ``max_pairs`` of them.
    The lower bound is ``mean - c_n sd / sqrt(n)``, with c_n from `critical_values` at
    ``alpha_lower``; the upper likewise. Both risks hold over all looks together.

    No interval, and a reason, when there is no value, a value is not finite, fewer than
    ``min_pairs`` are in, or the values do not vary.
    Raises UsageError for impossible plans or more than ``max_pairs`` values.
    """
    plan = LookPlan(min_pairs, max_pairs, alpha_lower, alpha_upper, gamma, carry_over, sd_floor)
    if len(log_ratios) > max_pairs:
        raise UsageError(
            f"{len(log_ratios)} pairs, but max_pairs is {max_pairs}",
            remedy="max_pairs is final; judge the first max_pairs pairs",
        )
    return _interval([float(value) for value in log_ratios], plan)


def _measured(value: float) -> bool:
    return abs(value) < LARGEST_LOG  # False for NaN


def _interval(values: Sequence[float], plan: LookPlan) -> RepeatedInterval:
    n = len(values)
    if n == 0:
        return RepeatedInterval(0, None, None, None, None, "empty")
    if not all(_measured(value) for value in values):
        return RepeatedInterval(n, None, None, None, None, "not_finite")
    # fsum is exact whatever the order and the processor.
    mean = math.fsum(values) / n
    if n < 2:
        return RepeatedInterval(n, mean, None, None, None, "too_few_pairs")
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    if n < plan.min_pairs:
        return RepeatedInterval(n, mean, sd, None, None, "too_few_pairs")
    if sd <= SPREAD_RESOLUTION:
        return RepeatedInterval(n, mean, sd, None, None, "zero_spread")
    widening = carry_over_inflation(plan.carry_over, n)
    error = widening * max(sd, plan.sd_floor) / math.sqrt(n)
    below, above = (
        critical_values(plan.min_pairs, plan.max_pairs, alpha, plan.gamma)[n - plan.min_pairs]
        for alpha in (plan.alpha_pass, plan.alpha_fail)
    )
    return RepeatedInterval(n, mean, sd, mean - below * error, mean + above * error)


def first_crossing(
    log_ratios: Sequence[float],
    plan: LookPlan,
    pass_bound: float,
    fail_bound: float,
    threshold: float,
    require_estimate: bool = True,
) -> Crossing:
    """Walk the looks and stop at the first that decides; later pairs change nothing.

    All bounds on the log scale where larger is better. At a look:

    * fail: the repeated upper bound is below ``fail_bound`` (normally the threshold);
    * pass: the repeated lower bound is above ``pass_bound`` (threshold - indifference) and, with
      ``require_estimate``, the mean is at or above ``threshold``.

    Where both hold (possible only when the estimate is waived: the effect is known to lie between
    the bounds) the appliance is below the threshold, and that fails. Values beyond ``max_pairs``
    have no look. A value that is not finite, at any place, leaves the walk open: evidence that is
    missing decides nothing. ``final`` is True after a crossing or at ``max_pairs``.
    Raises UsageError when a bound is not finite or ``pass_bound`` is above ``threshold``.
    """
    if not all(math.isfinite(bound) for bound in (pass_bound, fail_bound, threshold)):
        raise UsageError("a bound of the clause is not finite", remedy="correct the contract")
    if pass_bound > threshold:
        raise UsageError(
            "the bound that passes lies above the threshold", remedy="make the indifference >= 0"
        )
    values = [float(value) for value in log_ratios]
    used = values[: plan.max_pairs]
    if not all(_measured(value) for value in values):
        nothing = RepeatedInterval(len(used), None, None, None, None, "not_finite")
        return Crossing("open", 0, nothing, 0, final=False, reason="not_finite")
    for n in range(plan.min_pairs, len(used) + 1):
        interval = _interval(used[:n], plan)
        if interval.mean is None or interval.lower is None or interval.upper is None:
            continue
        outcome: Outcome = "open"
        if interval.upper < fail_bound:
            outcome = "fail"
        elif interval.lower > pass_bound and (interval.mean >= threshold or not require_estimate):
            outcome = "pass"
        if outcome != "open":
            return Crossing(outcome, n, interval, len(values) - n, final=True)
    last = _interval(used, plan)
    look = len(used) if len(used) >= plan.min_pairs else 0
    final = len(used) == plan.max_pairs
    return Crossing("open", look, last, len(values) - len(used), final=final, reason=last.reason)


def carry_over_inflation(correlation: float, n: int) -> float:
    """Factor by which the t interval of ``n`` pairs widens for an AR(1) ``correlation`` of them.

    The variance of the mean grows to v sigma^2 / n with
    v = 1 + 2 sum_{k<n} (1 - k/n) r^k, while the expected sample variance shrinks to
    sigma^2 (n - v) / (n - 1) (Bayley & Hammersley 1946, J. R. Stat. Soc. Suppl. 8, 184-197); the
    factor is the root of their ratio to the independent case. 1 for correlations <= 0.
    Raises UsageError unless -1 < correlation < 1.
    """
    if not -1.0 < correlation < 1.0:
        raise UsageError(f"{correlation} is no correlation", remedy="give a number in (-1, 1)")
    if correlation <= 0.0 or n < 2:
        return 1.0
    growth = 1.0 + 2.0 * math.fsum((1.0 - k / n) * correlation**k for k in range(1, n))
    return math.sqrt(growth * (n - 1) / (n - growth))
