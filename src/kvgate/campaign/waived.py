"""What waivers in force let go of a campaign's past runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kvgate.campaign.records import PastRun
from kvgate.contract import Contract
from kvgate.verdict import Decision
from kvgate.waiver import SignedWaiver, Standing, standing


def deadline_of(gate: int) -> str:
    """The word under which a gate's deadline is waived: "G3.deadline"."""
    return f"G{gate}.deadline"


def in_force(
    contract: Contract, waivers: Sequence[SignedWaiver], *, campaign: str, as_of: datetime
) -> Mapping[str, str]:
    """What is let go at ``as_of``: clause (or deadline) -> the day until which that holds."""
    found: dict[str, str] = {}
    for given in waivers:
        state = standing(
            given, campaign=campaign, contract_digest=contract.digest, as_of=as_of
        )  # fmt: skip
        if state is Standing.IN_FORCE:
            clause, until = given.waiver.clause, given.waiver.expires
            found[clause] = max(found.get(clause, until), until, key=datetime.fromisoformat)
    return found


def proceeds(past: PastRun, let_go: Mapping[str, str]) -> bool:
    """Whether a counted run lets the next gate open: by its own decision, or because everything
    that kept it from a PASS has been waived since."""
    if not past.counts:
        return False
    if past.decision is Decision.PROCEED:
        return True
    return bool(past.unmet) and not past.unwaivable and set(past.unmet) <= set(let_go)
