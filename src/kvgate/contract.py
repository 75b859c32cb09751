"""The contract: the TOML file that both parties sign; the only place where a threshold stands.

:func:`load_contract` refuses unknown keys, missing numbers and wrong units with file and line.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from kvgate.contract_lines import line_of
from kvgate.contract_tables import (
    Appliance,
    Arm,
    Fraction,
    FractionOrZero,
    Frozen,
    Model,
    Name,
    Parties,
    Positive,
    PositiveInt,
    Risk,
    Terms,
    Text,
    Validity,
    Workload,
)
from kvgate.criterion import BLOCK_STATISTICS, METRICS, Effect, Source
from kvgate.errors import UsageError

GATES: Final = (1, 2, 3, 4)


class CellPlan(Frozen):
    """Cells of a session: one workload at several levels (concurrency)."""

    workload: Name
    levels: tuple[PositiveInt, ...] = Field(min_length=1)


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
    max_pairs: Annotated[int, Field(ge=2)]
    spare_pairs: int = Field(ge=0)
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


class SoakPlan(Frozen):
    """A long run of one arm; times are campaign seconds (a rehearsal compresses them)."""

    arm: Name
    workload: Name
    level: PositiveInt
    duration_s: Positive
    window_s: Positive
    warmup_s: float = Field(ge=0)
    breaker_failed_share: Fraction
    faults: tuple[Fault, ...] = ()


class ClauseBase(Frozen):
    """A numbered requirement of a gate: one clause is one test."""

    id: Annotated[str, Field(pattern=r"^G[1-4]\.[0-9]+$")]
    text: Text
    metric: str


class CompareClause(ClauseBase):
    """Two arms, by log ratios within pairs. Exactly one of the effects is given."""

    statistic: str
    compare: tuple[Name, Name]
    workload: Name
    levels: tuple[PositiveInt, ...] = Field(min_length=1)
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
    levels: tuple[PositiveInt, ...] = ()
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
    deadline_day: PositiveInt
    pass_valid_days: PositiveInt
    retests: int = Field(ge=0)
    reruns: int = Field(ge=0)
    at_limit: Literal["STOP-LOSS", "HOLD"] = "HOLD"
    pairs: PairPlan | None = None
    soak: SoakPlan | None = None
    clause: tuple[Clause, ...] = Field(min_length=1)


class Contract(Frozen):
    """The whole contract, validated; ``digest`` is over its canonical form."""

    schema_version: Literal[1] = Field(alias="schema")
    id: Name
    title: Text
    rehearsal: bool
    seed: str
    appliance: Appliance
    parties: Parties
    campaign: Terms
    risk: Risk
    model: Model
    arms: dict[Name, Arm]
    workloads: dict[Name, Workload]
    validity: Validity
    gate1: GateTerms | None = None
    gate2: GateTerms | None = None
    gate3: GateTerms | None = None
    gate4: GateTerms | None = None
    _digest: str = PrivateAttr(default="")

    def gate(self, number: int) -> GateTerms:
        terms: GateTerms | None = getattr(self, f"gate{number}")
        if terms is None:
            raise UsageError(f"the contract {self.id} has no gate {number}")
        return terms

    @property
    def gates(self) -> tuple[int, ...]:
        return tuple(n for n in GATES if getattr(self, f"gate{n}") is not None)

    @property
    def digest(self) -> str:
        """SHA-256 of what the parties wrote, in canonical form: comments and layout do not change
        it, numbers do, and a later version of kvgate with more keys does not either."""
        return self._digest

    @model_validator(mode="after")
    def _consistent(self) -> Contract:
        problems = list(_inconsistencies(self))
        if problems:
            path, message = problems[0]
            raise ValueError(f"@{path}@{message}")
        return self


def _inconsistencies(contract: Contract) -> Iterator[tuple[str, str]]:
    """What the types cannot say, as (key path, message)."""
    if not contract.gates:
        yield "id", "the contract has no gate"
    for number in contract.gates:
        terms = contract.gate(number)
        seen: set[str] = set()
        for index, clause in enumerate(terms.clause):
            path = f"gate{number}.clause.{index}"
            if not clause.id.startswith(f"G{number}."):
                yield f"{path}.id", f"clause {clause.id} stands in gate {number}"
            if clause.id in seen:
                yield f"{path}.id", f"clause {clause.id} stands twice"
            seen.add(clause.id)
            for problem in _clause_inconsistencies(contract, terms, clause):
                yield f"{path}.{problem[0]}", problem[1]
        for cells in _cell_plans(terms):
            if cells.workload not in contract.workloads:
                yield f"gate{number}.pairs.cells", f"unknown workload {cells.workload!r}"
        if terms.soak is not None and terms.soak.workload not in contract.workloads:
            yield f"gate{number}.soak.workload", f"unknown workload {terms.soak.workload!r}"


def _cell_plans(terms: GateTerms) -> tuple[CellPlan, ...]:
    plan = terms.pairs
    return () if plan is None else plan.cells + plan.reference_cells + plan.warmup


def _clause_inconsistencies(
    contract: Contract, terms: GateTerms, clause: Clause
) -> Iterator[tuple[str, str]]:
    metric = METRICS.get(clause.metric)
    if metric is None:
        yield "metric", f"unknown metric {clause.metric!r}; known: {', '.join(sorted(METRICS))}"
        return
    for key in ("arm", "reference_arm"):
        arm = getattr(clause, key, None)
        if arm is not None and arm not in contract.arms:
            yield key, f"unknown arm {arm!r}; known: {', '.join(contract.arms)}"
    for arm in getattr(clause, "compare", ()):
        if arm not in contract.arms:
            yield "compare", f"unknown arm {arm!r}; known: {', '.join(contract.arms)}"
    if isinstance(clause, LimitClause) and clause.unit != metric.unit:
        yield "unit", f"unit {clause.unit!r}, but {metric.name} is measured in {metric.unit!r}"
    if isinstance(clause, LimitClause) and metric.source is Source.FACT and clause.hosts is None:
        yield "metric", f"{metric.name} is a fact of hosts: name their group with `hosts`"
    if isinstance(clause, LimitClause) and metric.source is Source.BLOCK and not clause.levels:
        yield "metric", f"{metric.name} is measured in blocks: name arm, workload and levels"
    if isinstance(clause, CompareClause):
        known = BLOCK_STATISTICS.get(clause.metric, ())
        if clause.statistic not in known:
            yield "statistic", f"{clause.statistic!r} of {clause.metric}; known: {', '.join(known)}"
        planned = {(c.workload, level) for c in _cell_plans(terms) for level in c.levels}
        for level in clause.levels:
            if (clause.workload, level) not in planned:
                yield "levels", f"{clause.workload}@{level} is in no cell of the gate's plan"


def parse_contract(data: bytes, *, name: str) -> Contract:
    """Contract from TOML bytes; ``name`` is the file shown in errors.

    Raises UsageError with file:line, what is wrong and what is expected.
    """
    try:
        text = data.decode()
        raw: dict[str, Any] = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError("the contract is not UTF-8", where=name) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not TOML: {error}", where=name, remedy="correct that line") from error
    try:
        contract = Contract.model_validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        path, message = _first_problem(error)
        raise UsageError(
            f"{path}: {message}",
            where=f"{name}:{line_of(text, path)}",
            remedy="correct the contract; `kvgate contract check FILE` checks it",
        ) from error
    contract._digest = hashlib.sha256(
        json.dumps(raw, sort_keys=True, ensure_ascii=False, default=str).encode()
    ).hexdigest()
    return contract


def load_contract(path: Path) -> Contract:
    """Read and check a contract file; raises UsageError with place and remedy."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the contract cannot be read: {error.strerror}",
            where=str(path),
            remedy="name one with --contract FILE; the shipped ones are in gates/contracts/",
        ) from error
    return parse_contract(data, name=str(path))


def _first_problem(error: ValidationError) -> tuple[str, str]:
    """Key path and message of the most telling problem pydantic found."""
    problems = error.errors(include_url=False)
    # A clause is tried against every form: the form that fits best has the fewest problems.
    by_form: dict[str, list[tuple[tuple[int | str, ...], str]]] = {}
    for problem in problems:
        loc = problem["loc"]
        form = next((str(p) for p in loc if "Clause" in str(p)), "")
        plain = tuple(p for p in loc if "Clause" not in str(p))
        message = _message(problem["type"], problem["msg"])
        by_form.setdefault(form, []).append((plain, message))
    best = min(by_form.values(), key=len)
    # An unknown key has a place in the file; a missing one often is the same key, misspelt.
    loc, message = min(best, key=lambda problem: problem[1] != "unknown key")
    if message.startswith("@"):
        _, path, message = message.split("@", 2)
        return path, message
    return ".".join(str(p) for p in loc), message


def _message(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "missing key"
    if kind in {"less_than", "less_than_equal"}:
        return f"{message} (a fraction: write 0.25 for 25 %)"
    return message.removeprefix("Value error, ")
