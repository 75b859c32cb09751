"""Verdicts and decisions: the words a gate ends with, and the records that carry them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvgate.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_PASS
from kvgate.reason import Reason


class Verdict(StrEnum):
    """What evidence says of a clause or a gate."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    FAIL = "FAIL"


class Decision(StrEnum):
    """What follows from a gate's verdict under the contract."""

    PROCEED = "PROCEED"
    STOP_LOSS = "STOP-LOSS"
    EXTEND = "EXTEND"
    RERUN = "RERUN"
    HOLD = "HOLD"


class About(StrEnum):
    """Whom a condition speaks about: only the appliance's own faults are held against it."""

    INSTRUMENT = "instrument"
    ENVIRONMENT = "environment"
    APPLIANCE = "appliance"


_SEVERITY: Final = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.FAIL)

EXIT_CODE: Final[Mapping[Verdict, int]] = {
    Verdict.PASS: EXIT_PASS,
    Verdict.FAIL: EXIT_FAIL,
    Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
    Verdict.INVALID: EXIT_INVALID,
}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """FAIL > INVALID > INCONCLUSIVE > PASS; no verdict at all is INVALID, never PASS."""
    return max(verdicts, key=_SEVERITY.index, default=Verdict.INVALID)


@dataclass(frozen=True, slots=True)
class Condition:
    """One validity condition of one block: measured value against the contract's limit.

    ``ok`` is None where the value could not be had; that breaks the condition like False does.
    """

    name: str
    about: About
    ok: bool | None
    value: float | str | None
    limit: float | str | None
    unit: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A block that broke a condition, and the pair that left the comparison with it."""

    block: int
    pair: int | None
    arm: str
    cell: str
    condition: Condition


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number of a clause beside its threshold.

    ``where`` is a cell ("cold_restore@16") or a host; ``value``, ``low``, ``high``, ``threshold``
    are in ``unit`` ("1" is a fraction); ``low``/``high`` is the interval that the verdict rests on;
    ``n`` counts pairs, hosts or requests; ``details`` are further numbers for the reader.
    """

    where: str
    value: float | str | None
    unit: str
    relation: str
    threshold: float | str | None
    verdict: Verdict
    reason: Reason
    n: int
    low: float | None = None
    high: float | None = None
    details: Mapping[str, float | str | None] | None = None

    def __post_init__(self) -> None:
        finite = not isinstance(self.value, float) or math.isfinite(self.value)
        if self.verdict is Verdict.PASS and (self.value is None or not finite):
            raise ValueError(f"{self.where}: a PASS needs a finite value, got {self.value}")


@dataclass(frozen=True, slots=True)
class ClauseVerdict:
    """The verdict of one numbered requirement; ``accepted`` is what a gate's test asserts.

    ``waived_by`` are the parties whose waivers in force let it go. Its verdict stays what the
    evidence says: a waived clause is never a PASS.
    """

    clause: str
    form: str
    metric: str
    text: Mapping[str, str]
    verdict: Verdict
    reason: Reason
    figures: tuple[Figure, ...]
    findings: tuple[Reason, ...] = ()
    waived_by: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def waived(self) -> bool:
        return bool(self.waived_by) and not self.accepted


@dataclass(frozen=True, slots=True)
class Interruption:
    """A break of a run after something had been measured, and how the run went on.

    ``next_session`` and ``next_block`` are the numbers from which it measured on; the blocks of
    ``broken_sessions`` no longer count, ``unfinished_blocks`` left nothing whole. ``rebooted`` is
    None where the kernel named no boot.
    """

    reason: str
    resumed_at: str
    next_session: int
    next_block: int
    broken_sessions: tuple[int, ...]
    unfinished_blocks: tuple[int, ...]
    rebooted: bool | None


@dataclass(frozen=True, slots=True)
class WaiverShown:
    """A waiver that was presented, with what became of it; ``standing`` is
    `kvgate.waiver.Standing`, "in force" or why it has no effect. ``used`` where it let go something
    that was not met."""

    clause: str
    party: str
    reason: str
    granted: str
    expires: str
    standing: str
    used: bool


@dataclass(frozen=True, slots=True)
class DeadlineState:
    """Where the run stands in the calendar; days since the campaign's day 0, by ``as_of``."""

    began: str
    day: int
    deadline_day: int
    missed_by_days: int


@dataclass(frozen=True, slots=True)
class RunSpent:
    """One run of the campaign and the hours it took; None where its evidence does not tell."""

    gate: int
    run: int
    mode: str
    verdict: str | None
    decision: str | None
    as_of: str
    hours: float | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What the campaign used until the end of this run, this run included and last.

    ``hours`` sums the runs whose hours are known; ``untimed`` counts the others. ``cost`` is
    ``days`` at the contract's price of a day and ``hours`` at that of a platform's hour, in
    ``currency``; None where the contract names neither.
    """

    runs: tuple[RunSpent, ...]
    hours: float
    untimed: int
    days: float
    currency: str
    cost: float | None


@dataclass(frozen=True, slots=True)
class Avoided:
    """What a stop saves: the days until the campaign's end at the price of a day, the gates that
    need not be run, and the price of the appliance less what stays owed; None where the contract
    names no price."""

    days: float
    gates: tuple[int, ...]
    days_cost: float | None
    purchase: float | None
    owed: float | None
    currency: str
    total: float | None


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One figure that stopped the gate: by how much it misses, and how certain that is.

    ``by`` is the distance of ``value`` from ``threshold``, ``by_at_least`` that of the favourable
    end of the interval (0 where that end keeps the threshold); both in ``unit``, None for texts.
    ``confidence`` is the least probability with which such an interval holds, over all looks
    together for a repeated one; None where the figure is a plain reading of ``n`` values.
    """

    clause: str
    text: Mapping[str, str]
    verdict: Verdict
    where: str
    value: float | str | None
    unit: str
    relation: str
    threshold: float | str | None
    by: float | None
    by_at_least: float | None
    low: float | None
    high: float | None
    confidence: float | None
    method: str
    n: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class StopRecord:
    """What a buyer needs who is told STOP-LOSS or HOLD: which clause, by how much, with what
    certainty, what was spent, what a stop avoids, and what the contract says follows."""

    shortfalls: tuple[Shortfall, ...]
    avoided: Avoided
    follows: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The verdict of a gate with everything that led to it; this is ``verdict.json``.

    ``decision`` is None for a run that does not count (engineering, repeat). ``stop`` is there for
    the decisions STOP-LOSS and HOLD; ``waivers`` are all that were presented.
    """

    gate: int
    campaign: str
    run: int
    mode: str
    rehearsal: bool
    as_of: str
    contract_id: str
    contract_digest: str
    judged_by: str
    verdict: Verdict
    reason: Reason
    decision: Decision | None
    decision_reason: Reason
    clauses: tuple[ClauseVerdict, ...]
    exclusions: tuple[Exclusion, ...]
    findings: tuple[Reason, ...]
    pairs_measured: int
    blocks_measured: int
    deadline: DeadlineState | None = None
    spent: Spent | None = None
    stop: StopRecord | None = None
    waivers: tuple[WaiverShown, ...] = ()
    interruptions: tuple[Interruption, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODE[self.verdict]
