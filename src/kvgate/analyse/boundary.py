"""Critical values for looks after every pair, exact for a mean of unknown variance.

Bounds computed for known variance and turned into t quantiles are too narrow for few pairs. No
simulation is needed to mend that: for independent normal x with mean zero let S = sum x, Q = sum
x^2 and u_n = S_n / sqrt(Q_n). Q_n is complete and sufficient for the variance, so it is independent
of u_2..u_n (Basu 1955, Sankhya 15), and with z = x_{n+1} / sqrt(Q_n)

    u_{n+1} = (u_n + z) / sqrt(1 + z^2),    z * sqrt(n) ~ t with n degrees of freedom,
    T_n     = sqrt(n - 1) * u_n / sqrt(n - u_n^2)    (the one-sample t statistic).

So u is a Markov chain of one dimension, and with z = tan(phi) the survivors are carried from look
to look by one smooth integral (the recursion of Armitage, McPherson & Rowe 1969, J. R. Stat. Soc. A
132, with this chain in place of the normal random walk):

    P(not crossed before n+1, u_{n+1} > c)
        = integral of P(not crossed up to n, u_n > (c - sin phi) / cos phi)
                      * k_n * cos^{n-1}(phi) d phi.

The risk is spent by Hwang, Shih & DeCani 1990 (Statistics in Medicine 9, 1439-1445).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit

from kvgate.errors import UsageError

Floats = NDArray[np.float64]

HSD_GAMMA: Final = -2.0
"""Spends little early: with 12 pairs, 10 % of the risk by the third, 27 % by the sixth."""

MAX_LOOKS: Final = 256
_NODES: Final = (
    96  # Gauss-Legendre nodes per integral; doubling both moves c_n by 1e-7, from two pairs by 1e-5
)
_KNOTS: Final = 241  # spline knots over the survivors
_LOWEST: Final = -6.5  # normal score below which survivors are lumped: 4e-11 of the mass
_GL_X, _GL_W = leggauss(_NODES)


def spent_risk(fraction: float, alpha: float, gamma: float = HSD_GAMMA) -> float:
    """Risk spent when ``fraction`` of the pairs is in (Hwang, Shih & DeCani 1990)."""
    if fraction <= 0.0:
        return 0.0
    if fraction >= 1.0:
        return alpha
    if gamma == 0.0:
        return alpha * fraction
    return alpha * math.expm1(-gamma * fraction) / math.expm1(-gamma)


@lru_cache(maxsize=256)
def critical_values(
    min_pairs: int, max_pairs: int, alpha: float, gamma: float = HSD_GAMMA
) -> tuple[float, ...]:
    """Multipliers c_n for n = min_pairs .. max_pairs, of the standard error ``sd / sqrt(n)``.

    For independent normal pairs with any mean m and any variance the probability that some look has
    ``mean_n - c_n * sd_n / sqrt(n) > m`` is ``alpha``. The first look spends what is due by then.

    Raises UsageError when the numbers make no plan: 2 <= min_pairs <= max_pairs <= 256 and
    0 < alpha <= 0.25 must hold.
    """
    check_plan(min_pairs, max_pairs, alpha)
    n = min_pairs
    spent = spent_risk(n / max_pairs, alpha, gamma)
    values = [-float(stdtrit(n - 1, spent))]
    state = _first_survivors(n, values[0])
    for n in range(min_pairs, max_pairs):
        total = spent_risk((n + 1) / max_pairs, alpha, gamma)
        step, spent = total - spent, total
        values.append(_next_critical(n, state, step, values[-1]))
        if n + 1 < max_pairs:
            state = _next_survivors(n, state, values[-1])
    return tuple(values)


def check_plan(min_pairs: int, max_pairs: int, alpha: float) -> None:
    """Raise UsageError where no sequence of looks can be made of the numbers."""
    if not 2 <= min_pairs <= max_pairs <= MAX_LOOKS:
        raise UsageError(
            f"min_pairs {min_pairs} and max_pairs {max_pairs} make no plan of looks",
            remedy=f"choose 2 <= min_pairs <= max_pairs <= {MAX_LOOKS}",
        )
    if not 0.0 < alpha <= 0.25:
        raise UsageError(f"a risk of {alpha} is no risk", remedy="choose a risk in (0, 0.25]")


class _Survivors:
    """P(not crossed up to look n, u_n > x) as a spline over v = atanh(x / sqrt(n)); 0 from the
    boundary upwards. In v the tail is smooth even for n = 2, where T is Cauchy."""

    def __init__(self, n: int, knots_t: Floats, exceed: Floats) -> None:
        self.n = n
        v = np.arcsinh(knots_t / math.sqrt(n - 1))
        self._lowest_v = float(v[0])
        self._spline = CubicSpline(v, exceed)
        self.boundary_u = float(_u_of_t(knots_t[-1], n))

    def above(self, x: Floats) -> Floats:
        r = np.clip(x / math.sqrt(self.n), -1.0 + 1e-16, 1.0 - 1e-16)
        out: Floats = self._spline(np.maximum(np.arctanh(r), self._lowest_v))
        return out


def _u_of_t(t: float | Floats, n: int) -> Floats:
    out: Floats = np.asarray(math.sqrt(n) * t / np.sqrt(n - 1 + np.square(t)))
    return out


def _knots(n: int, critical: float) -> Floats:
    """Values of T_n from the lump of the lower tail to the boundary, even in normal score."""
    highest = -float(ndtri(stdtr(n - 1, -critical)))
    scores = np.linspace(_LOWEST, highest, _KNOTS)
    # By the lower tail on either side, so that neither loses digits.
    tail = stdtrit(n - 1, ndtr(-np.abs(scores)))
    knots: Floats = np.where(scores < 0.0, tail, -tail)
    knots[-1] = critical
    return knots


def _first_survivors(n: int, critical: float) -> _Survivors:
    knots = _knots(n, critical)
    return _Survivors(n, knots, stdtr(n - 1, -knots) - stdtr(n - 1, -critical))


def _exceed(n: int, state: _Survivors, t: Floats) -> Floats:
    """P(not crossed up to look n, T_{n+1} > t) for each t."""
    c = _u_of_t(t, n + 1)
    # (c - sin phi) / cos phi < boundary holds exactly for |phi - centre| < reach; else nobody.
    radius = math.hypot(1.0, state.boundary_u)
    centre = math.atan2(1.0, state.boundary_u)
    reach = np.arccos(np.clip(c / radius, -1.0, 1.0))
    limit = min(math.pi / 2, math.sqrt(80.0 / (n - 1)))  # cos^{n-1} is below 1e-17 outside
    low = np.maximum(centre - reach, -limit)
    half = (np.maximum(np.minimum(centre + reach, limit), low) - low) / 2
    phi = low[:, None] + half[:, None] * (1.0 + _GL_X)
    cosine = np.maximum(np.cos(phi), 1e-300)
    log_k = gammaln((n + 1) / 2) - gammaln(n / 2) - 0.5 * math.log(math.pi)
    weight = np.exp(log_k + (n - 1) * np.log(cosine))
    inside = state.above((c[:, None] - np.sin(phi)) / cosine)
    out: Floats = half * ((inside * weight) @ _GL_W)
    return out


def _next_critical(n: int, state: _Survivors, step: float, previous: float) -> float:
    def surplus(t: float) -> float:
        return float(_exceed(n, state, np.array([t]))[0]) - step

    high = max(previous, 1.0)
    while surplus(high) > 0.0:
        high *= 2.0
    return float(brentq(surplus, 0.0, high, xtol=1e-10, rtol=1e-12))


def _next_survivors(n: int, state: _Survivors, critical: float) -> _Survivors:
    knots = _knots(n + 1, critical)
    exceed = _exceed(n, state, knots)
    return _Survivors(n + 1, knots, exceed - exceed[-1])
