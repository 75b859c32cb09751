"""Signatures over the manifest with the SSH keys that both parties have already.

Uses ``ssh-keygen -Y`` with its own namespace, so that a signature made for another purpose never
counts here. A party's signature is ``signatures/<party>.sig`` and counts only when the
allowed-signers file names that very party as the key's principal. A private key is never read
here: ssh-keygen gets its path, and what it prints is about public keys.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import files, layout
from kvgate.evidence.sshsig import NAMESPACE, NoSignature, parse_signature

_TIMEOUT_S: Final = 30.0
_ALLOWED: Final = "allowed-signers"
MAX_ALLOWED_BYTES: Final = 1 << 20

SignatureStatus = Literal["valid", "untrusted", "invalid", "unsigned"]
SignatureFault = Literal[
    "", "unsigned", "malformed", "wrong-namespace", "other-manifest", "no-signers", "not-allowed",
    "other-key", "expired", "not-yet-valid", "not-for-manifests",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SignatureState:
    """What is known of one party's signature.

    valid: sound, and the allowed signers give the key to this party. untrusted: sound, but not by
    a key that this party may sign with. invalid: not a signature over this manifest. unsigned:
    absent. ``fault`` says which of these faults it is (empty where valid), ``detail`` is a sentence
    for a person, ``key`` is kind and SHA-256 fingerprint of the key that signed (empty where none).
    """

    party: str
    status: SignatureStatus
    fault: SignatureFault
    detail: str
    key: str = ""


def sign(root: Path, key: Path, party: str) -> Path:
    """Sign the sealed manifest as ``party`` with a private key, or with a public key whose private
    half is in the ssh-agent; returns ``signatures/<party>.sig``.

    Raises UsageError for an odd party name, an unsealed bundle, a key inside the bundle or one that
    cannot be used without a passphrase, CannotMeasure without ssh-keygen or where the folder cannot
    be written.
    """
    if not layout.PARTY.fullmatch(party):
        raise UsageError(f"{party!r} is no party's name", remedy="letters, digits, . _ @ -")
    data = _manifest(root)
    if key.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            "a key does not belong into evidence", where=str(key), remedy="keep it elsewhere"
        )
    with tempfile.TemporaryDirectory(prefix="kvgate-sign-") as scratch:
        copy = Path(scratch) / layout.MANIFEST
        copy.write_bytes(data)
        done = _ssh_keygen(["-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(copy)], b"")
        made = copy.with_name(f"{copy.name}.sig")
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
        # A half-written file in a sealed bundle would be one that was added.
        files.write_whole(path, signature, half=root.resolve().parent)
    except OSError as error:
        raise CannotMeasure(
            f"cannot write: {error.strerror}", where=str(path), remedy="check permissions and space"
        ) from error
    return path


def read_allowed(path: Path) -> bytes:
    """The bytes of an allowed-signers file. Raises UsageError where there is none of sane size."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_ALLOWED_BYTES + 1)
    except OSError as error:
        raise UsageError("no allowed-signers file", where=str(path)) from error
    if len(data) > MAX_ALLOWED_BYTES:
        raise UsageError("too large for an allowed-signers file", where=str(path))
    return data


def allowed_lines(lines: Iterable[str]) -> bytes | None:
    """An allowed-signers file with ``lines`` (from a contract); None where there are none."""
    return "".join(f"{line}\n" for line in lines).encode() or None


def read_signatures(root: Path) -> dict[str, bytes | str]:
    """Party -> signature of the bundle in ``root``, a sentence instead where it cannot be read.

    At most ``MAX_SIGNATURES``, in order of their names; empty where nobody has signed.
    """
    folder = root / layout.SIGNATURES
    names = sorted(path.stem for path in folder.glob("*.sig")) if folder.is_dir() else []
    found: dict[str, bytes | str] = {}
    for name in names[: layout.MAX_SIGNATURES]:
        rel = f"{layout.SIGNATURES}/{name}.sig"
        try:
            found[name] = files.read_safely(root, rel, layout.MAX_SIGNATURE_BYTES)
        except CannotMeasure as error:
            found[name] = error.message
        except OSError as error:
            found[name] = error.strerror or type(error).__name__
    return found


def signature_states(
    root: Path, parties: Sequence[str], allowed: bytes | None, *, at: datetime | None = None
) -> tuple[SignatureState, ...]:
    """:func:`states_of` for the bundle in ``root``. Raises UsageError where it is not sealed."""
    return states_of(_manifest(root), read_signatures(root), parties, allowed, at=at)


def states_of(
    manifest: bytes,
    signatures: Mapping[str, bytes | str],
    parties: Sequence[str],
    allowed: bytes | None,
    *,
    at: datetime | None = None,
) -> tuple[SignatureState, ...]:
    """The state of each named party's signature over ``manifest``, then of every other one there.

    ``allowed`` is an allowed-signers file as ssh-keygen(1) describes it; without one no signature
    is better than untrusted. Keys with an expiry are looked at as of ``at`` (default: now). Raises
    CannotMeasure without ssh-keygen where there is a signature to check.
    """
    others = [name for name in signatures if name not in parties]
    return tuple(
        _state(party, signatures.get(party), manifest, allowed, at) for party in [*parties, *others]
    )


def soundness(manifest: bytes, signature: bytes) -> tuple[SignatureFault, str]:
    """("", key) where ``signature`` is sound over ``manifest``, by whomever; else fault and why.

    Raises CannotMeasure without ssh-keygen.
    """
    try:
        parsed = parse_signature(signature)
    except NoSignature as error:
        return "malformed", str(error)
    if parsed.namespace != NAMESPACE:
        return (
            "wrong-namespace",
            f"made for {parsed.namespace[:60]!r}, not for {NAMESPACE!r}: it is of something else",
        )
    with _scratch(signature, None) as scratch:
        done = _ssh_keygen(
            ["-Y", "check-novalidate", "-n", NAMESPACE, "-s", f"{scratch}/signature"], manifest
        )
    if done.returncode == 0:
        return "", parsed.key
    return "other-manifest", f"not over this manifest: {_line(done)}"


def _state(
    party: str,
    signature: bytes | str | None,
    manifest: bytes,
    allowed: bytes | None,
    at: datetime | None,
) -> SignatureState:
    if not layout.PARTY.fullmatch(party):
        return SignatureState(party[:80], "invalid", "malformed", "no party's name")
    if signature is None:
        return SignatureState(party, "unsigned", "unsigned", f"{party} has not signed")
    if isinstance(signature, str):
        return SignatureState(party, "invalid", "malformed", signature)
    fault, told = soundness(manifest, signature)
    if fault:
        return SignatureState(party, "invalid", fault, told)
    if allowed is None:
        detail = "sound, but nobody said whose keys may sign"
        return SignatureState(party, "untrusted", "no-signers", detail, told)
    with _scratch(signature, allowed) as scratch:
        asked = ["-f", f"{scratch}/{_ALLOWED}", "-s", f"{scratch}/signature"]
        asked += [] if at is None else [f"-Overify-time={at.astimezone(UTC):%Y%m%d%H%M%S}Z"]
        who = _ssh_keygen(["-Y", "verify", "-I", party, "-n", NAMESPACE, *asked], manifest)
        if who.returncode == 0:
            return SignatureState(party, "valid", "", f"by a key of {party}", told)
        owners = _ssh_keygen(["-Y", "find-principals", *asked], b"")
    why, detail = _not_allowed(party, allowed, who, owners)
    return SignatureState(party, "untrusted", why, detail, told)


def _not_allowed(
    party: str,
    allowed: bytes,
    who: subprocess.CompletedProcess[bytes],
    owners: subprocess.CompletedProcess[bytes],
) -> tuple[SignatureFault, str]:
    said = _line(who)
    expired = re.search(r"key has expired: verify time (\S+) > valid-before (\S+)", said)
    if expired:
        return "expired", f"the key of {party} was valid until {expired[2]}"
    early = re.search(r"key is not yet valid: verify time (\S+) < valid-after (\S+)", said)
    if early:
        return "not-yet-valid", f"the key of {party} is valid from {early[2]} on"
    if "not permitted for use in signature namespace" in said:
        return "not-for-manifests", f"the key of {party} may not sign for {NAMESPACE!r}"
    named = owners.stdout.decode("utf-8", "replace").split() if owners.returncode == 0 else []
    if named:
        return "not-allowed", f"the key belongs to {', '.join(named)[:120]}, not to {party}"
    principals = (
        name
        for line in allowed.decode("utf-8", "replace").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
        for name in line.split(None, 1)[0].strip('"').split(",")
    )
    if party in principals:
        return "other-key", f"made with a key that the allowed signers do not give to {party}"
    return "not-allowed", f"the allowed signers do not name {party}"


class _scratch(tempfile.TemporaryDirectory[str]):  # noqa: N801 - used as a function
    """A folder with ``signature`` and, where given, the allowed signers."""

    def __init__(self, signature: bytes, allowed: bytes | None) -> None:
        super().__init__(prefix="kvgate-check-")
        (Path(self.name) / "signature").write_bytes(signature)
        if allowed is not None:
            (Path(self.name) / _ALLOWED).write_bytes(allowed)


def _manifest(root: Path) -> bytes:
    try:
        return files.read_safely(root, layout.MANIFEST, layout.MAX_JSON_BYTES)
    except FileNotFoundError as error:
        raise UsageError("bundle is not sealed", where=str(root), remedy="seal it first") from error


def _ssh_keygen(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise NoSshKeygen("ssh-keygen is missing", remedy="install the OpenSSH client")
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


class NoSshKeygen(CannotMeasure):
    """The tool that checks signatures is not installed: nothing is said about them."""


def _line(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stdout + b" " + done.stderr).decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]
