"""Days of a campaign, from dates in evidence alone: nothing here looks at a clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kvgate.contract import Contract
from kvgate.verdict import DeadlineState


def moment_of(text: str) -> datetime | None:
    """A date of evidence; None where it is none or has no time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def day_zero(contract: Contract, runs_as_of: Iterable[str]) -> datetime | None:
    """Day 0 of the deadlines: the contract's date, else that of the first run on record."""
    if contract.campaign.begins is not None:
        return datetime.fromisoformat(contract.campaign.begins).replace(tzinfo=UTC)
    known = [m for text in runs_as_of if (m := moment_of(text)) is not None]
    return min(known, default=None)


def deadline_state(
    contract: Contract, gate: int, began: datetime | None, as_of: datetime | None
) -> DeadlineState | None:
    """Where ``as_of`` stands against the deadline of ``gate``; None where a date is missing."""
    if began is None or as_of is None:
        return None
    day = (as_of - began).days
    last = contract.gate(gate).deadline_day
    return DeadlineState(
        began.astimezone(UTC).isoformat(timespec="seconds"), day, last, max(0, day - last)
    )
