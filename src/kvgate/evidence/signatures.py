"""Signatures over the manifest with the SSH keys that both parties have already.

Uses ``ssh-keygen -Y`` with its own namespace, so that a signature made for another purpose never
counts here. A party's signature is ``signatures/<party>.sig`` and counts only when the
allowed-signers file names that very party as the key's principal.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import files, layout

NAMESPACE: Final = "kvgate-manifest"
_TIMEOUT_S: Final = 30.0

SignatureStatus = Literal["valid", "untrusted", "invalid", "unsigned"]


@dataclass(frozen=True, slots=True)
class SignatureState:
    """What is known of one party's signature.

    valid: sound, and the allowed-signers file gives the key to this party. untrusted: sound, but
    no allowed signer. invalid: not over this manifest. unsigned: absent. ``detail`` is ssh-keygen's
    own line (it names key kind and fingerprint) or the reason.
    """

    party: str
    status: SignatureStatus
    detail: str


def sign(root: Path, key: Path, party: str) -> Path:
    """Sign the sealed manifest as ``party`` with a private key, or with a public key whose private
    half is in the ssh-agent; returns ``signatures/<party>.sig``.

    Raises UsageError for an odd party name, an unsealed bundle or a key that cannot be used
    without a passphrase, CannotMeasure without ssh-keygen or where the folder cannot be written.
    """
    if not layout.PARTY.fullmatch(party):
        raise UsageError(f"{party!r} is no party's name", remedy="letters, digits, . _ @ -")
    data = _manifest(root)
    with tempfile.TemporaryDirectory(prefix="kvgate-sign-") as scratch:
        copy = Path(scratch) / "manifest"
        copy.write_bytes(data)
        done = _ssh_keygen(["-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(copy)], b"")
        made = copy.with_suffix(".sig")
        if done.returncode != 0 or not made.is_file():
            raise UsageError(
                f"cannot sign: {_line(done)}",
                where=str(key),
                remedy="give an OpenSSH private key, or its .pub with the key in the ssh-agent",
            )
        signature = made.read_bytes()
    path = root / layout.SIGNATURES / f"{party}.sig"
    try:
        files.make_folders(root, path.parent)
        files.write_whole(path, signature)
    except OSError as error:
        raise CannotMeasure(
            f"cannot write: {error.strerror}", where=str(path), remedy="check permissions and space"
        ) from error
    return path


def signature_states(
    root: Path, parties: Sequence[str], allowed_signers: Path | None
) -> tuple[SignatureState, ...]:
    """The state of each named party's signature, then of every other signature that is there.

    ``allowed_signers`` is a file as ssh-keygen(1) describes it; without one no signature is better
    than untrusted. Raises CannotMeasure without ssh-keygen or manifest, UsageError where the file
    is missing.
    """
    if allowed_signers is not None and not allowed_signers.is_file():
        raise UsageError("no allowed-signers file", where=str(allowed_signers))
    data = _manifest(root)
    folder = root / layout.SIGNATURES
    there = sorted(path.stem for path in folder.glob("*.sig")) if folder.is_dir() else []
    others = [name for name in there if name not in parties][: layout.MAX_SIGNATURES]
    return tuple(_state(root, data, party, allowed_signers) for party in [*parties, *others])


def check_signature(manifest: bytes, signature: bytes) -> str | None:
    """None where ``signature`` is sound over ``manifest``, by whomever; else why not."""
    with tempfile.TemporaryDirectory(prefix="kvgate-check-") as scratch:
        path = Path(scratch) / "signature"
        path.write_bytes(signature)
        try:
            done = _ssh_keygen(
                ["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(path)], manifest
            )
        except CannotMeasure as error:
            return error.message
    return None if done.returncode == 0 else _line(done)


def _state(root: Path, data: bytes, party: str, allowed: Path | None) -> SignatureState:
    if not layout.PARTY.fullmatch(party):
        return SignatureState(party, "invalid", "no party's name")
    rel = f"{layout.SIGNATURES}/{party}.sig"
    try:
        signature = files.read_safely(root, rel, layout.MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        return SignatureState(party, "unsigned", "no signature")
    except CannotMeasure as error:
        return SignatureState(party, "invalid", error.message)
    with tempfile.TemporaryDirectory(prefix="kvgate-check-") as scratch:
        path = Path(scratch) / "signature"
        path.write_bytes(signature)
        common = ["-n", NAMESPACE, "-s", str(path)]
        sound = _ssh_keygen(["-Y", "check-novalidate", *common], data)
        if sound.returncode != 0:
            return SignatureState(party, "invalid", _line(sound))
        if allowed is None:
            return SignatureState(party, "untrusted", _line(sound))
        who = _ssh_keygen(["-Y", "verify", "-f", str(allowed), "-I", party, *common], data)
    return SignatureState(party, "valid" if who.returncode == 0 else "untrusted", _line(who))


def _manifest(root: Path) -> bytes:
    try:
        return files.read_safely(root, layout.MANIFEST, layout.MAX_JSON_BYTES)
    except FileNotFoundError as error:
        raise UsageError("bundle is not sealed", where=str(root), remedy="seal it first") from error


def _ssh_keygen(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise CannotMeasure("ssh-keygen is missing", remedy="install the OpenSSH client")
    try:
        # Without a terminal and askpass: a passphrase must come from the agent, never block a run.
        return subprocess.run(
            [tool, *arguments],
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotMeasure(
            f"ssh-keygen gave no answer in {_TIMEOUT_S:.0f} s", remedy="check the ssh-agent"
        ) from error


def _line(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stdout + b" " + done.stderr).decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
