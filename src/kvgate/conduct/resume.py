"""Goes on with an interrupted gate at its next session: nothing measured twice, nothing lost.

The run stays in its bundle. Sessions that ended in a whole pair keep their bytes and the looks that
were taken at them; the rest is marked and measured anew. An interruption is counted where anything
had been measured since the last one, whatever the result, and the contract says how many there may
be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kvgate.adjudicate import adjudicate, campaign_facts, end_of
from kvgate.analyse.listed import broken_sessions
from kvgate.analyse.results import INTERRUPTED
from kvgate.campaign import CampaignFacts, Mode, utc_text
from kvgate.conduct.earlier import (
    Earlier,
    after_interruption,
    block_digests,
    changed_block,
    without_end,
)
from kvgate.conduct.workspace import Workspace
from kvgate.conduct.world import PUT_BACK, World, boot_id, changed_world
from kvgate.contract import Contract
from kvgate.decide.ended import broken_off
from kvgate.errors import GateClosed, KvgateError
from kvgate.evidence import layout
from kvgate.evidence.bundle import Bundle, load_bundle
from kvgate.evidence.journal import CRASHED, Journal
from kvgate.evidence.seal import read_state
from kvgate.verdict import Interruption, Verdict

CONTINUED_GATES: Final = frozenset({3})
"""The main gate alone is dear enough. A soak with a gap in its observation would be INVALID, and
arrival and baseline are measured anew in little time."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A counted run that has no seal: what its bundle says, and whether it had measured anything
    since it was last gone on with."""

    run: int
    bundle: Bundle
    facts: CampaignFacts | None
    fault: str
    measured: bool

    @property
    def name(self) -> str:
        return self.bundle.root.name


@dataclass(frozen=True, slots=True)
class PastInterruptions:
    """How often a gate was interrupted in all its counted runs, and the last run, if unfinished.

    ``sealed`` is the name of a run that was sealed although it was broken off, empty without one.
    """

    count: int
    unfinished: Unfinished | None
    sealed: str = ""


def past_interruptions(space: Workspace, gate: int) -> PastInterruptions:
    """What the gate's bundles say of interruptions.

    Raises GateClosed for an unfinished bundle that cannot be read: what it measured would be lost.
    """
    count = 0
    last: Unfinished | None = None
    untrue = ""
    for run, path in space.bundles(gate):
        state = read_state(path)
        if state is not None and state.state == "sealed":
            sealed = _sealed_facts(path)
            if sealed is not None and sealed.mode is Mode.COUNTED:
                broken = _sealed_broken_off(path)
                untrue = path.name if broken else untrue
                count, last = count + len(sealed.interruptions) + broken, None
            continue
        found = _unfinished(run, path)
        if found is not None:
            noted = 0 if found.facts is None else len(found.facts.interruptions)
            count, last = count + noted + found.measured, found
    return PastInterruptions(count, last, untrue)


def _sealed_broken_off(path: Path) -> bool:
    """Whether a sealed run notes an end that its evidence does not bear out."""
    try:
        bundle = load_bundle(path)
        if end_of(bundle) is None or (bundle.verdict or {}).get("verdict") != Verdict.INVALID:
            return False  # such a run is INVALID, or its FAIL stands all the same
        return broken_off(adjudicate(path).verdict)
    except KvgateError:
        return False  # damaged evidence, which closes the campaign elsewhere


def _sealed_facts(path: Path) -> CampaignFacts | None:
    """None for damaged evidence, which closes the campaign elsewhere."""
    try:
        return campaign_facts(load_bundle(path).campaign or {}, where=str(path))
    except KvgateError:
        return None


def _unfinished(run: int, path: Path) -> Unfinished | None:
    try:
        bundle = load_bundle(path)
    except KvgateError as error:
        raise GateClosed(
            f"the interrupted run {path.name} cannot be read: {error.message}",
            where=str(path),
            remedy="restore it from a copy, or start a new campaign with --campaign NAME",
        ) from error
    fault, facts = "", None
    try:
        facts = campaign_facts(bundle.campaign or {}, where=str(path))
    except KvgateError as error:
        fault = error.message
    if facts is not None and facts.mode is not Mode.COUNTED:
        return None
    begun_at = facts.interruptions[-1].next_block if facts and facts.interruptions else 0
    if facts is not None and facts.extends is not None and not facts.interruptions:
        # What was copied from the run before was measured there.
        begun_at = int((bundle.plan or {}).get("carried_blocks") or len(bundle.blocks))
    return Unfinished(run, bundle, facts, fault, any(b.n >= begun_at for b in bundle.blocks))


def check_interruptions(contract: Contract, gate: int, past: PastInterruptions) -> None:
    """Raises GateClosed where the contract grants no more interruptions, or where one was sealed
    as an end: nobody can go on with that run, and another would be a fresh draw."""
    if past.sealed:
        raise GateClosed(
            f"{past.sealed} was broken off and sealed as if it had ended: G{gate} is on HOLD",
            remedy="a person must act: start a new campaign with --campaign NAME",
        )
    granted = contract.gate(gate).interruptions
    if past.count > granted:
        raise GateClosed(
            f"G{gate} was interrupted {times(past.count)}, the contract grants "
            f"{granted or 'none'}: it is on HOLD",
            remedy="a person must act: find what interrupts it, then start a new campaign",
        )


def to_continue(gate: int, past: PastInterruptions, now: World) -> Unfinished | None:
    """The run to go on with; None where a new one begins.

    Raises GateClosed where an interrupted run must be gone on with and cannot be, because the world
    or its evidence changed: a new run would be a fresh draw.
    """
    left = past.unfinished
    if left is None or gate not in CONTINUED_GATES:
        return None
    why = _obstacle(left, now)
    if not why:
        return left
    if not left.measured and not (left.facts and left.facts.interruptions):
        return None  # nothing was measured, so nothing is drawn afresh
    raise GateClosed(
        f"{left.name} was interrupted and cannot go on: {why}",
        where=str(left.bundle.root),
        remedy=PUT_BACK,
    )


def _obstacle(left: Unfinished, now: World) -> str:
    if left.facts is None:
        return left.fault
    if left.bundle.inventory is None or left.bundle.contract is None:
        return "its contract.toml or inventory.json is missing"
    if left.bundle.plan is None and left.measured:
        return "its plan.json is missing"
    before = World(
        left.facts.contract_digest,
        left.bundle.inventory,
        left.facts.kvgate_version,
        left.facts.serials,
        left.facts.firmware,
        left.facts.faults,
    )
    changed = changed_world(before, now)
    if changed:
        return changed
    block = changed_block(left.bundle)
    return "" if block is None else f"block {block} is not what was measured"


def resume(
    journal: Journal, left: Unfinished, *, selected: tuple[str, ...], now: datetime
) -> tuple[Earlier, CampaignFacts]:
    """Mark what the interruption spoilt, note it in ``campaign.json``, and say where to go on.

    The note is written before anything half-measured is removed, so that nothing goes unnoticed.
    Raises CannotMeasure where ``plan.json`` is not one that a run could have left.
    """
    assert left.facts is not None  # to_continue has read them
    plan: Mapping[str, Any] = left.bundle.plan or {}
    finished = journal.finished_blocks()
    unfinished = tuple(b.n for b in left.bundle.blocks if b.n not in finished)
    earlier = after_interruption(plan, finished, extension=left.facts.extends is not None)
    for session in earlier.sessions:
        # A block that ended just before the interruption is evidence too.
        mine = {str(b.n) for b in left.bundle.blocks
                if b.block is not None and b.block.get("session") == session["number"]}  # fmt: skip
        noted = session.get("blocks") or {}
        session["blocks"] = noted | {
            n: block_digests(journal.root, int(n)) for n in sorted(mine - noted.keys(), key=int)
        }
    facts = replace(left.facts, selected=selected)
    if left.measured:
        note = Interruption(
            reason=left.bundle.partial_reason or CRASHED,
            resumed_at=utc_text(now),
            next_session=len(earlier.sessions),
            next_block=earlier.next_block,
            broken_sessions=broken_sessions(plan.get("sessions") or ()),
            unfinished_blocks=unfinished,
            rebooted=_rebooted(plan),
        )
        facts = replace(facts, interruptions=(*facts.interruptions, note))
    journal.write_json(layout.CAMPAIGN, facts)
    if earlier.sessions:
        going_on = {**without_end(plan), "sessions": list(earlier.sessions)}
        journal.write_json(layout.PLAN, going_on)
    for n in unfinished:
        journal.discard_block(n)
    return earlier, facts


def _rebooted(plan: Mapping[str, Any]) -> bool | None:
    """Whether this is another boot than the last session's; None where nobody knows."""
    before = [s.get("boot_id") for s in plan.get("sessions") or () if s.get("state") != INTERRUPTED]
    now = boot_id()
    if not before or before[-1] is None or now is None:
        return None
    return bool(before[-1] != now)


def told(earlier: Earlier, left: Unfinished, facts: CampaignFacts, planned: int) -> str:
    """The line that says how a run goes on, of ``planned`` sessions."""
    line = f"continuing {left.name} at session {earlier.standing + 1} of {planned}"
    kept = f"{_counted(earlier.next_pair, 'pair')} kept"
    if not left.measured:
        return f"{line}: {kept}"
    note = facts.interruptions[-1]
    reboot = "the machine was rebooted; " * (note.rebooted is True)
    broken = _counted(len(note.broken_sessions), "broken session")
    why = note.reason.partition(" -- ")[0]
    return f"{line}: {reboot}{kept}, {broken} to be measured anew ({why})"


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times"


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
