"""From verdicts to the decision: what the contract says follows, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvgate.campaign import (
    CampaignFacts,
    Change,
    Configuration,
    Mode,
    changes_between,
    deadline_of,
    reopened,
)
from kvgate.contract import Contract
from kvgate.decide.waived import ABOUT_ANSWERS
from kvgate.reason import Param, Reason
from kvgate.verdict import ClauseVerdict, DeadlineState, Decision, Verdict, worst
from kvgate.waiver import SignedWaiver, Standing


@dataclass(frozen=True, slots=True)
class Broken:
    """A change since a run that this one builds on, and the gate that the contract reopens."""

    change: Change
    gate: int


def broken_by_change(
    contract: Contract, campaign: CampaignFacts, seen: Configuration
) -> Broken | None:
    """The first change for which the contract reopens a gate that this run builds on."""
    for earlier in campaign.relied_on:
        for change in changes_between(earlier.configuration, seen):
            gate = reopened(contract, [change])
            if gate is not None and gate <= earlier.gate:
                return Broken(change, gate)
    return None


def of_campaign(
    contract: Contract,
    campaign: CampaignFacts,
    seen: Configuration,
    waivers: Sequence[tuple[SignedWaiver, Standing]],
) -> Iterator[Reason]:
    """What the campaign around this run says: changes since the runs that it builds on, waivers
    of the gate before, waivers without effect."""
    changes = {
        change: earlier.gate
        for earlier in campaign.relied_on
        for change in changes_between(earlier.configuration, seen)
    }
    for change, since in changes.items():
        gate = contract.changes.reopens(change.kind)
        reopens = "-" if gate is None else f"G{gate}"
        params: dict[str, Param] = {**_told(change), "gate": since, "reopens": reopens}
        yield Reason("changed", params)
    before = campaign.predecessor
    if before is not None and before.waived:
        yield Reason("waived_before", {"gate": before.gate, "clauses": ", ".join(before.waived)})
    for given, state in waivers:
        if state is not Standing.IN_FORCE:
            waiver = given.waiver
            params = {"clause": waiver.clause, "party": waiver.party, "why": state.value}
            yield Reason("waiver_without_effect", params)


def _told(change: Change) -> dict[str, Param]:
    return {
        "kind": change.kind,
        "where": change.where,
        "before": change.before[:200],
        "after": change.after[:200],
    }


def decide(
    contract: Contract,
    campaign: CampaignFacts,
    verdict: Verdict,
    clauses: Sequence[ClauseVerdict],
    pairs: int,
    broken: Broken | None,
    deadline: DeadlineState | None,
    deadline_waived: bool,
    untrue_end: Reason | None = None,
) -> tuple[Decision | None, Reason]:
    """What follows under the contract; a run that does not count is followed by nothing.

    A waived clause no longer decides, but it makes no PASS: the gate then proceeds "under waiver".
    A gate that comes after its deadline gets the contract's decision for that instead of any that
    would let the campaign go on. ``untrue_end`` is why a run that says that it ended did not: a
    rerun would draw afresh what was seen in it.
    """
    if campaign.mode is not Mode.COUNTED:
        return None, Reason("does_not_count", {"mode": campaign.mode})
    if broken is not None:
        told = {**_told(broken.change), "gate": broken.gate}
        return Decision.HOLD, Reason("reopened", told)
    if untrue_end is not None and verdict is not Verdict.FAIL:
        return Decision.HOLD, untrue_end
    decision, why = _in_time(contract, campaign, verdict, clauses, pairs)
    late = deadline is not None and deadline.missed_by_days > 0 and not deadline_waived
    if late and deadline is not None and decision is not Decision.STOP_LOSS:
        says = contract.campaign.missed_deadline
        params: dict[str, Param] = {
            "n": deadline.missed_by_days,
            "deadline": deadline.deadline_day,
            "word": deadline_of(campaign.gate),
            "decision": says,
        }
        return Decision(says), Reason("deadline_missed", params)
    return decision, why


def _in_time(
    contract: Contract,
    campaign: CampaignFacts,
    verdict: Verdict,
    clauses: Sequence[ClauseVerdict],
    pairs: int,
) -> tuple[Decision, Reason]:
    terms = contract.gate(campaign.gate)
    last = campaign.gate == contract.gates[-1]
    if verdict is Verdict.PASS:
        return Decision.PROCEED, Reason("campaign_complete" if last else "next_gate")
    waived = [c for c in clauses if c.waived]
    deciding = [c for c in clauses if not c.waived]
    if waived:
        verdict = worst(c.verdict for c in deciding) if deciding else Verdict.PASS
        if verdict is Verdict.PASS:
            parties = sorted({party for c in waived for party in c.waived_by})
            named = {"clauses": ", ".join(c.clause for c in waived), "parties": ", ".join(parties)}
            return Decision.PROCEED, Reason("proceed_under_waiver", named)
    if verdict is Verdict.FAIL:
        left = terms.retests - campaign.retests_used
        # A wrong answer has no retest: whoever read it may already have acted on it.
        wrong = any(c.metric in ABOUT_ANSWERS and c.verdict is Verdict.FAIL for c in deciding)
        if left > 0 and not wrong:
            return Decision.HOLD, Reason("retest_left", {"n": left})
        return Decision.STOP_LOSS, Reason("stop")
    if verdict is Verdict.INVALID:
        used = campaign.reruns_used + 1
        if used > terms.reruns:
            return Decision.HOLD, Reason("rerun_limit", {"limit": terms.reruns})
        return Decision.RERUN, Reason("rerun", {"used": used, "limit": terms.reruns})
    plan = terms.pairs
    if plan is not None and pairs < plan.max_pairs:
        return Decision.EXTEND, Reason("extend", {"pairs": pairs, "max_pairs": plan.max_pairs})
    limit = 0 if plan is None else plan.max_pairs
    params = {"max_pairs": limit, "decision": terms.at_limit}
    return Decision(terms.at_limit), Reason("limit_reached", params)
