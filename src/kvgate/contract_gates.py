"""What a gate of the contract asks: its plans of measurement and the forms of a clause."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from kvgate.contract_tables import (
    Count,
    Days,
    Fraction,
    FractionOrZero,
    Frozen,
    Level,
    Name,
    Positive,
    PositiveInt,
    Text,
)
from kvgate.criterion import Effect

Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class CellPlan(Frozen):
    """Cells of a session: one workload at several levels (concurrency), in every combination of the
    named setups. Names that the contract does not define are the plain ones: "default", "local"."""

    workload: Name
    levels: tuple[Level, ...] = Field(min_length=1)
    parallelism: Names = ("default",)
    strategy: Names = ("default",)
    distance: Names = ("local",)


class PairPlan(Frozen):
    """Pairs of sessions of two arms. ``compare`` is (reference arm, tested arm).

    Two guards widen every interval: ``noise_carry_over`` is the correlation of neighbouring pairs
    that is allowed for, ``noise_sd_floor`` the spread of a pair's log ratio below which no sample
    is believed.
    """

    compare: tuple[Name, Name]
    cells: tuple[CellPlan, ...] = Field(min_length=1)
    min_pairs: Annotated[int, Field(ge=2)]
    planned_pairs: Annotated[int, Field(ge=2)]
    max_pairs: Annotated[int, Field(ge=2, le=1_000)]
    spare_pairs: Count
    excluded_share_at_most: Fraction
    pools: PositiveInt = 2
    noise_carry_over: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise_sd_floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    reference_arm: Name | None = None
    reference_cells: tuple[CellPlan, ...] = ()
    warmup: tuple[CellPlan, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> PairPlan:
        if not self.min_pairs <= self.planned_pairs <= self.max_pairs:
            raise ValueError("min_pairs <= planned_pairs <= max_pairs does not hold")
        return self


class Fault(Frozen):
    """A fault injected into a soak, at a time since its start (campaign seconds)."""

    kind: Literal["store-restart", "engine-cache-reset"]
    at_s: Positive


class Canaries(Frozen):
    """Prompts with log-probabilities that are asked all through a soak, one every ``every_s``
    (campaign seconds), round over the prompts of a ``workload`` block at ``level``.

    ``reference_arm``, which has no store, answers them before the soak and again after it: the
    right answers, the engine against itself, and the proof that it can answer without the store.
    ``logprob_tolerance`` in nats.
    """

    workload: Name
    level: Level
    every_s: Positive
    reference_arm: Name
    logprob_tolerance: Positive
    min_answers: PositiveInt


class SoakPlan(Frozen):
    """A long run of one arm; times are campaign seconds (a rehearsal compresses them).

    ``edge_s`` is the length of the first and of the last stretch that are compared.
    ``upper_tiers_tokens`` is what the engine's own cache and a DRAM tier before the store hold
    together: the pool of prompts is larger, so that every prompt is cold when its turn comes again.
    After a fault TTFT is normal when it is within ``recovered_within`` of the median before.
    ``parallelism``, ``strategy`` and ``distance`` are the setup; one engine serves a soak.
    """

    arm: Name
    workload: Name
    level: Level
    duration_s: Positive
    window_s: Positive
    warmup_s: float = Field(ge=0)
    edge_s: Positive
    upper_tiers_tokens: PositiveInt
    breaker_failed_share: Fraction
    recovered_within: Fraction
    parallelism: Name = "default"
    strategy: Name = "default"
    distance: Name = "local"
    canaries: Canaries | None = None
    faults: tuple[Fault, ...] = ()


class ClauseBase(Frozen):
    """A numbered requirement of a gate: one clause is one test.

    ``parallelism``, ``strategy`` and ``distance`` name the setups of which it speaks; an axis that
    is not named leaves all planned ones in.
    """

    id: Annotated[str, Field(pattern=r"^G[1-4]\.[0-9]+$")]
    text: Text
    metric: str
    parallelism: tuple[Name, ...] = ()
    strategy: tuple[Name, ...] = ()
    distance: tuple[Name, ...] = ()


class CompareClause(ClauseBase):
    """Two arms, by log ratios within pairs. Exactly one of the effects is given."""

    statistic: str
    compare: tuple[Name, Name]
    workload: Name
    levels: tuple[Level, ...] = Field(min_length=1)
    drop_at_least: Fraction | None = None
    gain_at_least: Positive | None = None
    rise_at_most: Fraction | None = None
    equal_within: Fraction | None = None
    indifference: Fraction | None = None
    design_effect: Fraction | None = None
    estimate_must_reach: bool = True
    band_top: Positive | None = None

    @property
    def effect(self) -> Effect:
        return next(e for e in Effect if getattr(self, e.value) is not None)

    @property
    def threshold(self) -> float:
        return float(getattr(self, self.effect.value))

    @model_validator(mode="after")
    def _one_effect(self) -> CompareClause:
        given = [e for e in Effect if getattr(self, e.value) is not None]
        if len(given) != 1:
            names = ", ".join(e.value for e in Effect)
            raise ValueError(f"exactly one of {names} must be given, found {len(given)}")
        two_sided = given[0] is Effect.SAME
        if two_sided != (self.indifference is None):
            raise ValueError("indifference belongs to every effect but equal_within")
        if two_sided != (self.compare[0] == self.compare[1]):
            raise ValueError("equal_within compares an arm with itself, the others two arms")
        if self.indifference is not None and given[0] is not Effect.RISE:
            if self.design_effect is None or self.design_effect <= self.threshold:
                raise ValueError("design_effect must lie above the threshold")
            if self.indifference >= self.threshold:
                raise ValueError("indifference must be smaller than the threshold")
        return self


class LimitClause(ClauseBase):
    """A value against a fixed limit: floor, ceiling or equals. ``unit`` must be the metric's."""

    unit: str
    floor: float | None = None
    ceiling: float | None = None
    equals: str | float | None = None
    arm: Name | None = None
    workload: Name | None = None
    levels: tuple[Level, ...] = ()
    hosts: Name | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> LimitClause:
        given = [n for n in ("floor", "ceiling", "equals") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of floor, ceiling, equals must be given, found {len(given)}"
            )
        return self

    @property
    def relation(self) -> str:
        if self.floor is not None:
            return ">="
        return "<=" if self.ceiling is not None else "=="

    @property
    def limit(self) -> float | str:
        for value in (self.floor, self.ceiling, self.equals):
            if value is not None:
                return value
        raise AssertionError("validated above")


class AnswersClause(ClauseBase):
    """Answers equal to the recompute arm's. Log-probabilities in nats."""

    workload: Name
    reference_arm: Name
    arm: Name
    logprob_tolerance: Positive
    wrong_share_at_most: FractionOrZero
    min_answers: PositiveInt


class ErrorsClause(ClauseBase):
    """No errors that only the tested arm has while its paired reference is healthy."""

    compare: tuple[Name, Name]
    share_at_most: FractionOrZero
    min_pairs: PositiveInt


Clause = CompareClause | LimitClause | AnswersClause | ErrorsClause


class GateTerms(Frozen):
    """One gate: its clauses, what is measured for them, and what follows from each outcome."""

    title: Text
    deadline_day: Days
    pass_valid_days: Days
    retests: Count
    reruns: Count
    interruptions: Count = 0
    at_limit: Literal["STOP-LOSS", "HOLD"] = "HOLD"
    pairs: PairPlan | None = None
    soak: SoakPlan | None = None
    clause: tuple[Clause, ...] = Field(min_length=1)
