"""What waivers in force let go of a campaign's past runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kvgate.campaign.records import PastRun
from kvgate.contract import Contract
from kvgate.verdict import Decision
from kvgate.waiver import SignedWaiver, Standing, agreed, standing


def deadline_of(gate: int) -> str:
    """The word under which a gate's deadline is waived: "G3.deadline"."""
    return f"G{gate}.deadline"


def in_force(
    contract: Contract, waivers: Sequence[SignedWaiver], *, campaign: str, as_of: datetime
) -> Mapping[str, str]:
    """What both parties let go at ``as_of``: clause (or deadline) -> the day until which it holds,
    that is until the first of them may no longer."""
    states = agreed(
        [(w, standing(w, campaign=campaign, contract_digest=contract.digest, as_of=as_of))
         for w in waivers]
    )  # fmt: skip
    until: dict[str, dict[str, str]] = {}
    for given, state in states:
        if state is Standing.IN_FORCE:
            waiver = given.waiver
            of_party = until.setdefault(waiver.clause, {})
            of_party[waiver.party] = max(
                of_party.get(waiver.party, waiver.expires), waiver.expires,
                key=datetime.fromisoformat,
            )  # fmt: skip
    return {
        clause: min(days.values(), key=datetime.fromisoformat) for clause, days in until.items()
    }


def proceeds(past: PastRun, let_go: Mapping[str, str]) -> bool:
    """Whether a counted run lets the next gate open: by its own decision, or because everything
    that kept it from a PASS has been waived since."""
    if not past.counts:
        return False
    if past.decision is Decision.PROCEED:
        return True
    return bool(past.unmet) and not past.unwaivable and set(past.unmet) <= set(let_go)
