"""The contract: the TOML file that both parties sign; the only place where a threshold stands.

:func:`load_contract` refuses unknown keys, missing numbers and wrong units with file and line.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from kvgate.contract_lines import line_of
from kvgate.criterion import Effect
from kvgate.errors import UsageError

Fraction = Annotated[float, Field(gt=0, lt=1)]
FractionOrZero = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
GATES: Final = (1, 2, 3, 4)


class Frozen(BaseModel):
    """Every table of a contract: unknown keys refused, nothing coerced, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Text(Frozen):
    """A sentence in both languages of the parties."""

    en: str
    zh: str

    def in_(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class Appliance(Frozen):
    """What is to be accepted."""

    vendor: Text
    model: str
    firmware: str
    serials: tuple[str, ...] = Field(min_length=1)


class Parties(Frozen):
    buyer: Text
    vendor: Text
    site: Text


class Terms(Frozen):
    """The campaign as a whole: length in weeks and what a day of it costs."""

    weeks: PositiveInt
    currency: str
    cost_per_day: float = Field(ge=0)


class Risk(Frozen):
    """The two risks of a wrong decision, as probabilities per gate."""

    consumer: Fraction
    producer: Fraction


class Model(Frozen):
    """The served model; ``kv_bytes_per_token`` turns restored tokens into bytes that must move."""

    name: str
    kv_bytes_per_token: PositiveInt
    chunk_tokens: PositiveInt
    vocab_low: PositiveInt
    vocab_high: PositiveInt


class Arm(Frozen):
    """One configuration under comparison. ``store`` is the KV tier behind the engine."""

    text: Text
    store: Name | Literal["none"]
    engine_args: tuple[str, ...] = ()
    store_args: tuple[str, ...] = ()


WorkloadKind = Literal["cold_restore", "warm", "miss", "probe"]


class Workload(Frozen):
    """What the requests of a block look like; lengths in tokens, fixed for every request."""

    kind: WorkloadKind
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    requests_per_level: PositiveInt = 6
    request_deadline_s: Positive = 600.0


class Validity(Frozen):
    """Limits of the validity conditions; shares are fractions. None of them looks at latency.

    ``simulator_late_s_at_most`` belongs to a rehearsal: real seconds in a block by which the
    simulation may miss its own schedule on a busy machine.
    """

    engine_cache_share_at_most: FractionOrZero
    declared_source_share_at_least: Fraction
    bytes_read_share_at_least: Fraction
    bytes_read_share_at_most: Annotated[float, Field(gt=1)]
    store_bytes_per_s_at_most: Positive
    in_flight_share_at_least: Fraction
    client_stall_s_at_most: Positive
    client_cpu_share_at_most: Annotated[float, Field(gt=0, le=1)]
    clock_step_s_at_most: Positive
    preemptions_at_most: int = Field(ge=0)
    telemetry_coverage_at_least: Annotated[float, Field(gt=0, le=1)]
    failed_share_at_most: FractionOrZero
    simulator_late_s_at_most: Positive | None = None


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
        from kvgate.contract_rules import inconsistencies  # the rules need the finished models

        problems = list(inconsistencies(self))
        if problems:
            path, message = problems[0]
            raise ValueError(f"@{path}@{message}")
        return self


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
