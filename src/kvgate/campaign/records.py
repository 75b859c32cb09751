"""The records of a campaign: what a run was told, what an earlier one left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from kvgate.verdict import Decision, Interruption, RunSpent, Verdict
from kvgate.waiver import SignedWaiver

Configuration = Mapping[str, Mapping[str, str]]
"""What was under test, as facts and roles told it: kind of `kvgate.contract_tables.Changes` ->
place (host or arm, and which of its things) -> what it said."""


class Mode(StrEnum):
    """Whether a run counts. Only a counted one is followed by a decision."""

    COUNTED = "counted"
    ENGINEERING = "engineering"  # out of order, on explicit demand
    REPEAT = "repeat"  # of a gate that has been passed: the first result stays
    IMPORTED = "imported"  # from files of another load generator


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The sealed PASS on which a gate opened; ``waived`` are the clauses of it that were let go."""

    gate: int
    run: int
    manifest_sha256: str
    as_of: str
    waived: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReliedOn:
    """What was under test in an earlier run that this one builds on."""

    gate: int
    run: int
    manifest_sha256: str
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class CampaignFacts:
    """``campaign.json``: everything a decision needs that is not a measurement.

    ``as_of`` is UTC in ISO 8601; ``selected`` are the clauses whose tests were collected;
    ``retests_used`` and ``reruns_used`` count earlier counted runs of this gate; ``extends`` is the
    manifest digest of the inconclusive run whose pairs this one goes on from.

    ``began`` is day 0 of the deadlines (empty: ``as_of``); ``earlier`` are the campaign's runs
    before this one; ``relied_on`` the passed gates, and the run gone on from, with what was under
    test in them. ``interruptions`` are those after which this very run was gone on with.
    ``opened_sha256`` is the digest of its line in the campaign's list of runs that were opened.
    """

    name: str
    gate: int
    run: int
    mode: Mode
    rehearsal: bool
    as_of: str
    contract_id: str
    contract_digest: str
    kvgate_version: str
    inventory: str
    selected: tuple[str, ...]
    retests_used: int
    reruns_used: int
    serials: tuple[str, ...]
    firmware: str
    predecessor: Predecessor | None
    faults: tuple[str, ...]
    time_scale: float
    extends: str | None
    began: str = ""
    earlier: tuple[RunSpent, ...] = ()
    waivers: tuple[SignedWaiver, ...] = ()
    relied_on: tuple[ReliedOn, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    opened_sha256: str = ""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One earlier run of a gate as its bundle tells it.

    ``damaged``: it says that it was sealed, but its seal no longer holds; what it decided is lost.
    ``unmet`` are the clauses (or "G3.deadline") that kept it from its PASS, waived ones left out;
    ``unwaivable`` those of them that nobody can let go. ``waived`` maps what its decision let go to
    the day until which that holds. ``pairs`` counts those measured, earlier ones gone on from too.
    ``earlier`` are the runs that it saw when it was opened, ``opened_sha256`` is its line in the
    list of runs.
    """

    gate: int
    run: int
    mode: Mode
    verdict: Verdict | None
    decision: Decision | None
    as_of: str
    contract_digest: str
    serials: tuple[str, ...]
    firmware: str
    manifest_sha256: str | None
    rehearsal: bool
    path: str
    damaged: bool = False
    hours: float | None = None
    configuration: Configuration = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    unwaivable: tuple[str, ...] = ()
    waived: Mapping[str, str] = field(default_factory=dict)
    pairs: int | None = None
    earlier: tuple[RunSpent, ...] = ()
    opened_sha256: str = ""

    @property
    def name(self) -> str:
        return f"G{self.gate} run {self.run}"

    @property
    def counts(self) -> bool:
        return self.mode is Mode.COUNTED and self.manifest_sha256 is not None

    @property
    def spent(self) -> RunSpent:
        """This run as a later one lists it."""
        return RunSpent(
            self.gate, self.run, self.mode, self.verdict, self.decision, self.as_of, self.hours
        )


@dataclass(frozen=True, slots=True)
class Opening:
    """That a gate may open, and how the run counts.

    ``extends`` is the inconclusive run whose pairs are kept: starting afresh after each
    inconclusive result would be measuring until it pleases. ``relied_on`` (what was
    under test in the runs that this one builds on), ``began``, ``earlier`` and ``waivers`` go into
    ``campaign.json`` as they are.
    """

    mode: Mode
    run: int
    retests_used: int
    reruns_used: int
    predecessor: Predecessor | None
    extends: PastRun | None = None
    relied_on: tuple[ReliedOn, ...] = ()
    began: str = ""
    earlier: tuple[RunSpent, ...] = ()
    waivers: tuple[SignedWaiver, ...] = ()


def utc_text(moment: datetime) -> str:
    """UTC in ISO 8601 with seconds; the only form of a date in evidence."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")
