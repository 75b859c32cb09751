"""A waiver: one clause of a campaign that both parties let go, signed, with a reason and an expiry.

It never changes what the evidence says. A waived clause keeps its verdict; only the decision goes
on without it, and says so. A wrong answer cannot be waived.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from kvgate.canonical import canonical_json

PARTIES: Final = frozenset({"buyer", "vendor"})
"""Both must let a clause go: neither can lift what the other is owed."""

WORDS: Final = re.compile(r"G[1-4]\.(?:[0-9]{1,3}|deadline)")
"""What can be waived: a clause, or the deadline of a gate ("G3.deadline")."""


class Signed(StrEnum):
    """What is known of a waiver's signature."""

    VALID = "valid"  # sound, and by a key that the contract gives to that party
    UNTRUSTED = "untrusted"  # sound, but the contract names no such key for that party
    INVALID = "invalid"  # not over this waiver
    UNSIGNED = "unsigned"


class Standing(StrEnum):
    """Whether a waiver counts, and if not, why."""

    IN_FORCE = "in force"
    EXPIRED = "expired"
    NOT_YET = "not yet granted"
    FOREIGN = "of another campaign, contract or gate"
    UNSIGNED = "unsigned"
    UNTRUSTED = "signed by no party of the contract"
    INVALID = "signature does not fit"
    NOT_WAIVABLE = "a wrong answer cannot be waived"
    NOT_MEASURED = "what was not measured cannot be waived"
    ALONE = "the other party has not signed"


@dataclass(frozen=True, slots=True)
class Waiver:
    """What is signed. ``granted`` and ``expires`` are UTC in ISO 8601; ``party`` is one that
    the contract's ``parties.signers`` gives a key to."""

    campaign: str
    contract_digest: str
    clause: str
    reason: str
    party: str
    granted: str
    expires: str

    @property
    def to_sign(self) -> bytes:
        """The bytes under the signature."""
        return canonical_json(self)

    @property
    def gate(self) -> int:
        return int(self.clause[1])


@dataclass(frozen=True, slots=True)
class SignedWaiver:
    """A waiver with its armoured SSH signature (empty: none) and what is known of it."""

    waiver: Waiver
    signature: str
    signed: Signed


def waiver_from(plain: Mapping[str, Any]) -> Waiver:
    """Raises ValueError, KeyError or TypeError for what is no waiver."""
    values = {name: plain[name] for name in Waiver.__dataclass_fields__}
    if any(not isinstance(v, str) or not v.strip() for v in values.values()):
        raise ValueError("every field of a waiver is a text that is not empty")
    if set(plain) != set(values):
        raise ValueError(f"unknown fields: {', '.join(sorted(set(plain) - set(values)))}")
    waiver = Waiver(**values)
    if not WORDS.fullmatch(waiver.clause):
        raise ValueError(f"{waiver.clause!r} is neither a clause nor a gate's deadline")
    for moment in (waiver.granted, waiver.expires):
        if datetime.fromisoformat(moment).tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone")
    return waiver


def agreed(
    standings: Sequence[tuple[SignedWaiver, Standing]],
) -> tuple[tuple[SignedWaiver, Standing], ...]:
    """The same, where a clause that only one party let go in force is not let go at all."""
    parties: dict[str, set[str]] = {}
    for given, state in standings:
        if state is Standing.IN_FORCE:
            parties.setdefault(given.waiver.clause, set()).add(given.waiver.party)
    return tuple(
        (given, Standing.ALONE)
        if state is Standing.IN_FORCE and not parties[given.waiver.clause] >= PARTIES
        else (given, state)
        for given, state in standings
    )


def standing(
    given: SignedWaiver, *, campaign: str, contract_digest: str, as_of: datetime
) -> Standing:
    """Whether the waiver counts in this campaign at ``as_of``; pure."""
    waiver = given.waiver
    by_signature = {
        Signed.UNSIGNED: Standing.UNSIGNED,
        Signed.UNTRUSTED: Standing.UNTRUSTED,
        Signed.INVALID: Standing.INVALID,
    }
    if given.signed in by_signature:
        return by_signature[given.signed]
    if waiver.campaign != campaign or waiver.contract_digest != contract_digest:
        return Standing.FOREIGN
    if as_of < datetime.fromisoformat(waiver.granted):
        return Standing.NOT_YET
    return Standing.EXPIRED if as_of > datetime.fromisoformat(waiver.expires) else Standing.IN_FORCE
