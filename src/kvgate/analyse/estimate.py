"""The effect of a cell from its pairs, with what may make a reader doubt it.

Values are benefits as in `kvgate.criterion`: log ratios within pairs, signed so that larger is
better. Nothing here decides; the decision is the walk in `kvgate.analyse.sequential`. Missing or
non-finite input raises nothing: the result is not valid and says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from kvgate.analyse.sequential import LARGEST_LOG, SPREAD_RESOLUTION
from kvgate.criterion import Effect, effect_of
from kvgate.errors import UsageError

FindingCode = Literal["robust_disagrees", "lag1", "drift", "order_effect"]
NotEstimated = Literal["", "empty", "not_finite", "too_few_pairs", "zero_spread"]
Interval = tuple[float, float]

CONFIDENCE: Final = 0.95
FINDING_CONFIDENCE: Final = 0.99
"""Drift and order are findings when their 99 % interval leaves zero: with six cells in a gate, 95 %
would cry wolf in every second campaign."""

ROBUST_LIMIT: Final = 0.8
"""In standard errors of the mean. Six or more normal pairs pass it in under 1 % of campaigns, pairs
with three degrees of freedom in 2-8 % (by simulation)."""

LAG1_RISK: Final = 0.05


@dataclass(frozen=True, slots=True)
class EffectEstimate:
    """One cell's effect. Logs are benefits (larger is better); intervals are 95 % and two-sided.

    ``effect`` and its interval are in the clause's own terms (a drop, a gain or a rise, as
    fraction). ``interval_log`` is the plain t interval for a reader; it does not hold over repeated
    looks. ``robust_log`` is the Hodges-Lehmann estimate. ``lag1`` is the correlation of
    neighbouring pairs, ``drift_log`` the trend of the benefit per pair, ``order_log`` the benefit
    when the tested arm ran second less that when it ran first.
    None where ``reason`` or too few pairs forbid a number.

    Findings and their criteria:

    * robust_disagrees (from six pairs): Hodges-Lehmann and mean differ by over 0.8 standard errors
      of the mean.
    * lag1: the lag-1 correlation exceeds the one-sided 5 % limit of independent pairs.
    * drift: the 99 % interval of the trend leaves out zero.
    * order_effect: the 99 % interval of the difference AB - BA leaves out zero.
    """

    n: int
    reason: NotEstimated = ""
    mean_log: float | None = None
    sd_log: float | None = None
    interval_log: Interval | None = None
    effect: float | None = None
    effect_interval: Interval | None = None
    robust_log: float | None = None
    robust_interval_log: Interval | None = None
    lag1: float | None = None
    drift_log: float | None = None
    drift_interval_log: Interval | None = None
    order_log: float | None = None
    order_interval_log: Interval | None = None
    findings: tuple[FindingCode, ...] = ()

    @property
    def valid(self) -> bool:
        return self.reason == ""


def estimate_effect(
    log_ratios: Sequence[float],
    *,
    tested_second: Sequence[bool] | None = None,
    effect: Effect = Effect.GAIN,
) -> EffectEstimate:
    """Estimate the mean benefit of pairs given in the order of measurement.

    ``tested_second`` says for each pair whether the tested arm ran second (AB against BA).
    Mean and interval: Student's t over pairs. Companion: Hodges & Lehmann 1963 (Ann. Math. Stat.
    34, 598-611) with the interval of the signed-rank test. Order effect: Welch's t between AB and
    BA pairs. Drift: least squares against the number of the pair.
    Raises UsageError when ``tested_second`` has another length.
    """
    n = len(log_ratios)
    if tested_second is not None and len(tested_second) != n:
        raise UsageError(
            f"{len(tested_second)} orders for {n} pairs", remedy="give one order per pair"
        )
    x = np.asarray([float(value) for value in log_ratios], dtype=np.float64)
    if n == 0:
        return EffectEstimate(0, "empty")
    if not bool(np.all(np.abs(x) < LARGEST_LOG)):
        return EffectEstimate(n, "not_finite")
    mean = math.fsum(x.tolist()) / n
    point = effect_of(effect, mean)
    if n < 2:
        return EffectEstimate(n, "too_few_pairs", mean_log=mean, effect=point)
    sd = float(np.std(x, ddof=1))
    if sd <= SPREAD_RESOLUTION:
        return EffectEstimate(n, "zero_spread", mean_log=mean, sd_log=sd, effect=point)
    error = sd / math.sqrt(n)
    reach = error * float(stats.t.isf((1.0 - CONFIDENCE) / 2, n - 1))
    robust, robust_interval = hodges_lehmann(x.tolist())
    ends = sorted((effect_of(effect, mean - reach), effect_of(effect, mean + reach)))
    lag1 = lag1_correlation(x)
    drift, drift_interval, drift_found = _drift(x)
    order, order_interval, order_found = _order(x, tested_second)
    found: list[FindingCode] = []
    if n >= 6 and robust is not None and abs(robust - mean) > ROBUST_LIMIT * error:
        found.append("robust_disagrees")
    if lag1 is not None and lag1 > lag1_limit(n):
        found.append("lag1")
    if drift_found:
        found.append("drift")
    if order_found:
        found.append("order_effect")
    return EffectEstimate(
        n,
        mean_log=mean,
        sd_log=sd,
        interval_log=(mean - reach, mean + reach),
        effect=point,
        effect_interval=(ends[0], ends[1]),
        robust_log=robust,
        robust_interval_log=robust_interval,
        lag1=lag1,
        drift_log=drift,
        drift_interval_log=drift_interval,
        order_log=order,
        order_interval_log=order_interval,
        findings=tuple(found),
    )


def hodges_lehmann(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float | None, Interval | None]:
    """Median of the Walsh averages, and the interval that the signed-rank test does not reject.

    The interval is None where n is so small that the exact test has no rejection at this
    confidence (n < 6 at 95 %); both are None without values.
    """
    x = np.asarray(values, dtype=np.float64)
    n = x.size
    if n == 0 or not bool(np.all(np.isfinite(x))):
        return None, None
    i, j = np.triu_indices(n)
    walsh = np.sort((x[i] + x[j]) / 2)
    rank = _signed_rank_cut(n, confidence)
    interval = None if rank == 0 else (float(walsh[rank - 1]), float(walsh[walsh.size - rank]))
    return float(np.median(walsh)), interval


@lru_cache(maxsize=256)
def _signed_rank_cut(n: int, confidence: float) -> int:
    """Largest k with P(W <= k - 1) <= (1 - confidence) / 2 for the signed-rank statistic W; the
    k-th smallest and largest Walsh averages bound the interval. 0 where there is none."""
    risk = (1.0 - confidence) / 2
    low, high = 0, n * (n + 1) // 4
    while low < high:
        middle = (low + high + 1) // 2
        signs = _signs_with_rank_sum(n, middle - 1)
        # scipy knows the distribution by samples only, so it is given one with this W.
        p = float(stats.wilcoxon(signs * np.arange(1.0, n + 1), alternative="less").pvalue)
        if p <= risk:
            low = middle
        else:
            high = middle - 1
    return low


def _signs_with_rank_sum(n: int, total: int) -> NDArray[np.float64]:
    signs = np.full(n, -1.0)
    for rank in range(n, 0, -1):
        if total >= rank:
            signs[rank - 1] = 1.0
            total -= rank
    return signs


def lag1_correlation(values: NDArray[np.float64]) -> float | None:
    """Correlation of neighbouring values about the common mean; None for fewer than four."""
    centred = values - values.mean()
    power = float(centred @ centred)
    if values.size < 4 or power == 0.0:
        return None
    return float(centred[1:] @ centred[:-1]) / power


def lag1_limit(n: int) -> float:
    """One-sided 5 % limit of `lag1_correlation` for ``n`` independent values, from its mean -1/n
    and variance (n - 2)^2 / (n^2 (n - 1)) (Moran 1948, Biometrika 35, 255-260)."""
    z = float(stats.norm.isf(LAG1_RISK))
    return -1.0 / n + z * (n - 2) / (n * math.sqrt(n - 1))


def _drift(x: NDArray[np.float64]) -> tuple[float | None, Interval | None, bool]:
    if x.size < 4:
        return None, None, False
    fit = stats.linregress(np.arange(x.size, dtype=np.float64), x)
    slope, error = float(fit.slope), float(fit.stderr)
    reach = error * float(stats.t.isf((1.0 - CONFIDENCE) / 2, x.size - 2))
    far = error * float(stats.t.isf((1.0 - FINDING_CONFIDENCE) / 2, x.size - 2))
    return slope, (slope - reach, slope + reach), abs(slope) > far


def _order(
    x: NDArray[np.float64], tested_second: Sequence[bool] | None
) -> tuple[float | None, Interval | None, bool]:
    if tested_second is None:
        return None, None, False
    second = np.asarray(tested_second, dtype=np.bool_)
    ab, ba = x[second], x[~second]
    if ab.size < 2 or ba.size < 2:
        return None, None, False
    if float(np.ptp(ab)) <= SPREAD_RESOLUTION or float(np.ptp(ba)) <= SPREAD_RESOLUTION:
        return float(ab.mean() - ba.mean()), None, False
    test = stats.ttest_ind(ab, ba, equal_var=False)
    shown = test.confidence_interval(CONFIDENCE)
    wide = test.confidence_interval(FINDING_CONFIDENCE)
    found = bool(wide.low > 0.0 or wide.high < 0.0)
    return float(ab.mean() - ba.mean()), (float(shown.low), float(shown.high)), found


@dataclass(frozen=True, slots=True)
class SlopeInterval:
    """A robust trend; the unit is that of the values over that of the times."""

    n: int
    slope: float | None
    lower: float | None
    upper: float | None
    reason: Literal["", "not_finite", "too_few_points", "one_time"] = ""


def slope_interval(
    times: Sequence[float], values: Sequence[float], confidence: float = CONFIDENCE
) -> SlopeInterval:
    """Theil-Sen slope with its two-sided interval (Theil 1950; Sen 1968, JASA 63, 1379-1389).

    Up to 29 % of the points may be wild without moving it far. The interval holds for independent
    deviations: give it window statistics rather than single requests.
    No interval, and a reason, for fewer than six points, all at one time, or non-finite numbers.
    Raises UsageError when the lengths differ.
    """
    if len(times) != len(values):
        raise UsageError(f"{len(times)} times for {len(values)} values", remedy="give pairs")
    t = np.asarray(times, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    n = t.size
    if not bool(np.all(np.isfinite(t)) and np.all(np.isfinite(y))):
        return SlopeInterval(n, None, None, None, "not_finite")
    if n < 6:
        return SlopeInterval(n, None, None, None, "too_few_points")
    if float(np.ptp(t)) == 0.0:
        return SlopeInterval(n, None, None, None, "one_time")
    fit = stats.theilslopes(y, t, alpha=confidence)
    return SlopeInterval(n, float(fit.slope), float(fit.low_slope), float(fit.high_slope))


def share_upper_bound(failures: int, n: int, confidence: float = CONFIDENCE) -> float | None:
    """One-sided upper bound of a share (Clopper & Pearson 1934, Biometrika 26, 404-413).

    None when nothing was observed (``n`` = 0): no evidence is not a share of zero.
    Raises UsageError unless 0 <= failures <= n.
    """
    if not 0 <= failures <= n:
        raise UsageError(f"{failures} failures of {n}", remedy="give 0 <= failures <= n")
    if n == 0:
        return None
    test = stats.binomtest(failures, n, alternative="less")
    return float(test.proportion_ci(confidence, method="exact").high)


def share_lower_bound(failures: int, n: int, confidence: float = CONFIDENCE) -> float | None:
    """One-sided lower bound of a share (Clopper & Pearson 1934, Biometrika 26, 404-413).

    None when nothing was observed. Raises UsageError unless 0 <= failures <= n.
    """
    if not 0 <= failures <= n:
        raise UsageError(f"{failures} failures of {n}", remedy="give 0 <= failures <= n")
    if n == 0:
        return None
    test = stats.binomtest(failures, n, alternative="greater")
    return float(test.proportion_ci(confidence, method="exact").low)
