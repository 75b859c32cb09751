"""What changed under test between two runs, and which gate the contract reopens for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvgate.campaign.records import Configuration
from kvgate.contract import Contract


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that another run told otherwise; ``kind`` as in the contract's ``[changes]``."""

    kind: str
    where: str
    before: str
    after: str


def changes_between(before: Configuration, after: Configuration) -> tuple[Change, ...]:
    """Every place that both runs spoke of and told otherwise, in a fixed order.

    A place that only one of them spoke of is no change: other gates start other arms.
    """
    return tuple(
        Change(kind, where, was, after[kind][where])
        for kind in sorted(before)
        for where, was in sorted(before[kind].items())
        if kind in after and where in after[kind] and after[kind][where] != was
    )


def reopened(contract: Contract, changes: Iterable[Change]) -> int | None:
    """The earliest gate that the contract reopens for these changes; None for none."""
    found = [r for c in changes if (r := contract.changes.reopens(c.kind)) is not None]
    return min(found, default=None)
