"""The envelope of an SSH signature: who signed and for what, without believing it yet.

Format: PROTOCOL.sshsig of OpenSSH. Reading it here names what ``ssh-keygen`` only refuses: another
purpose, another key. Whether the signature is sound is said by ``ssh-keygen`` alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

NAMESPACE: Final = "kvgate-manifest"
_ARMOUR: Final = re.compile(
    rb"\s*-----BEGIN SSH SIGNATURE-----\s([A-Za-z0-9+/=\s]+)-----END SSH SIGNATURE-----\s*"
)
_MAGIC: Final = b"SSHSIG"
_VERSION: Final = 1


class NoSignature(ValueError):  # noqa: N818 - what the bytes are
    """These bytes are no SSH signature."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """``namespace``: what was signed for; ``key``: kind and SHA-256 fingerprint of the key."""

    namespace: str
    key: str


def parse_signature(data: bytes) -> Envelope:
    """The envelope of an armoured signature. Raises NoSignature with a sentence."""
    match = _ARMOUR.fullmatch(data)
    if match is None:
        raise NoSignature("no SSH signature: its first or last line is missing")
    try:
        blob = base64.b64decode(b"".join(match[1].split()), validate=True)
    except binascii.Error as error:
        raise NoSignature("no SSH signature: its text is damaged") from error
    if not blob.startswith(_MAGIC):
        raise NoSignature("no SSH signature: it does not begin as one")
    rest = blob[len(_MAGIC) :]
    if int.from_bytes(rest[:4]) != _VERSION:
        raise NoSignature("an SSH signature of an unknown version")
    public, rest = _string(rest[4:])
    namespace, rest = _string(rest)
    for _ in ("reserved", "hash algorithm", "signature"):
        _, rest = _string(rest)
    if rest:
        raise NoSignature("no SSH signature: something follows it")
    return Envelope(namespace.decode("utf-8", "backslashreplace"), fingerprint(public))


def fingerprint(public: bytes) -> str:
    """Kind and fingerprint of a public key's blob, as ``ssh-keygen -l`` writes the latter."""
    kind, _ = _string(public)
    digest = base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
    return f"{kind.decode('ascii', 'backslashreplace')[:60]} SHA256:{digest}"


def _string(data: bytes) -> tuple[bytes, bytes]:
    """A string of SSH's wire format (length in four bytes, then the bytes) and what follows it."""
    end = 4 + int.from_bytes(data[:4])
    if len(data) < 4 or len(data) < end:
        raise NoSignature("no SSH signature: it ends too early")
    return data[4:end], data[end:]
