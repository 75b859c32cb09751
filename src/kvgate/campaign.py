"""A campaign: one appliance at one site, its gates in order, and what each outcome lets happen.

Pure: which gate may open and which decision follows are functions of the sealed history. The
history itself is read from the bundles, so there is no second truth beside the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kvgate.contract import Contract
from kvgate.errors import GateClosed
from kvgate.verdict import Decision, Verdict


class Mode(StrEnum):
    """Whether a run counts. Only a counted one is followed by a decision."""

    COUNTED = "counted"
    ENGINEERING = "engineering"  # out of order, on explicit demand
    REPEAT = "repeat"  # of a gate that has been passed: the first result stays


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The sealed PASS on which a gate opened."""

    gate: int
    run: int
    manifest_sha256: str
    as_of: str


@dataclass(frozen=True, slots=True)
class CampaignFacts:
    """``campaign.json``: everything a decision needs that is not a measurement.

    ``as_of`` is UTC in ISO 8601; ``selected`` are the clauses whose tests were collected;
    ``retests_used`` and ``reruns_used`` count earlier counted runs of this gate; ``extends`` is the
    manifest digest of the inconclusive run whose pairs this one goes on from.
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


@dataclass(frozen=True, slots=True)
class PastRun:
    """One earlier run of a gate as its bundle tells it.

    ``damaged``: it says that it was sealed, but its seal no longer holds; what it decided is lost.
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

    @property
    def counts(self) -> bool:
        return self.mode is Mode.COUNTED and self.manifest_sha256 is not None


@dataclass(frozen=True, slots=True)
class Opening:
    """That a gate may open, and how the run counts.

    ``extends`` is the inconclusive run whose pairs are kept: starting afresh after each
    inconclusive result would be measuring until it pleases.
    """

    mode: Mode
    run: int
    retests_used: int
    reruns_used: int
    predecessor: Predecessor | None
    extends: PastRun | None = None


def open_gate(
    contract: Contract,
    gate: int,
    history: Sequence[PastRun],
    *,
    as_of: datetime,
    rehearsal: bool,
    engineering: bool = False,
    serials: tuple[str, ...] = (),
    firmware: str = "",
) -> Opening:
    """Whether ``gate`` may open now; raises GateClosed with the reason and the remedy."""
    run = 1 + max((p.run for p in history if p.gate == gate), default=0)
    mine = [p for p in history if p.gate == gate and p.counts]
    retests = sum(p.verdict is Verdict.FAIL for p in mine)
    reruns = sum(p.verdict is Verdict.INVALID for p in mine)
    if engineering:
        return Opening(Mode.ENGINEERING, run, retests, reruns, None)
    damaged = [p for p in history if p.damaged]
    if damaged:
        raise GateClosed(
            f"the sealed evidence of G{damaged[0].gate} run {damaged[0].run} was changed",
            where=damaged[0].path,
            remedy="see what with `kvgate verify`, restore it from a copy, or start a new campaign",
        )
    stopped = [p for p in history if p.counts and p.decision is Decision.STOP_LOSS]
    if stopped:
        raise GateClosed(
            f"the campaign ended: G{stopped[0].gate} run {stopped[0].run} decided STOP-LOSS",
            where=stopped[0].path,
            remedy="a new campaign needs --campaign NAME (in a rehearsal: --new-campaign)",
        )
    predecessor = _predecessor(
        contract, gate, history, as_of=as_of, rehearsal=rehearsal, serials=serials,
        firmware=firmware,
    )  # fmt: skip
    # A PASS that no longer speaks (expired, changed contract or appliance) is measured anew.
    if any(
        p.verdict is Verdict.PASS
        and not _stale(contract, p, as_of=as_of, rehearsal=rehearsal, serials=serials,
                       firmware=firmware)
        for p in mine
    ):  # fmt: skip
        return Opening(Mode.REPEAT, run, retests, reruns, predecessor)
    at_limit = [
        p for p in mine if p.verdict is Verdict.INCONCLUSIVE and p.decision is Decision.HOLD
    ]
    if at_limit:
        raise GateClosed(
            f"G{gate} was inconclusive at the contract's limit and is on HOLD",
            where=at_limit[-1].path,
            remedy="the parties must agree; measuring until it passes is no evidence",
        )
    terms = contract.gate(gate)
    if reruns > terms.reruns:
        raise GateClosed(
            f"G{gate} used its {terms.reruns} reruns and is on HOLD",
            where=mine[-1].path,
            remedy="a person must act: find why the measurement fails, then start a new campaign",
        )
    # A run that was no measurement neither uses up nor forgets the pairs that were one.
    last = next((p for p in reversed(mine) if p.verdict is not Verdict.INVALID), None)
    extends = last if last is not None and last.decision is Decision.EXTEND else None
    if extends is not None and extends.contract_digest != contract.digest:
        raise GateClosed(
            f"G{gate} was inconclusive under another contract",
            where=extends.path,
            remedy="go on with the contract it was begun with, or start a new campaign",
        )
    return Opening(Mode.COUNTED, run, retests, reruns, predecessor, extends)


def _predecessor(
    contract: Contract,
    gate: int,
    history: Sequence[PastRun],
    *,
    as_of: datetime,
    rehearsal: bool,
    serials: tuple[str, ...],
    firmware: str,
) -> Predecessor | None:
    """The sealed, unexpired PASS of the gate before, for the same contract, serials, firmware."""
    earlier = [n for n in contract.gates if n < gate]
    if not earlier:
        return None
    before = earlier[-1]
    remedy = f"run pytest -m gate{before} first (--engineering runs out of order and never counts)"
    passes = [
        p for p in history if p.gate == before and p.counts and p.verdict is Verdict.PASS
    ]  # fmt: skip
    if not passes:
        tried = [p for p in history if p.gate == before and p.verdict is not None]
        last = f"; its last verdict is {tried[-1].verdict}" if tried else ""
        raise GateClosed(f"G{gate} does not open: G{before} has no sealed PASS{last}",
                         remedy=remedy)  # fmt: skip
    last_pass = passes[-1]
    wrong = _stale(
        contract, last_pass, as_of=as_of, rehearsal=rehearsal, serials=serials, firmware=firmware
    )
    if wrong:
        raise GateClosed(f"G{gate} does not open: {wrong}", where=last_pass.path, remedy=remedy)
    return Predecessor(
        before, last_pass.run, last_pass.manifest_sha256 or "", last_pass.as_of
    )  # fmt: skip


def _stale(
    contract: Contract,
    passed: PastRun,
    *,
    as_of: datetime,
    rehearsal: bool,
    serials: tuple[str, ...],
    firmware: str,
) -> str:
    """Why a PASS no longer speaks of this appliance under this contract; empty where it does."""
    gate = f"G{passed.gate}"
    if passed.contract_digest != contract.digest:
        return f"the contract changed since {gate} passed"
    if passed.rehearsal != rehearsal:
        return "a rehearsal's PASS opens no real gate"
    if serials and passed.serials != serials:
        return f"the serial numbers changed since {gate} passed"
    if firmware and passed.firmware != firmware:
        return f"the firmware changed since {gate} passed"
    try:
        days = timedelta(days=contract.gate(passed.gate).pass_valid_days)
        expires = datetime.fromisoformat(passed.as_of) + days
        expired = as_of > expires
    except (ValueError, TypeError):
        return f"the PASS of {gate} has no usable date"
    return f"the PASS of {gate} expired on {expires:%Y-%m-%d}" if expired else ""


def utc_text(moment: datetime) -> str:
    """UTC in ISO 8601 with seconds; the only form of a date in evidence."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")
