"""Signed waivers: made with an SSH key, checked against the keys that the contract gives parties.

A waiver is ``waivers/<name>.json`` in the campaign's folder, its signature ``<name>.json.sig``
beside it. The namespace is its own, so that nobody who signed evidence has signed a waiver.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kvgate.errors import UsageError
from kvgate.evidence import files
from kvgate.evidence.signatures import _line, _ssh_keygen, allowed_lines
from kvgate.waiver import Signed, SignedWaiver, Waiver, waiver_from

NAMESPACE: Final = "kvgate-waiver"
FOLDER: Final = "waivers"
MOST: Final = 100
MAX_BYTES: Final = 64 << 10


def sign_waiver(waiver: Waiver, key: Path) -> str:
    """The armoured signature of ``waiver`` by a private key, or by a public key whose private half
    is in the ssh-agent.

    Raises UsageError for a key that cannot be used without a passphrase, CannotMeasure without
    ssh-keygen.
    """
    with tempfile.TemporaryDirectory(prefix="kvgate-sign-") as scratch:
        copy = Path(scratch) / "waiver"
        copy.write_bytes(waiver.to_sign)
        done = _ssh_keygen(["-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(copy)], b"")
        made = copy.with_suffix(".sig")
        if done.returncode != 0 or not made.is_file():
            raise UsageError(
                f"cannot sign: {_line(done)}",
                where=str(key),
                remedy="give an OpenSSH private key, or its .pub with the key in the ssh-agent",
            )
        return made.read_text()


def checked(waiver: Waiver, signature: str, signers: Sequence[str]) -> SignedWaiver:
    """The waiver with what is known of its signature; ``signers`` are the contract's lines.

    Keys with an expiry are looked at as of the day the waiver was granted, so that the answer is
    the same on every day. Raises CannotMeasure without ssh-keygen where there is a signature.
    """
    if not signature.strip():
        return SignedWaiver(waiver, "", Signed.UNSIGNED)
    with tempfile.TemporaryDirectory(prefix="kvgate-check-") as scratch:
        path = Path(scratch) / "signature"
        path.write_text(signature)
        common = ["-n", NAMESPACE, "-s", str(path)]
        sound = _ssh_keygen(["-Y", "check-novalidate", *common], waiver.to_sign)
        if sound.returncode != 0:
            return SignedWaiver(waiver, signature, Signed.INVALID)
        allowed = allowed_lines(signers)
        if allowed is None:
            return SignedWaiver(waiver, signature, Signed.UNTRUSTED)
        keys = Path(scratch) / "allowed"
        keys.write_bytes(allowed)
        at = datetime.fromisoformat(waiver.granted).astimezone(UTC)
        when = f"-Overify-time={at:%Y%m%d%H%M%S}Z"
        arguments = ["-Y", "verify", "-f", str(keys), "-I", waiver.party, when, *common]
        who = _ssh_keygen(arguments, waiver.to_sign)
    state = Signed.VALID if who.returncode == 0 else Signed.UNTRUSTED
    return SignedWaiver(waiver, signature, state)


def write_waiver(campaign: Path, waiver: Waiver, signature: str) -> Path:
    """Put a waiver into the campaign's folder; returns its path. Raises OSError as writing does."""
    folder = campaign / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    day = datetime.fromisoformat(waiver.granted).astimezone(UTC)
    name = f"{waiver.clause}-{waiver.party}-{day:%Y%m%dT%H%M%S}.json"
    files.write_whole(folder / name, waiver.to_sign)
    if signature:
        files.write_whole(folder / f"{name}.sig", signature.encode())
    return folder / name


def read_waivers(campaign: Path, signers: Sequence[str]) -> tuple[SignedWaiver, ...]:
    """Every waiver in the campaign's folder, by name.

    Raises UsageError for a file that is no waiver: it must not be overlooked that somebody tried.
    """
    folder = campaign / FOLDER
    if not folder.is_dir():
        return ()
    found = []
    for path in sorted(folder.glob("*.json"))[:MOST]:
        signed = path.with_name(f"{path.name}.sig")
        try:
            waiver = waiver_from(json.loads(_head(path)))
            signature = _head(signed).decode() if signed.is_file() else ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"no waiver: {type(error).__name__} {error}",
                where=str(path),
                remedy="make it with `kvgate campaign waive`, or take the file away",
            ) from error
        found.append(checked(waiver, signature, signers))
    return tuple(found)


def _head(path: Path) -> bytes:
    """As much of a file as a waiver can have; more than that is cut, and then is none."""
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES)
