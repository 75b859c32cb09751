"""Where each gate of a campaign stands at one moment, from its sealed history. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from kvgate.campaign import (
    Mode,
    PastRun,
    Witnesses,
    changes_between,
    day_zero,
    deadline_of,
    deadline_state,
    in_force,
    open_gate,
    proceeds,
)
from kvgate.campaign.complete import NONE
from kvgate.contract import Contract
from kvgate.errors import GateClosed
from kvgate.verdict import Decision, Verdict
from kvgate.waiver import SignedWaiver, agreed, standing


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign as it stands at ``as_of``: what the contract says and what the bundles hold."""

    name: str
    contract: Contract
    history: Sequence[PastRun]
    waivers: Sequence[SignedWaiver]
    as_of: datetime
    witnesses: Witnesses = NONE

    @property
    def let_go(self) -> Mapping[str, str]:
        return in_force(self.contract, self.waivers, campaign=self.name, as_of=self.as_of)

    def counted(self, gate: int) -> list[PastRun]:
        return [p for p in self.history if p.gate == gate and p.counts]


def gate_document(campaign: Campaign, gate: int) -> dict[str, Any]:
    """One gate: runs, verdict, decision, state, deadline, what of its grants is used."""
    contract, terms = campaign.contract, campaign.contract.gate(gate)
    runs = [p for p in campaign.history if p.gate == gate]
    counted, let_go = campaign.counted(gate), campaign.let_go
    # The first PASS stays: a gate that has been passed is only repeated.
    last = next((p for p in counted if proceeds(p, let_go)), counted[-1] if counted else None)
    went_on = last is not None and proceeds(last, let_go)
    began = day_zero(contract, [p.as_of for p in campaign.history])
    deadline = deadline_state(contract, gate, began, campaign.as_of)
    closed = why_closed(campaign, gate)
    missed = (
        deadline is not None
        and deadline.missed_by_days > 0
        and not went_on
        and deadline_of(gate) not in let_go
    )
    decision = None if last is None else last.decision
    if missed and decision is not Decision.STOP_LOSS:
        decision = Decision(contract.campaign.missed_deadline)
    elif went_on:
        decision = Decision.PROCEED
    waived = sorted({*last.waived, *last.unmet}) if last is not None and went_on else []
    plan = terms.pairs
    return {
        "gate": gate,
        "state": _state(went_on, bool(waived), decision, closed, bool(counted), missed),
        "runs": len(runs),
        "counted": len(counted),
        "verdict": None if last is None else last.verdict,
        "decision": decision,
        "passed": last is not None and last.verdict is Verdict.PASS,
        "proceeds": went_on,
        "under_waiver_of": waived,
        "deadline_day": terms.deadline_day,
        "days_left": None if deadline is None else terms.deadline_day - deadline.day,
        "deadline_missed": missed,
        "retests_used": min(
            sum(p.verdict is Verdict.FAIL for p in counted), terms.retests
        ),  # a FAIL without a grant used none up
        "retests": terms.retests,
        "extensions_used": sum(a.decision is Decision.EXTEND for a, _ in pairwise(counted)),
        "reruns_used": sum(p.verdict is Verdict.INVALID for p in counted),
        "reruns": terms.reruns,
        "pairs": None if last is None or plan is None else last.pairs,
        "max_pairs": None if plan is None else plan.max_pairs,
        "hours": sum(p.hours for p in runs if p.hours is not None),
        "contract_changed": last is not None and last.contract_digest != contract.digest,
        "closed_because": closed,
        "last_bundle": None if last is None else last.path,
    }


def _state(
    went_on: bool,
    waived: bool,
    decision: Decision | None,
    closed: str | None,
    measured: bool,
    missed: bool,
) -> str:
    """One word for a person; ``decision`` and ``closed_because`` say the rest."""
    if went_on:
        passed = "passed under waiver" if waived else "passed"
        return f"{passed}, reopened" if closed == "" else passed
    if decision is Decision.STOP_LOSS:
        return "stopped"
    if missed:
        return "deadline missed"
    if decision is Decision.HOLD and closed:
        return "on hold"
    if closed:
        return "closed"
    return "open, measured before" if measured else "open"


def why_closed(campaign: Campaign, gate: int) -> str | None:
    """Why the gate does not open now; "" where it opens and would count, None where it was passed
    and could only be repeated."""
    try:
        opening = open_gate(
            campaign.contract,
            gate,
            campaign.history,
            as_of=campaign.as_of,
            rehearsal=campaign.contract.rehearsal,
            serials=campaign.contract.appliance.serials,
            firmware=campaign.contract.appliance.firmware,
            campaign=campaign.name,
            waivers=campaign.waivers,
            witnesses=campaign.witnesses,
        )
    except GateClosed as closed:
        return str(closed)
    return "" if opening.mode is Mode.COUNTED else None


def spent_document(campaign: Campaign) -> dict[str, Any]:
    """Days, hours and their price so far; None where the contract names no price."""
    contract = campaign.contract
    began = day_zero(contract, [p.as_of for p in campaign.history])
    days = 0.0 if began is None else max(0.0, (campaign.as_of - began).total_seconds() / 86_400)
    hours = sum(p.hours for p in campaign.history if p.hours is not None)
    per_day, per_hour = contract.campaign.cost_per_day, contract.costs.platform_hour
    return {
        "days": days,
        "hours": hours,
        "untimed_runs": sum(p.hours is None for p in campaign.history),
        "currency": contract.campaign.currency,
        "cost": days * per_day + hours * per_hour if per_day or per_hour else None,
    }


def waiver_documents(campaign: Campaign) -> list[dict[str, Any]]:
    """Every waiver in the campaign's folder, and whether it counts now."""
    return [
        {
            "clause": given.waiver.clause,
            "party": given.waiver.party,
            "reason": given.waiver.reason,
            "granted": given.waiver.granted,
            "expires": given.waiver.expires,
            "standing": state,
        }
        for given, state in agreed(
            [
                (
                    given,
                    standing(
                        given,
                        campaign=campaign.name,
                        contract_digest=campaign.contract.digest,
                        as_of=campaign.as_of,
                    ),
                )
                for given in campaign.waivers
            ]
        )
    ]


def change_documents(campaign: Campaign) -> list[dict[str, Any]]:
    """Everything that a counted run told otherwise than the one before it, in order of time."""
    runs = sorted((p for p in campaign.history if p.counts), key=lambda p: p.as_of)
    found = []
    for before, after in pairwise(runs):
        for change in changes_between(before.configuration, after.configuration):
            reopens = campaign.contract.changes.reopens(change.kind)
            found.append(
                {
                    "kind": change.kind,
                    "where": change.where,
                    "before": change.before,
                    "after": change.after,
                    "seen_in": f"G{after.gate} run {after.run}",
                    "as_of": after.as_of,
                    "reopens_gate": reopens,
                }
            )
    return found
