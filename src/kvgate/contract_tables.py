"""The plain tables of a contract: who, what, where, and the limits of validity."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(gt=0, lt=1)]
FractionOrZero = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


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
