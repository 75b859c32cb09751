"""Noise of pairs for simulated campaigns: the kind one hopes for, and the kinds one gets.

Everything is simulated and deterministic for a seed (numpy's PCG64). Values are benefits on the log
scale, where larger is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from kvgate.errors import UsageError

Floats = NDArray[np.float64]
NoiseKind = Literal[
    "normal",
    "heavy_tails",
    "skewed",
    "unequal_variance",
    "uneven_pairs",
    "drift",
    "order_effect",
    "fixed_order",
    "carry_over",
    "effect_drift",
]

_DEFAULT_SIZE: Final[dict[NoiseKind, float]] = {
    "normal": 0.0,
    "heavy_tails": 3.0,
    "skewed": 1.0,
    "unequal_variance": 3.0,
    "uneven_pairs": 3.0,
    "drift": 0.10,
    "order_effect": 0.03,
    "fixed_order": 0.03,
    "carry_over": 0.3,
    "effect_drift": 0.10,
}


@dataclass(frozen=True, slots=True)
class Noise:
    """A kind of noise and its size; the size left out is the usual one in brackets.

    * normal.
    * heavy_tails: Student's t with ``size`` [3] degrees of freedom, scaled to the same variance.
    * skewed: the tested arm stalls now and then (its log time has an exponential part with a share
      ``size`` [1] of the variance); centred, so that the mean is still the true effect.
    * unequal_variance: the tested arm's log spread is ``size`` [3] times the reference's.
    * uneven_pairs: half of the pairs, at random, are ``size`` [3] times as noisy as the others.
    * drift: the platform speeds up by ``size`` [0.10] in a straight line over the campaign, both
      arms alike; the later session of each pair has the advantage of one step.
    * order_effect: the second session of a pair is slower by ``size`` [0.03]; random AB/BA couples.
    * fixed_order: the same, but the tested arm always comes second.
    * carry_over: AR(1) from pair to pair with correlation ``size`` [0.3].
    * effect_drift: the tested arm alone loses ``size`` [0.10] in a straight line over the
      campaign; the true effect is the mean over all ``max_pairs`` pairs.
    """

    kind: NoiseKind = "normal"
    size: float | None = None

    @property
    def amount(self) -> float:
        return _DEFAULT_SIZE[self.kind] if self.size is None else self.size


def draw(
    noise: Noise,
    rng: np.random.Generator,
    campaigns: int,
    pairs: int,
    pair_sd: Floats,
    correlation: Floats,
) -> Floats:
    """Noise of shape (campaigns, pairs, series) for ``pair_sd`` (series,) and their correlation.

    Raises UsageError when ``correlation`` is no correlation matrix of the series.
    """
    try:
        mixing = np.linalg.cholesky(correlation + 1e-12 * np.eye(len(pair_sd)))
    except np.linalg.LinAlgError as error:
        raise UsageError(
            "the correlations of clauses and levels contradict each other",
            remedy="give values that form a positive definite matrix",
        ) from error
    shape = (campaigns, pairs, len(pair_sd))

    def gauss() -> Floats:
        out: Floats = rng.standard_normal(shape) @ mixing.T
        return out

    def scaled(unit: Floats) -> Floats:
        return unit * pair_sd

    size = noise.amount
    match noise.kind:
        case "normal":
            return scaled(gauss())
        case "heavy_tails":
            # One mixing variable per pair: a bad hour hits all levels of a pair of sessions.
            chi2 = rng.chisquare(size, (campaigns, pairs, 1)) / size
            return scaled(gauss() / np.sqrt(chi2) * math.sqrt((size - 2.0) / size))
        case "skewed":
            stalls = 1.0 - rng.standard_exponential((campaigns, pairs, 1))
            return scaled(math.sqrt(size) * stalls + math.sqrt(1.0 - size) * gauss())
        case "unequal_variance":
            total = math.sqrt(1.0 + size * size)
            return scaled((size * gauss() - gauss()) / total)
        case "uneven_pairs":
            wild = rng.integers(0, 2, (campaigns, pairs, 1)).astype(np.float64)
            return scaled(gauss() * (1.0 + (size - 1.0) * wild) / math.sqrt((1 + size * size) / 2))
        case "drift":
            step = math.log1p(size) / max(2 * pairs - 1, 1)
            return scaled(gauss()) + step * _order(rng, campaigns, pairs)
        case "order_effect":
            return scaled(gauss()) - math.log1p(size) * _order(rng, campaigns, pairs)
        case "fixed_order":
            return scaled(gauss()) - math.log1p(size)
        case "carry_over":
            unit = gauss()
            unit[:, 1:] *= math.sqrt(1.0 - size * size)
            return scaled(lfilter([1.0], [1.0, -size], unit, axis=1))
        case "effect_drift":
            line = np.linspace(0.5, -0.5, pairs)[None, :, None]
            return scaled(gauss()) + math.log1p(size) * line


def _order(rng: np.random.Generator, campaigns: int, pairs: int) -> Floats:
    """+1 where the tested arm runs second, -1 where first; each couple of pairs has one of each."""
    couples = (pairs + 1) // 2
    first = 2.0 * rng.integers(0, 2, (campaigns, couples, 1)) - 1.0
    both = np.stack([first, -first], axis=2).reshape(campaigns, 2 * couples, 1)
    return both[:, :pairs]
