"""What a report is made from: a judged gate with the evidence that a reader wants to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvgate.analyse.results import Analysis
from kvgate.canonical import canonical_json
from kvgate.contract import Contract
from kvgate.evidence.signatures import SignatureState
from kvgate.verdict import GateVerdict


class FileDigest(NamedTuple):
    """One file of the evidence bundle; ``size`` in bytes, ``sha256`` in hexadecimal."""

    path: str
    size: int
    sha256: str


class GateHistory(NamedTuple):
    """How a gate of this campaign ended; ``decision`` is empty for a run that does not count."""

    gate: int
    verdict: str
    decision: str
    as_of: str
    digest: str


@dataclass(frozen=True, slots=True)
class ReportInput:
    """One judged run of one gate.

    ``environment`` maps a host or an arm to its versions and flags; entries named after an arm of
    the contract are compared with each other. ``files`` are the bundle's files as the manifest
    lists them. ``verdict_json`` are the sealed bytes of the verdict (by default its canonical form)
    and ``manifest_json`` those of the manifest; both are embedded in the PDF, and so are
    ``contract_toml`` and ``signatures`` (party to bytes). ``signed`` says what is known of the
    signatures, as of the verdict's own time and by the contract's own keys; it is empty where they
    could not be checked.
    """

    verdict: GateVerdict
    contract: Contract
    analysis: Analysis
    environment: Mapping[str, Mapping[str, str]]
    manifest_sha256: str | None
    files: tuple[FileDigest, ...]
    bundle: str
    campaign_history: tuple[GateHistory, ...] = ()
    verdict_json: bytes | None = field(default=None, repr=False)
    manifest_json: bytes | None = field(default=None, repr=False)
    contract_toml: bytes | None = field(default=None, repr=False)
    signatures: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    signed: tuple[SignatureState, ...] = ()

    @property
    def verdict_bytes(self) -> bytes:
        """The verdict as it is embedded."""
        return canonical_json(self.verdict) if self.verdict_json is None else self.verdict_json
