"""Whether a sealed bundle is still what was sealed: every difference, by name."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvgate.canonical import sha256_hex
from kvgate.errors import CannotMeasure
from kvgate.evidence import files, layout
from kvgate.evidence.manifest import Manifest, ManifestEntry, chained, parse_manifest
from kvgate.evidence.seal import OUR_OWN, sealed_state
from kvgate.evidence.signatures import NoSshKeygen, soundness
from kvgate.evidence.strict_json import read_object

KINDS: Final = (
    "active", "added", "bomb", "chain", "changed", "link", "not_sealed", "rehearsal", "removed",
    "reordered", "signature", "special", "swapped", "too_large", "truncated", "unsafe_path",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One difference. ``kind`` is one of :data:`KINDS`, ``path`` is relative to the bundle (empty
    for the bundle as a whole), ``detail`` is a sentence for a person."""

    path: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path or 'bundle'}: {self.kind}: {self.detail}"


def verify(root: Path, *, expected_manifest_sha256: str | None = None) -> list[Problem]:
    """Every difference between the folder and its seal, sorted by path; empty when there is none.

    A consistent forgery (manifest and state rewritten together) can only be seen from outside:
    give ``expected_manifest_sha256`` (from the next gate's manifest, a report or a letter), or
    check signatures. Signatures that are present must be sound; whose they are is
    :func:`kvgate.evidence.signatures.signature_states`. Raises nothing for a hostile folder.
    """
    try:
        found = {_shown(entry.rel): entry for entry in files.walk(root)}
    except CannotMeasure as error:
        return [Problem("", "bomb", error.message)]
    problems = [
        Problem(rel, entry.kind, f"a bundle holds no {entry.kind} files")
        for rel, entry in found.items()
        if entry.kind in ("link", "special")
    ]
    try:
        data = files.read_safely(root, layout.MANIFEST, layout.MAX_JSON_BYTES)
    except FileNotFoundError:
        return sorted([*problems, Problem(layout.MANIFEST, "removed", "there is no manifest")])
    except (CannotMeasure, OSError) as error:
        return sorted([*problems, Problem(layout.MANIFEST, "changed", str(error))])
    try:
        manifest = parse_manifest(data, layout.MANIFEST)
    except CannotMeasure as error:
        return sorted([*problems, Problem(layout.MANIFEST, "changed", error.message)])
    problems += manifest_problems(manifest, data, expected_manifest_sha256)
    problems += _check_state(root, manifest, data)
    problems += _check_files(root, manifest, found)
    problems += _check_rehearsal(root, manifest)
    problems += _check_signatures(root, data, found)
    return sorted(set(problems))


def manifest_problems(manifest: Manifest, data: bytes, expected: str | None) -> list[Problem]:
    """What a manifest (``data`` are its bytes) says against itself, without any file of it;
    ``expected`` is its digest from elsewhere, None where there is none to compare with."""
    problems: list[Problem] = []

    def report(kind: str, detail: str) -> None:
        problems.append(Problem(layout.MANIFEST, kind, detail))

    paths = [entry.path for entry in manifest.files]
    if manifest.format != layout.FORMAT:
        report("changed", f"its format is not {layout.FORMAT}")
    for path, times in Counter(paths).items():
        if times > 1:
            report("added", f"{path} is listed {times} times")
    for entry in manifest.files:
        fault = layout.path_fault(entry.path)
        if fault is not None:
            problems.append(Problem(entry.path[:200], "unsafe_path", f"the listed path {fault}"))
        if not 0 <= entry.size_bytes <= layout.MAX_FILE_BYTES:
            problems.append(Problem(entry.path[:200], "too_large", "the listed size is refused"))
    if len(paths) > layout.MAX_FILES or (
        sum(entry.size_bytes for entry in manifest.files) > layout.MAX_TOTAL_BYTES
    ):
        report("bomb", "it lists more files or bytes than a bundle may hold")
    with contextlib.suppress(UnicodeEncodeError):  # reported as unsafe_path above
        if paths != layout.canonical_order(paths):
            report("reordered", "its files do not stand in canonical order")
    try:
        link_breaks = _first_broken_link(manifest)
        canonical = manifest.to_bytes() == data
    except (UnicodeEncodeError, ValueError) as error:
        return [*problems, Problem(layout.MANIFEST, "changed", str(error)[:200])]
    if link_breaks is not None:
        report("chain", f"the chain breaks at {link_breaks}")
    if not canonical:
        report("changed", "its bytes are not the canonical ones")
    if expected is not None and manifest.sha256 != expected:
        report("swapped", f"its digest {manifest.sha256} is not the expected {expected}")
    return problems


def _first_broken_link(manifest: Manifest) -> str | None:
    right = chained(manifest)
    for ours, theirs in zip(right.files, manifest.files, strict=True):
        if ours.chain != theirs.chain:
            return theirs.path[:200]
    return None if right.chain == manifest.chain else "its end"


def _check_state(root: Path, manifest: Manifest, data: bytes) -> list[Problem]:
    try:
        state = files.read_safely(root, layout.STATE, layout.MAX_JSON_BYTES)
    except FileNotFoundError:
        return [Problem(layout.STATE, "removed", "the bundle does not say that it is sealed")]
    except (CannotMeasure, OSError) as error:
        return [Problem(layout.STATE, "changed", str(error))]
    if state == sealed_state(manifest, data).to_bytes():
        return []
    problems = [Problem(layout.STATE, "not_sealed", "it does not vouch for this manifest")]
    vouched = re.search(rb'"manifest_sha256": "([0-9a-f]{64})"', state)
    if vouched is not None and vouched[1].decode() != sha256_hex(data):
        detail = "its digest is not the one that the state vouches for"
        problems.append(Problem(layout.MANIFEST, "changed", detail))
    return problems


def _check_files(root: Path, manifest: Manifest, found: dict[str, files.Entry]) -> list[Problem]:
    listed = {entry.path: entry for entry in manifest.files}
    owners = {entry.sha256: entry.path for entry in manifest.files}
    problems: list[Problem] = []
    for path, entry in listed.items():
        there = found.get(path)
        if layout.path_fault(path) is not None:
            continue
        if there is None:
            problems.append(Problem(path, "removed", "it was sealed and is gone"))
        elif there.kind == "folder":
            problems.append(Problem(path, "changed", "a folder stands in its place"))
        elif there.kind == "file":
            problems += _check_content(root, entry, there, owners)
    folders = {path[:i] for path in listed for i, c in enumerate(path) if c == "/"}
    for path, there in found.items():
        in_signatures = path == layout.SIGNATURES or path.startswith(f"{layout.SIGNATURES}/")
        known = path in listed or path in folders or path in OUR_OWN or in_signatures
        if not known:
            problems.append(Problem(path, "added", f"a {there.kind} that was not sealed"))
    return problems


def _check_content(
    root: Path, entry: ManifestEntry, there: files.Entry, owners: dict[str, str]
) -> list[Problem]:
    if there.size > layout.MAX_FILE_BYTES:
        return [Problem(entry.path, "too_large", f"{there.size} bytes")]
    if there.size < entry.size_bytes:
        detail = f"{there.size} bytes of {entry.size_bytes}"
        return [Problem(entry.path, "truncated", detail)]
    try:
        # A size that differs is proof enough; a stranger's terabyte need not be read.
        digest = "" if there.size > entry.size_bytes else _digest(root, entry.path)
    except (CannotMeasure, OSError) as error:
        return [Problem(entry.path, "changed", f"cannot be read: {error}")]
    if digest == entry.sha256:
        return []
    if digest in owners:
        return [Problem(entry.path, "swapped", f"it holds what was sealed as {owners[digest]}")]
    return [Problem(entry.path, "changed", f"{there.size} bytes with another digest")]


def _digest(root: Path, rel: str) -> str:
    return files.digest_safely(root, rel, layout.MAX_FILE_BYTES)[1]


def _check_rehearsal(root: Path, manifest: Manifest) -> list[Problem]:
    try:
        campaign = read_object(root, layout.CAMPAIGN) or {}
    except (CannotMeasure, OSError) as error:
        return [Problem(layout.CAMPAIGN, "changed", str(error))]
    if campaign.get("rehearsal") is not manifest.rehearsal:
        return [Problem(layout.CAMPAIGN, "rehearsal", "campaign and manifest differ on it")]
    return []


def _check_signatures(root: Path, data: bytes, found: dict[str, files.Entry]) -> list[Problem]:
    prefix = f"{layout.SIGNATURES}/"
    inside = [path for path in found if path.startswith(prefix)]
    problems: list[Problem] = []
    if len(inside) > layout.MAX_SIGNATURES:
        return [Problem(layout.SIGNATURES, "bomb", f"more than {layout.MAX_SIGNATURES} files")]
    for path in inside:
        party, dot, end = path.removeprefix(prefix).rpartition(".")
        if (
            found[path].kind != "file"
            or not dot
            or end != "sig"
            or not layout.PARTY.fullmatch(party)
        ):
            problems.append(Problem(path, "added", "only <party>.sig may lie here"))
            continue
        try:
            signature = files.read_safely(root, path, layout.MAX_SIGNATURE_BYTES)
        except (CannotMeasure, OSError) as error:
            problems.append(Problem(path, "signature", str(error)))
            continue
        try:
            fault, detail = soundness(data, signature)
        except NoSshKeygen:
            continue  # nothing is known to be wrong; whoever asks about signatures is told so
        except CannotMeasure as error:
            fault, detail = "malformed", error.message
        if fault:
            problems.append(Problem(path, "signature", f"{fault}: {detail}"))
    if layout.SIGNATURES in found and found[layout.SIGNATURES].kind == "file":
        problems.append(Problem(layout.SIGNATURES, "added", "a file stands in the folder's place"))
    return problems


def _shown(rel: str) -> str:
    # A name that is not UTF-8 can be in no manifest; it must still be printable.
    return os.fsencode(rel).decode("utf-8", "backslashreplace")
