"""What a contract's rule would decide, and what it would cost, before anything is measured. Pure.

Turns the comparing clauses of a gate into models for `kvgate.analyse.characteristic`. Clauses are
simulated together. TTFT p50 and throughput of one cell are one piece of evidence in a closed loop
and share their noise; all others are taken as independent, which makes passing them all hardest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from kvgate.analyse.characteristic import (
    Characteristic,
    ClauseModel,
    CurvePoint,
    clause_curve,
    simulate_gate,
)
from kvgate.analyse.sequential import LookPlan
from kvgate.cells import Cell, cells_of, of_clause
from kvgate.contract import CompareClause, Contract, PairPlan
from kvgate.criterion import Effect, benefit
from kvgate.decide.compare import look_plan
from kvgate.errors import UsageError
from kvgate.planning_cost import Cost, Durations, cost, pairs_of

CAMPAIGNS: Final = 10_000
SEED: Final = 20_250_301
GRID_POINTS: Final = 40
ASSUMED_SD: Final = 0.058
"""Of a pair's log ratio of TTFT p50: the figure of the simulations in docs/statistics.md."""
TAIL_FACTOR: Final = 2.0
"""A p99 is assumed to be so many times as noisy as a p50 where nobody measured or named it."""
ONE_PIECE_OF_EVIDENCE: Final = frozenset({("ttft", "p50"), ("throughput", "steady")})

SpreadOf = Callable[[CompareClause, Cell], float]
"""Spread (sd) of one pair's log ratio for a clause in a cell."""
CellsOf = Mapping[str, Sequence[Cell]]
"""The cells of every comparing clause, by its id."""


def comparing(contract: Contract, gate: int) -> tuple[CompareClause, ...]:
    """The clauses of a gate that compare two arms."""
    return tuple(
        c
        for c in contract.gate(gate).clause
        if isinstance(c, CompareClause) and c.effect is not Effect.SAME
    )


def noise_floors(contract: Contract, gate: int) -> tuple[CompareClause, ...]:
    """The clauses of a gate that compare an arm with itself."""
    return tuple(
        c
        for c in contract.gate(gate).clause
        if isinstance(c, CompareClause) and c.effect is Effect.SAME
    )


def benefit_of(effect: Effect, fraction: float) -> float:
    """A true effect, as the fraction that the clause speaks of, on the benefit scale."""
    try:
        return benefit(effect, fraction, 0.0).threshold
    except ValueError as error:
        raise UsageError(
            f"{fraction:g} is no true effect", remedy="give a fraction: 0.26 for 26 %"
        ) from error


def designed(clause: CompareClause) -> float:
    """The effect that the producer's risk speaks of; for "rises at most" no rise at all."""
    return 0.0 if clause.design_effect is None else clause.design_effect


def looks_of(contract: Contract, gate: int) -> LookPlan:
    """Looks and risks of the gate's comparing clauses. Raises UsageError where it has no pairs."""
    return look_plan(contract, gate, pairs_of(contract, gate))


def cells_of_clause(contract: Contract, gate: int, clause: CompareClause) -> tuple[Cell, ...]:
    """The cells that a clause compares: its levels in every setup of which it speaks."""
    return of_clause(clause, cells_of(pairs_of(contract, gate).cells))


def clause_model(
    clause: CompareClause,
    cells: Sequence[Cell],
    looks: LookPlan,
    spread: SpreadOf,
    truth: Sequence[float],
) -> ClauseModel:
    """The clause with ``truth`` (one fraction per cell) as the appliance's true effects."""
    bounds = benefit(clause.effect, clause.threshold, clause.indifference or 0.0)
    own = "" if (clause.metric, clause.statistic) in ONE_PIECE_OF_EVIDENCE else f" of {clause.id}"
    return ClauseModel(
        name=clause.id,
        levels=tuple(f"{cell.label}{own}" for cell in cells),
        effects_log=tuple(benefit_of(clause.effect, t) for t in truth),
        pair_sd=tuple(spread(clause, cell) for cell in cells),
        threshold=bounds.threshold,
        pass_bound=bounds.pass_bound,
        plan=looks,
        require_estimate=clause.estimate_must_reach,
    )


def grid(clause: CompareClause) -> tuple[float, ...]:
    """True effects to try: whole percents from well below the zone to beyond the design effect,
    and the points that a contract names or a sentence speaks of."""
    low, high = _ends(clause)
    step = max(1, math.ceil((high - low) / GRID_POINTS))
    first = low + (round(100 * clause.threshold) - low) % step
    even = {p / 100 for p in range(first, high + 1, step)}
    named = (zone_edge(clause), clause.threshold, just_beyond(clause), designed(clause))
    return tuple(sorted(even | {round(effect, 6) for effect in named}))


def just_beyond(clause: CompareClause) -> float:
    """One point beyond the threshold: what the plain sentence speaks of."""
    if clause.effect is Effect.RISE:
        return max(0.0, clause.threshold - 0.01)
    return clause.threshold + 0.01


def _ends(clause: CompareClause) -> tuple[int, int]:
    zone = clause.indifference or 0.0
    if clause.effect is Effect.RISE:
        return 0, round(100 * (clause.threshold + zone + 0.02))
    low = max(0.0, clause.threshold - 2 * zone)
    return round(100 * low), round(100 * (designed(clause) + 0.02))


@dataclass(frozen=True, slots=True)
class ClausePlan:
    """One clause alone: its curve over true effects (same order as ``effects``) and its design."""

    clause: CompareClause
    cells: tuple[Cell, ...]
    effects: tuple[float, ...]
    curve: tuple[CurvePoint, ...]
    at_zone: Characteristic
    at_design: Characteristic
    at_truth: Characteristic | None
    spreads: tuple[float, ...]

    def at(self, effect: float) -> Characteristic | None:
        """The curve's point at a true effect, None where the grid has none."""
        found = (p for e, p in zip(self.effects, self.curve, strict=True) if abs(e - effect) < 1e-9)
        point = next(found, None)
        return None if point is None else point.characteristic


@dataclass(frozen=True, slots=True)
class GatePlan:
    """A gate as a whole: ``at_design`` with every clause at its design effect, ``at_truth`` with
    the effects that the caller named (None where none were).

    ``curve`` is the whole gate over the true effect of its ``leading`` clause, all levels alike;
    see `implied` for the other clauses.
    """

    gate: int
    pairs: PairPlan
    clauses: tuple[ClausePlan, ...]
    at_design: Characteristic
    at_truth: Characteristic | None
    leading: CompareClause
    curve: tuple[tuple[float, Characteristic], ...]
    wanted: float
    cost: Cost
    window_days: int

    @property
    def accepted(self) -> bool:
        """Whether an appliance at the design effects passes as often as the contract promises."""
        return self.at_design.p_pass >= self.wanted


def plan_gate(
    contract: Contract,
    gate: int,
    looks: LookPlan,
    spread: SpreadOf,
    durations: Durations,
    *,
    truth: Mapping[str, Sequence[float]] | None = None,
    campaigns: int = CAMPAIGNS,
    seed: int = SEED,
) -> GatePlan | None:
    """The operating characteristic of a gate under ``looks``; None where it compares no arms.

    ``truth`` names true effects by clause id, one per cell or one for all; clauses that it does not
    name are at their design effect. Granted retests are part of every probability.
    Raises UsageError for an unknown clause or a wrong number of effects.
    """
    clauses = comparing(contract, gate)
    if not clauses:
        return None
    cells = {c.id: cells_of_clause(contract, gate, c) for c in clauses}
    named = _truths(clauses, cells, truth or {})
    retests = contract.gate(gate).retests

    def model(clause: CompareClause, effects: Sequence[float]) -> ClauseModel:
        return clause_model(clause, cells[clause.id], looks, spread, effects)

    def together(
        effects: Mapping[str, Sequence[float]],
    ) -> tuple[Characteristic, dict[str, Characteristic]]:
        found = simulate_gate(
            [model(c, effects.get(c.id) or _everywhere(cells, c, designed(c))) for c in clauses],
            campaigns=campaigns,
            seed=seed,
        )
        alone = {name: c.with_retests(retests) for name, c in found.clauses}
        return found.gate.with_retests(retests), alone

    at_design, design_alone = together({})
    at_truth, truth_alone = together(named) if named else (None, {})
    planned = []
    for clause in clauses:
        effects = grid(clause)
        zone = zone_edge(clause)
        curve = clause_curve(
            model(clause, _everywhere(cells, clause, designed(clause))),
            [benefit_of(clause.effect, e) for e in (*effects, zone)],
            campaigns=campaigns,
            seed=seed,
        )
        points = [CurvePoint(p.effect_log, p.characteristic.with_retests(retests)) for p in curve]
        planned.append(
            ClausePlan(
                clause,
                cells[clause.id],
                effects,
                tuple(points[:-1]),
                points[-1].characteristic,
                design_alone[clause.id],
                truth_alone.get(clause.id),
                tuple(spread(clause, cell) for cell in cells[clause.id]),
            )
        )
    leading = _leading(clauses)
    terms = contract.gate(gate)
    earlier = [contract.gate(n).deadline_day for n in contract.gates if n < gate]
    return GatePlan(
        gate,
        pairs_of(contract, gate),
        tuple(planned),
        at_design,
        at_truth,
        leading,
        tuple((e, together(implied(clauses, cells, leading, e))[0]) for e in grid(leading)),
        1.0 - contract.risk.producer,
        cost(contract, gate, durations),
        terms.deadline_day - max(earlier, default=0),
    )


def chance_at_design(
    contract: Contract,
    gate: int,
    spread: SpreadOf,
    *,
    campaigns: int = CAMPAIGNS,
    seed: int = SEED,
) -> float | None:
    """Probability that the gate accepts an appliance at the design effects of all its clauses, as
    `plan_gate` has it; None where it compares no arms."""
    clauses = comparing(contract, gate)
    if not clauses:
        return None
    looks, models = looks_of(contract, gate), []
    for clause in clauses:
        cells = cells_of_clause(contract, gate, clause)
        truth = (designed(clause),) * len(cells)
        models.append(clause_model(clause, cells, looks, spread, truth))
    found = simulate_gate(models, campaigns=campaigns, seed=seed)
    return found.gate.with_retests(contract.gate(gate).retests).p_pass


def assumed_spread(contract: Contract) -> SpreadOf:
    """What the contract's [planning] takes for granted of a pair's spread, else ASSUMED_SD; a p99
    is TAIL_FACTOR times as noisy where nobody says otherwise."""
    agreed = contract.planning
    sd = ASSUMED_SD if agreed is None else agreed.pair_sd
    tail = TAIL_FACTOR * sd if agreed is None else agreed.tail_pair_sd or TAIL_FACTOR * sd
    return lambda clause, _cell: tail if clause.statistic == "p99" else sd


def _leading(clauses: Sequence[CompareClause]) -> CompareClause:
    """The clause that the gate is about: a fall of TTFT p50, else the first drop or gain."""
    rank = {Effect.DROP: 1, Effect.GAIN: 2}
    return min(
        clauses,
        key=lambda c: 0 if _is_main(c, "ttft", Effect.DROP) else rank.get(c.effect, 3),
    )


def _is_main(clause: CompareClause, metric: str, effect: Effect) -> bool:
    known = (clause.metric, clause.statistic) in ONE_PIECE_OF_EVIDENCE
    return known and clause.metric == metric and clause.effect is effect


def implied(
    clauses: Sequence[CompareClause],
    cells: CellsOf,
    leading: CompareClause,
    effect: float,
) -> dict[str, tuple[float, ...]]:
    """True effects of a gate whose leading clause has ``effect`` in every cell.

    In a closed loop TTFT is nearly level / throughput, so a fall d of TTFT p50 is a gain of
    1 / (1 - d) - 1. Clauses that do not follow from it are left out: they stay at their design, and
    so does throughput in a setup of which the leading clause does not speak.
    """
    found = {leading.id: _everywhere(cells, leading, effect)}
    setups = {cell.setup for cell in cells[leading.id]}
    if _is_main(leading, "ttft", Effect.DROP):
        for clause in clauses:
            main = _is_main(clause, "throughput", Effect.GAIN)
            followed = any(cell.setup in setups for cell in cells[clause.id])
            if main and followed and clause.workload == leading.workload:
                gain = 1.0 / (1.0 - effect) - 1.0
                found[clause.id] = tuple(
                    gain if cell.setup in setups else designed(clause) for cell in cells[clause.id]
                )
    return found


def zone_edge(clause: CompareClause) -> float:
    """The true effect up to which the consumer's risk is promised."""
    zone = clause.indifference or 0.0
    return clause.threshold + (zone if clause.effect is Effect.RISE else -zone)


def _everywhere(cells: CellsOf, clause: CompareClause, effect: float) -> tuple[float, ...]:
    return (effect,) * len(cells[clause.id])


def _truths(
    clauses: Sequence[CompareClause], cells: CellsOf, truth: Mapping[str, Sequence[float]]
) -> dict[str, tuple[float, ...]]:
    named: dict[str, tuple[float, ...]] = {}
    for clause in clauses:
        effects = tuple(truth.get(clause.id, ()))
        wanted = len(cells[clause.id])
        if len(effects) == 1:
            effects *= wanted
        if effects and len(effects) != wanted:
            raise UsageError(
                f"{clause.id} has {_count(cells[clause.id])}, {len(effects)} true effects given",
                where="--truth",
                remedy="give one for all or one each",
            )
        if effects:
            named[clause.id] = effects
    return named


def _count(cells: Sequence[Cell]) -> str:
    """How many levels a clause has, or cells where it speaks of several setups."""
    several = len({cell.setup for cell in cells}) > 1
    return f"{len(cells)} {'cells' if several else 'levels'}"


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """How often an arm that equals itself would be found so, with ``pairs`` pairs."""

    clause: CompareClause
    pairs: int
    spread: float
    p_pass: float


def plan_floor(
    clause: CompareClause,
    cells: Sequence[Cell],
    pairs: int,
    spread: SpreadOf,
    *,
    campaigns: int = CAMPAIGNS,
    seed: int = SEED,
) -> FloorPlan:
    """Probability that the 95 % t interval of every cell lies inside the clause's zone."""
    rng = np.random.Generator(np.random.PCG64(seed))
    inside = np.ones(campaigns, dtype=np.bool_)
    quantile = float(stats.t.ppf(0.975, pairs - 1))
    for cell in cells:
        sd = spread(clause, cell)
        mean = rng.normal(0.0, sd / math.sqrt(pairs), campaigns)
        seen = sd * np.sqrt(rng.chisquare(pairs - 1, campaigns) / (pairs - 1))
        half = quantile * seen / math.sqrt(pairs)
        inside &= (mean - half >= math.log1p(-clause.threshold)) & (
            mean + half <= math.log1p(clause.threshold)
        )
    widest = max(spread(clause, cell) for cell in cells)
    return FloorPlan(clause, pairs, widest, float(inside.mean()))
