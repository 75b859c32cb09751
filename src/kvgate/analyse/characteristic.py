"""Operating characteristic: what a clause and a gate would say, against the true effect.

Campaigns are simulated pair by pair under the very rule of `kvgate.analyse.sequential`, with all
levels and clauses of a gate drawn together, since a session measures them together. Everything is
on the log scale where larger is better, and deterministic for a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.boundary import critical_values
from kvgate.analyse.noise import Noise, draw
from kvgate.analyse.sequential import LookPlan, carry_over_inflation
from kvgate.errors import UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLAUSE_CORRELATION: Final = 0.97
"""Of two clauses at one level. In a closed loop TTFT is nearly level / throughput, so the benefits
in both say the same (their raw log ratios correlate by -0.97)."""

LEVEL_CORRELATION: Final = 0.0
"""Of two levels of one clause. None is the cautious choice: it makes passing all levels hardest."""

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class ClauseModel:
    """A comparing clause and the truth to try it on.

    ``effects_log`` and ``pair_sd`` (the spread of one pair's log ratio) are per level;
    ``pass_bound`` is threshold - indifference. ``plan`` carries looks and risks.
    """

    name: str
    levels: tuple[str, ...]
    effects_log: tuple[float, ...]
    pair_sd: tuple[float, ...]
    threshold: float
    pass_bound: float
    plan: LookPlan
    require_estimate: bool = True

    def __post_init__(self) -> None:
        if not len(self.levels) == len(self.effects_log) == len(self.pair_sd) > 0:
            raise UsageError(
                f"clause {self.name}: {len(self.levels)} levels, {len(self.effects_log)} effects, "
                f"{len(self.pair_sd)} spreads",
                remedy="give one effect and one spread per level",
            )
        if not all(sd > 0.0 and math.isfinite(sd) for sd in self.pair_sd):
            raise UsageError(f"clause {self.name}: a spread is not positive", remedy="measure it")
        if not self.pass_bound <= self.threshold:
            raise UsageError(f"clause {self.name}: negative indifference", remedy="make it >= 0")

    def at(self, effect_log: float) -> ClauseModel:
        """The same clause with one true effect at every level."""
        return replace(self, effects_log=(effect_log,) * len(self.levels))


@dataclass(frozen=True, slots=True)
class Characteristic:
    """Probabilities of the outcomes and pairs used, from ``campaigns`` simulated campaigns.

    ``pairs_if_*`` is the mean number of pairs given the outcome, None where it never happened.
    """

    campaigns: int
    p_pass: float
    p_fail: float
    p_inconclusive: float
    mean_pairs: float
    pairs_if_pass: float | None
    pairs_if_fail: float | None
    pairs_if_inconclusive: float | None

    @property
    def standard_error(self) -> float:
        """Largest standard error of the three probabilities that the simulation leaves."""
        p = min((self.p_pass, self.p_fail, self.p_inconclusive), key=lambda q: abs(q - 0.5))
        return math.sqrt(p * (1.0 - p) / self.campaigns)

    def with_retests(self, retests: int) -> Characteristic:
        """The same where each FAIL is followed by a fresh campaign, up to ``retests`` times."""
        if retests < 0:
            raise UsageError(f"{retests} retests", remedy="give 0 or more")
        tries = sum(self.p_fail**k for k in range(retests + 1))
        return replace(
            self,
            p_pass=self.p_pass * tries,
            p_fail=self.p_fail ** (retests + 1),
            p_inconclusive=self.p_inconclusive * tries,
            mean_pairs=self.mean_pairs * tries,
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    effect_log: float
    characteristic: Characteristic


@dataclass(frozen=True, slots=True)
class GateCharacteristic:
    """``gate`` stops at the first FAIL or when all series have passed; ``clauses`` are each clause
    judged alone on its own looks."""

    gate: Characteristic
    clauses: tuple[tuple[str, Characteristic], ...]


def simulate_gate(
    clauses: Sequence[ClauseModel],
    *,
    campaigns: int = 10_000,
    seed: int,
    noise: Noise | None = None,
    level_correlation: float = LEVEL_CORRELATION,
    clause_correlation: float = CLAUSE_CORRELATION,
    excluded_share: float = 0.0,
) -> GateCharacteristic:
    """Simulate campaigns of a gate: PASS when every level of every clause passes.

    Levels of the same name share their sessions. The correlation of two series is the product of
    ``level_correlation`` (where levels differ) and ``clause_correlation`` (where clauses differ).
    The first FAIL of any series ends the campaign; a series that has passed stays passed.
    ``excluded_share`` of the pairs, at random, breaks a validity condition and is run again.
    Raises UsageError for an empty gate or contradicting correlations.
    """
    sample = _Sample(
        clauses, campaigns, seed, noise, level_correlation, clause_correlation, excluded_share
    )
    passed, failed = sample.first_looks(clauses)
    alone: list[tuple[str, Characteristic]] = []
    start = 0
    for clause in clauses:
        stop = start + len(clause.levels)
        alone.append(
            (
                clause.name,
                _summary(passed[:, start:stop], failed[:, start:stop], clause.plan.max_pairs),
            )
        )
        start = stop
    longest = max(clause.plan.max_pairs for clause in clauses)
    return GateCharacteristic(_summary(passed, failed, longest), tuple(alone))


def simulate_clause(
    clause: ClauseModel,
    *,
    campaigns: int = 10_000,
    seed: int,
    noise: Noise | None = None,
    level_correlation: float = LEVEL_CORRELATION,
) -> Characteristic:
    """`simulate_gate` of one clause."""
    return simulate_gate(
        [clause],
        campaigns=campaigns,
        seed=seed,
        noise=noise,
        level_correlation=level_correlation,
    ).gate


def clause_curve(
    clause: ClauseModel,
    effects_log: Sequence[float],
    *,
    campaigns: int = 10_000,
    seed: int,
    noise: Noise | None = None,
    level_correlation: float = LEVEL_CORRELATION,
) -> tuple[CurvePoint, ...]:
    """Characteristic of ``clause`` with each of ``effects_log`` as truth at every level.

    All points share their noise, so that the curve is as smooth as the truth: PASS never falls
    and FAIL never rises from one effect to a larger one.
    """
    sample = _Sample([clause], campaigns, seed, noise, level_correlation, 1.0)
    points = []
    for effect in effects_log:
        passed, failed = sample.first_looks([clause.at(effect)])
        points.append(CurvePoint(effect, _summary(passed, failed, clause.plan.max_pairs)))
    return tuple(points)


class _Sample:
    """Running mean and spread of the noise of all series at every number of pairs."""

    def __init__(
        self,
        clauses: Sequence[ClauseModel],
        campaigns: int,
        seed: int,
        noise: Noise | None,
        level_correlation: float,
        clause_correlation: float,
        excluded_share: float = 0.0,
    ) -> None:
        if not clauses:
            raise UsageError("a gate without comparing clauses", remedy="give at least one clause")
        if campaigns < 1:
            raise UsageError(f"{campaigns} campaigns", remedy="give at least one")
        rng = np.random.Generator(np.random.PCG64(seed))
        pairs = max(clause.plan.max_pairs for clause in clauses)
        level = np.array([name for clause in clauses for name in clause.levels])
        number = np.repeat(np.arange(len(clauses)), [len(clause.levels) for clause in clauses])
        correlation = np.where(level[:, None] == level[None, :], 1.0, level_correlation) * np.where(
            number[:, None] == number[None, :], 1.0, clause_correlation
        )
        sd = np.array([sd for clause in clauses for sd in clause.pair_sd])
        if not 0.0 <= excluded_share < 0.5:
            raise UsageError(f"excluded share {excluded_share}", remedy="give [0, 0.5)")
        spare = math.ceil(4.0 * excluded_share * pairs)
        values = draw(noise or Noise(), rng, campaigns, pairs + spare, sd, correlation)
        if spare:
            excluded = rng.random(values.shape[:2]) < excluded_share
            valid_first = np.argsort(excluded, axis=1, kind="stable")[:, :pairs, None]
            values = np.take_along_axis(values, valid_first, axis=1)
        n = np.arange(1, pairs + 1, dtype=np.float64)[None, :, None]
        self.mean: Floats = np.cumsum(values, axis=1) / n
        squares = np.cumsum(values * values, axis=1) - n * self.mean * self.mean
        self.sd: Floats = np.sqrt(np.maximum(squares, 0.0) / np.maximum(n - 1.0, 1.0))

    def first_looks(self, clauses: Sequence[ClauseModel]) -> tuple[Ints, Ints]:
        """Number of pairs at which each series passes and fails, shape (campaigns, series); the
        later of the two, and what never happens, is ``_NEVER``."""
        passed, failed = [], []
        series = 0
        for clause in clauses:
            plan = clause.plan
            looks = slice(plan.min_pairs - 1, plan.max_pairs)
            n = np.arange(plan.min_pairs, plan.max_pairs + 1, dtype=np.float64)
            widening = np.array([carry_over_inflation(plan.carry_over, int(k)) for k in n])
            scale = widening / np.sqrt(n)
            low = scale * _critical(plan, plan.alpha_pass)
            high = scale * _critical(plan, plan.alpha_fail)
            for effect in clause.effects_log:
                mean = self.mean[:, looks, series] + effect
                sd = np.maximum(self.sd[:, looks, series], plan.sd_floor)
                fails = mean + high * sd < clause.threshold
                passes = (mean - low * sd > clause.pass_bound) & ~fails
                if clause.require_estimate:
                    passes &= mean >= clause.threshold
                first_pass = _first(passes, plan.min_pairs)
                first_fail = _first(fails, plan.min_pairs)
                passed.append(np.where(first_pass < first_fail, first_pass, _NEVER))
                failed.append(np.where(first_fail < first_pass, first_fail, _NEVER))
                series += 1
        return np.stack(passed, axis=1), np.stack(failed, axis=1)


def _critical(plan: LookPlan, alpha: float) -> Floats:
    return np.asarray(critical_values(plan.min_pairs, plan.max_pairs, alpha, plan.gamma))


def _first(hits: NDArray[np.bool_], min_pairs: int) -> Ints:
    out: Ints = np.where(hits.any(axis=1), hits.argmax(axis=1) + min_pairs, _NEVER)
    return out


def _summary(passed: Ints, failed: Ints, max_pairs: int) -> Characteristic:
    fail_at = failed.min(axis=1)
    pass_at = passed.max(axis=1)
    fails = fail_at < _NEVER
    passes = pass_at < _NEVER
    pairs = np.where(fails, fail_at, np.where(passes, pass_at, max_pairs)).astype(np.float64)
    open_ = ~(fails | passes)

    def given(outcome: NDArray[np.bool_]) -> float | None:
        return float(pairs[outcome].mean()) if outcome.any() else None

    return Characteristic(
        campaigns=len(pairs),
        p_pass=float(passes.mean()),
        p_fail=float(fails.mean()),
        p_inconclusive=float(open_.mean()),
        mean_pairs=float(pairs.mean()),
        pairs_if_pass=given(passes),
        pairs_if_fail=given(fails),
        pairs_if_inconclusive=given(open_),
    )
