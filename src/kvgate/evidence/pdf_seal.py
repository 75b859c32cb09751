"""What ties a report's PDF to sealed evidence: names of its attachments, and its own checksum.

The second half of the PDF's ``/ID`` (the identifier that changes with the file) is the SHA-256 of
the file with that half written as zeros. So every byte is covered and any tool that touches the
file is found out. It is no signature: whoever forges a PDF can compute it anew. What a forger
cannot make is a signature over the manifest, or the same bytes from the bundle.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Literal

from kvgate.evidence import layout

Kind = Literal["verdict", "manifest", "contract", "signature"]

TAIL: Final = r"(?P<tail>-g[1-4]-run[0-9]{1,6}(?:-[0-9]{1,3})?)?"
_NAMES: Final = (
    ("verdict", re.compile(rf"verdict{TAIL}\.json")),
    ("manifest", re.compile(rf"manifest{TAIL}\.json")),
    ("contract", re.compile(rf"contract{TAIL}\.toml")),
    ("signature", re.compile(rf"signature{TAIL}\.(?P<party>{layout.PARTY.pattern})\.sig")),
)
MIME: Final = {
    "verdict": "application/json",
    "manifest": "application/json",
    "contract": "application/toml",
    "signature": "application/x-ssh-signature",
}
_ZEROS: Final = b"0" * 64
_ID: Final = re.compile(rb"/ID \[\(([0-9a-f]{32})\) \(([0-9a-f]{32}|[0-9a-f]{64})\)\]")


@dataclass(frozen=True, slots=True)
class Name:
    """What an attachment's name says: its kind, which run of a campaign's report (``tail``, empty
    where the report shows one run), and whose signature it is."""

    kind: Kind
    tail: str
    party: str = ""

    def __str__(self) -> str:
        if self.kind == "signature":
            return f"signature{self.tail}.{self.party}.sig"
        return f"{self.kind}{self.tail}{'.toml' if self.kind == 'contract' else '.json'}"


def parse_name(name: str) -> Name | None:
    """The parts of an attachment's name; None where a report has no such attachment."""
    for kind, pattern in _NAMES:
        match = pattern.fullmatch(name)
        if match:
            parts = match.groupdict()
            return Name(kind, parts["tail"] or "", parts.get("party") or "")  # type: ignore[arg-type]
    return None


def with_checksum(pdf: bytes) -> bytes:
    """``pdf`` with its checksum in place of the second identifier. The identifier stands behind
    everything that has an offset, so that its length may change. Raises ValueError without one."""
    match = _last_id(pdf)
    if match is None or pdf.find(b"startxref", match.end()) < 0:
        raise ValueError("the PDF has no identifier at its end")
    start, end = match.span(2)
    digest = hashlib.sha256(pdf[:start])
    digest.update(_ZEROS)
    digest.update(pdf[end:])
    return pdf[:start] + digest.hexdigest().encode() + pdf[end:]


def checksum_fault(pdf: bytes) -> str | None:
    """None where the file is as it was rendered (or was forged with care); else a sentence."""
    match = _last_id(pdf)
    if match is None or len(match[2]) != len(_ZEROS) or pdf.find(b"startxref", match.end()) < 0:
        return "it has no checksum of its own: it was changed, or is no report of ours"
    if with_checksum(pdf) != pdf:
        return "its bytes were changed after it was rendered"
    return None


def _last_id(pdf: bytes) -> re.Match[bytes] | None:
    matches = list(_ID.finditer(pdf))
    return matches[-1] if matches else None
