"""What a verification asks and what it found, whether of a bundle or of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvgate.contract import Contract
    from kvgate.evidence.signatures import SignatureState


class Party(StrEnum):
    """Who signs evidence."""

    VENDOR = "vendor"
    BUYER = "buyer"


@dataclass(slots=True)
class Findings:
    """What a verification found: ``problems`` make it fail, ``checked`` and ``unchecked`` say how
    far it went."""

    problems: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    signatures: list[dict[str, str]] = field(default_factory=list)
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Signers:
    """Whose keys may sign. ``source`` says where the keys come from; ``demanded`` are parties that
    must have signed; ``strict``: every signature must be by an allowed key."""

    allowed: bytes | None
    source: str
    demanded: tuple[str, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """What the command line says about signers and digests."""

    allowed_signers: Path | None
    contract: Contract | None
    demanded: tuple[str, ...]
    expect: str | None

    def signers(self, own: Contract | None) -> Signers:
        """The allowed signers: from the command line, else from the evidence's own contract."""
        from kvgate.evidence.signatures import allowed_lines, read_allowed

        if self.allowed_signers is not None:
            data = read_allowed(self.allowed_signers)
            return Signers(data, str(self.allowed_signers), self.demanded, strict=True)
        if self.contract is not None:
            lines = allowed_lines(self.contract.parties.signers)
            return Signers(lines, "the given contract", self.demanded, strict=lines is not None)
        lines = None if own is None else allowed_lines(own.parties.signers)
        return Signers(lines, "the contract in the evidence", self.demanded, strict=False)

    def contract_problems(self, digest: str) -> list[str]:
        """Whether the evidence is of the contract that was given, if one was."""
        if self.contract is None or self.contract.digest == digest:
            return []
        return [f"contract: another one: {digest}, given was {self.contract.digest}"]


def add_signatures(
    found: Findings, states: Sequence[SignatureState], signers: Signers, names: Iterable[str]
) -> None:
    """Say every signature, and which of them are problems. ``names`` are their files."""
    said = {problem.partition(":")[0] for problem in found.problems}
    for state, name in zip(states, names, strict=True):
        found.signatures.append(
            {"party": state.party, "status": state.status, "fault": state.fault,
             "detail": state.detail, "key": state.key, "file": name}
        )  # fmt: skip
        unmet = state.party in signers.demanded and state.status != "valid"
        foreign = state.status == "untrusted" and signers.allowed is not None
        # An unsound signature in a bundle has been named among the bundle's own files.
        unsound = state.status == "invalid" and name not in said
        if unsound or foreign or (unmet and state.status != "invalid"):
            found.problems.append(f"{name}: {state.status}: {state.fault}: {state.detail}")
    if signers.strict and all(s.status == "unsigned" for s in states):
        found.problems.append("signatures: unsigned: nobody has signed this evidence")
    if any(s.status == "valid" for s in states) and not signers.strict:
        found.unchecked.append(
            f"whose the keys are: they are named by {signers.source}; compare its digest with the "
            "contract that you signed, or give --contract or --allowed-signers"
        )
