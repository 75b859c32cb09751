"""Whether a gate may open now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kvgate.campaign.calendar import day_zero, deadline_state, moment_of
from kvgate.campaign.changes import changes_between, reopened
from kvgate.campaign.complete import NONE, Witnesses, check_complete
from kvgate.campaign.records import Mode, Opening, PastRun, Predecessor, ReliedOn, utc_text
from kvgate.campaign.waived import deadline_of, in_force, proceeds
from kvgate.contract import Contract
from kvgate.errors import GateClosed
from kvgate.verdict import Decision, Verdict
from kvgate.waiver import SignedWaiver


@dataclass(frozen=True, slots=True)
class _Now:
    """What the question is asked about: the campaign as it stands at one moment."""

    contract: Contract
    history: Sequence[PastRun]
    as_of: datetime
    rehearsal: bool
    serials: tuple[str, ...]
    firmware: str
    let_go: Mapping[str, str]
    witnesses: Witnesses = NONE


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
    campaign: str = "",
    waivers: Sequence[SignedWaiver] = (),
    witnesses: Witnesses = NONE,
) -> Opening:
    """Whether ``gate`` may open now; raises GateClosed with the reason and the remedy."""
    let_go = in_force(contract, waivers, campaign=campaign, as_of=as_of)
    now = _Now(contract, history, as_of, rehearsal, serials, firmware, let_go, witnesses)
    opening = _open(now, gate, engineering=engineering)
    began = day_zero(contract, [*(p.as_of for p in history), utc_text(as_of)])
    return replace(
        opening,
        began="" if began is None else utc_text(began),
        earlier=tuple(p.spent for p in history),
        waivers=tuple(waivers),
    )


def _open(now: _Now, gate: int, *, engineering: bool) -> Opening:
    contract, history, let_go = now.contract, now.history, now.let_go
    run = 1 + max((p.run for p in history if p.gate == gate), default=0)
    mine = [p for p in history if p.gate == gate and p.counts]
    retests = sum(p.verdict is Verdict.FAIL and p.decision is not Decision.PROCEED for p in mine)
    reruns = sum(p.verdict is Verdict.INVALID for p in mine)
    if engineering:
        return Opening(Mode.ENGINEERING, run, retests, reruns, None)
    _not_ended(now)
    predecessor = _predecessor(now, gate)
    # A PASS that no longer speaks (expired, changed contract or appliance) is measured anew.
    if any(proceeds(p, let_go) and not _stale(now, p) for p in mine):
        return Opening(Mode.REPEAT, run, retests, reruns, predecessor)
    _in_time(now, gate)
    at_limit = [
        p
        for p in mine
        if p.verdict is Verdict.INCONCLUSIVE
        and p.decision is Decision.HOLD
        and not proceeds(p, let_go)
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
    if extends is not None and _reopened_since(now, extends):
        extends = None  # its pairs are of another configuration: the contract begins afresh
    return Opening(
        Mode.COUNTED, run, retests, reruns, predecessor, extends, _relied_on(now, gate, extends)
    )


def _not_ended(now: _Now) -> None:
    damaged = [p for p in now.history if p.damaged]
    if damaged:
        raise GateClosed(
            f"the sealed evidence of G{damaged[0].gate} run {damaged[0].run} was changed, or is of "
            "another campaign",
            where=damaged[0].path,
            remedy="see what with `kvgate verify` and `kvgate judge`, restore it from a copy, or "
            "start a new campaign",
        )
    check_complete(now.history, now.witnesses, as_of=now.as_of)
    stopped = [
        p
        for p in now.history
        if p.counts and p.decision is Decision.STOP_LOSS and not proceeds(p, now.let_go)
    ]
    if stopped:
        raise GateClosed(
            f"the campaign ended: G{stopped[0].gate} run {stopped[0].run} decided STOP-LOSS",
            where=stopped[0].path,
            remedy="a new campaign needs --campaign NAME (in a rehearsal: --new-campaign)",
        )


def _in_time(now: _Now, gate: int) -> None:
    """A gate that was not passed by its deadline stays closed: that is the contract's decision."""
    contract, word = now.contract, deadline_of(gate)
    began = day_zero(contract, [p.as_of for p in now.history])
    state = deadline_state(contract, gate, began, now.as_of)
    if state is None or not state.missed_by_days or word in now.let_go:
        return
    for past in now.history:
        at = deadline_state(contract, gate, began, moment_of(past.as_of))
        in_time = at is not None and not at.missed_by_days
        if past.gate == gate and proceeds(past, now.let_go) and in_time:
            return  # it was passed in time; that it must be measured anew is another matter
    raise GateClosed(
        f"G{gate} was not passed by its deadline, day {state.deadline_day} of the campaign "
        f"(today is day {state.day}): the contract says {contract.campaign.missed_deadline}",
        remedy=f"the parties must agree: a signed waiver of {word} (kvgate campaign waive), or a "
        "new campaign",
    )


def _predecessor(now: _Now, gate: int) -> Predecessor | None:
    """The sealed, unexpired PASS of the gate before, for the same contract, serials, firmware."""
    earlier = [n for n in now.contract.gates if n < gate]
    if not earlier:
        return None
    before = earlier[-1]
    remedy = f"run pytest -m gate{before} first (--engineering runs out of order and never counts)"
    passes = [p for p in now.history if p.gate == before and proceeds(p, now.let_go)]
    if not passes:
        tried = [p for p in now.history if p.gate == before and p.verdict is not None]
        last = f"; its last verdict is {tried[-1].verdict}" if tried else ""
        raise GateClosed(f"G{gate} does not open: G{before} has no sealed PASS{last}",
                         remedy=remedy)  # fmt: skip
    last_pass = passes[-1]
    wrong = _stale(now, last_pass)
    if wrong:
        raise GateClosed(f"G{gate} does not open: {wrong}", where=last_pass.path, remedy=remedy)
    waived = tuple(sorted({*last_pass.waived, *last_pass.unmet}))
    return Predecessor(
        before, last_pass.run, last_pass.manifest_sha256 or "", last_pass.as_of, waived
    )


def _stale(now: _Now, passed: PastRun) -> str:
    """Why a PASS no longer speaks of this appliance under this contract; empty where it does."""
    gate = f"G{passed.gate}"
    if passed.contract_digest != now.contract.digest:
        return f"the contract changed since {gate} passed"
    if passed.rehearsal != now.rehearsal:
        return "a rehearsal's PASS opens no real gate"
    if now.serials and passed.serials != now.serials:
        return f"the serial numbers changed since {gate} passed"
    if now.firmware and passed.firmware != now.firmware:
        return f"the firmware changed since {gate} passed"
    change = _reopened_since(now, passed)
    if change:
        return change
    try:
        days = timedelta(days=now.contract.gate(passed.gate).pass_valid_days)
        expires = datetime.fromisoformat(passed.as_of) + days
        expired = now.as_of > expires
    except (ValueError, TypeError):
        return f"the PASS of {gate} has no usable date"
    if expired:
        return f"the PASS of {gate} expired on {expires:%Y-%m-%d}"
    for clause, until in sorted(passed.waived.items()):
        if now.as_of > datetime.fromisoformat(until) and clause not in now.let_go:
            return f"the waiver of {clause}, on which {gate} proceeded, expired on {until[:10]}"
    return ""


def _reopened_since(now: _Now, passed: PastRun) -> str:
    """The change since ``passed`` for which the contract reopens its gate; empty for none."""
    later = sorted(
        (p for p in now.history if p.counts and _after(p, passed)), key=lambda p: p.as_of
    )
    seen = {
        kind: {place: said for p in later for place, said in p.configuration.get(kind, {}).items()}
        for kind in passed.configuration
    }
    for change in changes_between(passed.configuration, seen):
        gate = reopened(now.contract, [change])
        if gate is not None and gate <= passed.gate:
            return (
                f"the {change.kind} changed since G{passed.gate} passed ({change.where}: "
                f"{change.before} -> {change.after}); the contract reopens G{gate} for that"
            )
    return ""


def _after(later: PastRun, than: PastRun) -> bool:
    """Whether a run was begun after another; where a date is missing it counts as later."""
    a, b = moment_of(later.as_of), moment_of(than.as_of)
    if a is None or b is None or a == b:
        return (later.gate, later.run) > (than.gate, than.run)
    return a > b


def _relied_on(now: _Now, gate: int, extends: PastRun | None) -> tuple[ReliedOn, ...]:
    """The newest run of each earlier gate that let it proceed, and the run that is gone on from."""
    newest = {p.gate: p for p in now.history if p.gate < gate and proceeds(p, now.let_go)}
    runs = [newest[n] for n in sorted(newest)] + ([extends] if extends is not None else [])
    return tuple(ReliedOn(p.gate, p.run, p.manifest_sha256 or "", p.configuration) for p in runs)
