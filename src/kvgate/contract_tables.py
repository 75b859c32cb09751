"""The plain tables of a contract: who, what, where, and the limits of validity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

Fraction = Annotated[float, Field(gt=0, lt=1)]
FractionOrZero = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(gt=0)]
Days = Annotated[int, Field(gt=0, le=36_500)]
Level = Annotated[int, Field(gt=0, le=65_536)]
"""Requests in flight: no more than one client address has ports for."""
Count = Annotated[int, Field(ge=0, le=1_000)]
RiskOf = Annotated[float, Field(gt=0, le=0.5)]
"""A risk, never a confidence: 0.95 written by mistake would let nearly everything pass."""
Words = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
"""Text without control characters, which would speak to a terminal or break a report."""


def _no_template(text: str) -> str:
    if re.search(r"\{[{%#]", text):
        raise ValueError("holds a template, which Ansible would evaluate: write the value itself")
    return text


Argument = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$"), AfterValidator(_no_template)]
"""An argument of a program that Ansible starts: one line, and never a Jinja expression, since a
contract comes from the other party."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
# "buyer valid-before=\"20270101\" ssh-ed25519 AAAA... comment"; no certificate authorities.
Signer = Annotated[
    str,
    Field(
        max_length=4096,
        pattern=r"^(buyer|vendor) "
        r"(((namespaces|valid-after|valid-before)=\"[A-Za-z0-9,:-]+\",?)+ )?"
        r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)"
        r"|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) "
        r"AAAA[A-Za-z0-9+/]+={0,2}( [ -~]*)?$",
    ),
]


class Frozen(BaseModel):
    """Every table of a contract: unknown keys refused, nothing coerced, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Text(Frozen):
    """A sentence in both languages of the parties."""

    en: Words
    zh: Words

    def in_(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class Appliance(Frozen):
    """What is to be accepted."""

    vendor: Text
    model: Words
    firmware: Words
    serials: tuple[Words, ...] = Field(min_length=1)


class Parties(Frozen):
    """Who buys, who sells, where. ``signers`` are the public keys with which they sign sealed
    evidence, each as a line of an OpenSSH allowed-signers file: party, options, key."""

    buyer: Text
    vendor: Text
    site: Text
    signers: tuple[Signer, ...] = ()


class Terms(Frozen):
    """The campaign as a whole: length in weeks and what a day of it costs.

    ``begins`` (a date, 2026-03-02) is day 0 of the deadlines; without it, that of the first run.
    ``missed_deadline`` is the decision of a gate that was not passed by its deadline.
    """

    weeks: Annotated[int, Field(gt=0, le=520)]
    currency: Words
    cost_per_day: NotNegative
    begins: Annotated[str, Field(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")] | None = None
    missed_deadline: Literal["STOP-LOSS", "HOLD"] = "HOLD"

    @field_validator("begins")
    @classmethod
    def _a_day(cls, text: str | None) -> str | None:
        if text is not None:
            date.fromisoformat(text)
        return text


class Costs(Frozen):
    """What a campaign spends and what a stop saves, in the campaign's currency; 0: not shown.

    ``platform_hour`` is an hour of the engines' hosts, ``purchase`` the price that a STOP-LOSS does
    not pay, ``owed_on_stop`` what the buyer owes the vendor all the same.
    """

    platform_hour: NotNegative = 0.0
    purchase: NotNegative = 0.0
    owed_on_stop: NotNegative = 0.0


class Follows(Frozen):
    """What the parties agreed to do after a decision, in their own words."""

    stop_loss: Text | None = None
    hold: Text | None = None
    missed_deadline: Text | None = None


GateNumber = Literal[1, 2, 3, 4]


class Changes(Frozen):
    """The gate that a change of this kind reopens, with all gates after it; None: it is reported
    and reopens nothing.

    ``driver`` is kernel and device drivers of the hosts, ``engine`` versions of engine, store and
    model, ``tuning`` flags and settings of either.
    """

    serials: GateNumber = 1
    firmware: GateNumber = 1
    driver: GateNumber | None = None
    engine: GateNumber | None = None
    tuning: GateNumber | None = None

    def reopens(self, kind: str) -> int | None:
        """The gate that a change of ``kind`` reopens; None for none."""
        found: int | None = getattr(self, kind, None)
        return found


class Planning(Frozen):
    """What `kvgate plan` takes for granted until G2 has measured it, and where that is from.

    ``pair_sd`` is the spread of one pair's log ratio, ``tail_pair_sd`` that of a p99 (default:
    twice as much); the times are those of the platform.
    """

    pair_sd: Fraction
    tail_pair_sd: Fraction | None = None
    source: Text
    start_minutes: Positive | None = None
    prime_seconds: NotNegative | None = None
    request_seconds: Positive | None = None


class Risk(Frozen):
    """The two risks of a wrong decision, as probabilities per gate."""

    consumer: RiskOf
    producer: RiskOf


class Model(Frozen):
    """The served model; ``kv_bytes_per_token`` turns restored tokens into bytes that must move."""

    name: str
    kv_bytes_per_token: PositiveInt
    chunk_tokens: PositiveInt
    vocab_low: PositiveInt
    vocab_high: PositiveInt

    @model_validator(mode="after")
    def _range(self) -> Model:
        if self.vocab_low >= self.vocab_high:
            raise ValueError("vocab_low must lie below vocab_high")
        return self


class Arm(Frozen):
    """One configuration under comparison. ``store`` is the KV tier behind the engine;
    ``store_bytes_per_s_at_most`` what can physically come from it (default: that of the validity
    conditions): local devices are not bound by the appliance's link. ``capacity_bytes`` is its
    usable capacity where its metrics page does not tell that. ``store_is_local``: it lies on the
    engine host, so no distance delays it, and the way to it must gain nothing."""

    text: Text
    store: Name | Literal["none"]
    capacity_bytes: PositiveInt | None = None
    engine_args: tuple[Argument, ...] = ()
    store_args: tuple[Argument, ...] = ()
    store_bytes_per_s_at_most: Positive | None = None
    store_is_local: bool = False

    @model_validator(mode="after")
    def _has_a_store(self) -> Arm:
        if self.store_is_local and self.store == "none":
            raise ValueError("store_is_local: the arm has no store")
        return self


class Parallelism(Frozen):
    """How the engines of a host share it: ``instances`` engines, each started with ``engine_args``
    beside the arm's own; a level is that of the whole host and is split evenly over them.

    ``tensor_parallel`` is the size that every engine must say of itself; None: it is not looked at.
    """

    text: Text
    instances: Annotated[int, Field(ge=1, le=64)] = 1
    tensor_parallel: PositiveInt | None = None
    engine_args: tuple[Argument, ...] = ()


class Strategy(Frozen):
    """What a store promises about a write. ``settings`` are handed to the role, which sets them on
    engine and store and must tell them again; ``engine_args`` and ``store_args`` go to either."""

    text: Text
    settings: dict[Name, Argument] = Field(min_length=1)
    engine_args: tuple[Argument, ...] = ()
    store_args: tuple[Argument, ...] = ()


class Distance(Frozen):
    """How far engines and store are apart: ``delay_ms`` is what a round trip between them gains, in
    ms of the campaign's time; what is measured may differ by ``within_ms``.

    ``round_trip_ms_at_most``: the round trip before anything is put in the way, ms; None: that of
    ``[distance.local]``.
    """

    text: Text
    delay_ms: NotNegative
    within_ms: Positive
    round_trip_ms_at_most: Positive | None = None

    @model_validator(mode="after")
    def _told_from_none(self) -> Distance:
        if self.delay_ms and self.within_ms > self.delay_ms / 2:
            raise ValueError("within_ms must be at most half of delay_ms: else no delay would do")
        return self

    def delay_of(self, arm: Arm) -> float:
        """What a round trip between engines and the arm's store gains, ms."""
        return 0.0 if arm.store_is_local else self.delay_ms


WorkloadKind = Literal[
    "cold_restore", "warm", "miss", "probe", "shared_prefix", "long_document", "multi_turn"
]
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "shared_prefix": ("hit_ratio", "prefixes"),
    "long_document": ("documents", "question_tokens"),
    "multi_turn": ("turns", "user_tokens"),
}
"""The keys that a kind of workload must have and no other may."""


class Workload(Frozen):
    """What the requests of a block look like; lengths in tokens, fixed for every request.

    ``shared_prefix``: prompts begin with one of ``prefixes`` stored beginnings, which are
    ``hit_ratio`` of them (in whole chunks). ``long_document``: each asks ``question_tokens`` about
    one of ``documents`` stored documents. ``multi_turn``: conversations of ``turns`` requests, each
    of which repeats what was said, answers included, and adds ``user_tokens``; ``prompt_tokens`` is
    the first one's length.
    """

    kind: WorkloadKind
    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    requests_per_level: PositiveInt = 6
    request_deadline_s: Positive = 600.0
    hit_ratio: Fraction | None = None
    prefixes: PositiveInt | None = None
    documents: PositiveInt | None = None
    question_tokens: PositiveInt | None = None
    turns: Annotated[int, Field(ge=2, le=1_000)] | None = None
    user_tokens: PositiveInt | None = None

    @model_validator(mode="after")
    def _own_keys(self) -> Workload:
        for kind, keys in _OWN_KEYS.items():
            for key in keys:
                if (getattr(self, key) is not None) != (kind == self.kind):
                    raise ValueError(
                        f"{self.kind} needs {key}"
                        if kind == self.kind
                        else f"{key} belongs to workloads of kind {kind}"
                    )
        return self


class Validity(Frozen):
    """Limits of the validity conditions; shares are fractions. None of them looks at latency.

    ``simulator_late_s_at_most`` belongs to a rehearsal: real seconds in a block by which the
    simulation may miss its own schedule on a busy machine. The ``calibration_`` limits are those
    of the client against a truth server on its own host: errors of p99 in s, requests in flight
    over the level, CPU of one core. ``acknowledged_share_at_least`` is the share of the primed
    tokens that a store must say it holds (whole chunks, so never quite all), and
    ``asked_share_at_least`` that of a block's prompt tokens for which it must have been asked
    before a miss is held against it. ``engine_share_at_least`` is what the least busy of several
    engines must have served, over an even share. ``engine_count_within`` is the share by which the
    tokens that the engines counted may differ from those that our clients have on record. The
    ``load_`` limits are those of several load hosts: how long after the common start one may begin,
    how well its clock's offset must be known, and by how much that may change in a block. What is
    None is not looked at; a limit that is set and finds no data breaks the block:
    ``throttled_share_at_most`` of the looks at processors and accelerators (every engine host must
    tell of ``accelerators_per_engine_host_at_least`` of these), ``fabric_errors_at_most`` and
    ``fabric_pauses_at_most`` at the network ports of this host, each within the block;
    ``fill_share_at_least`` and ``fill_share_at_most`` at what the arm's store says before a block
    that it holds, over its capacity.
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
    calibration_ttft_error_s_at_most: Positive = 0.020
    calibration_lag_s_at_most: Positive = 0.005
    calibration_in_flight_share_at_least: Fraction = 0.97
    calibration_cpu_share_at_most: Annotated[float, Field(gt=0, le=1)] = 0.90
    acknowledged_share_at_least: Fraction = 0.90
    asked_share_at_least: Fraction = 0.90
    engine_share_at_least: Fraction = 0.90
    engine_count_within: FractionOrZero = 0.01
    load_start_late_s_at_most: Positive = 0.100
    load_clock_offset_s_at_most: Positive = 0.010
    load_clock_drift_s_at_most: Positive = 0.020
    throttled_share_at_most: FractionOrZero | None = None
    accelerators_per_engine_host_at_least: Annotated[int, Field(ge=0)] = 0
    fabric_errors_at_most: Annotated[int, Field(ge=0)] | None = None
    fabric_pauses_at_most: Annotated[int, Field(ge=0)] | None = None
    fill_share_at_least: FractionOrZero | None = None
    fill_share_at_most: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _some_fill(self) -> Validity:
        least, most = self.fill_share_at_least, self.fill_share_at_most
        if least is not None and most is not None and least >= most:
            raise ValueError("fill_share_at_least must lie below fill_share_at_most")
        return self
