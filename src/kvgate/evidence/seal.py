"""The seal: it turns an open bundle into one that can no longer change unseen."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvgate.canonical import sha256_hex
from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import files, layout
from kvgate.evidence.manifest import Manifest, State, build_manifest, parse_state
from kvgate.evidence.strict_json import read_object

OUR_OWN: Final = frozenset({layout.STATE, layout.MANIFEST})
"""The files that the manifest does not list: itself, and the state that vouches for it."""


def read_state(root: Path) -> State | None:
    """The state of the bundle in ``root``; None where there is no bundle.

    A torn or missing ``state.json`` beside other files is partial: it is never taken for sealed.
    """
    try:
        data = files.read_safely(root, layout.STATE, layout.MAX_JSON_BYTES)
        return parse_state(data, str(root / layout.STATE))
    except (FileNotFoundError, NotADirectoryError):
        if not root.is_dir() or not any(root.iterdir()):
            return None
        return State(state="partial", reason=f"{layout.STATE} is missing")
    except files.UnsafeFile:
        raise
    except CannotMeasure as error:
        return State(state="partial", reason=f"{layout.STATE} cannot be read: {error.message}")


def seal(root: Path, *, previous_manifest_sha256: str | None, kvgate_version: str) -> Manifest:
    """Close a bundle for good: list every file, write the manifest, say sealed, make read-only.

    ``previous_manifest_sha256`` is the digest of the gate before, None for a campaign's first.
    A bundle marked partial is sealed as such: the manifest keeps the reason.

    Raises UsageError where it is sealed already or another run writes it, CannotMeasure where the
    contract or ``campaign.json`` with its rehearsal mark is missing, a link or special file lies
    in the folder, or the disk refuses.
    """
    state = read_state(root)
    if state is None or state.state == "sealed":
        raise UsageError("no open bundle here", where=str(root), remedy="seal a bundle once")
    lock = None if files.FolderLock.held_here(root) else files.FolderLock(root)
    try:
        return _seal(root, state, previous_manifest_sha256, kvgate_version)
    except OSError as error:
        raise cannot_write(root, error) from error
    finally:
        if lock is not None:
            lock.release()


def _seal(root: Path, state: State, previous: str | None, version: str) -> Manifest:
    remove_leftovers(root)
    campaign = read_object(root, layout.CAMPAIGN) or {}
    rehearsal = campaign.get("rehearsal")
    if not isinstance(rehearsal, bool):
        raise CannotMeasure(
            "does not say whether this is a rehearsal (rehearsal: true | false)",
            where=str(root / layout.CAMPAIGN),
            remedy="write campaign.json before the seal",
        )
    sealed: list[tuple[str, int, str]] = []
    for entry in files.walk(root):
        if entry.kind == "folder" or entry.rel in OUR_OWN:
            continue
        if entry.rel.startswith(f"{layout.SIGNATURES}/"):
            raise CannotMeasure(f"{entry.rel} was there before the seal", where=str(root))
        size, digest = files.digest_safely(root, entry.rel, layout.MAX_FILE_BYTES)
        files.sync_file(root / entry.rel)
        sealed.append((entry.rel, size, digest))
    contract = next((digest for path, _, digest in sealed if path == layout.CONTRACT), None)
    if contract is None:
        raise CannotMeasure("contract.toml is missing", where=str(root), remedy="write it first")
    manifest = build_manifest(
        sealed,
        kvgate_version=version,
        rehearsal=rehearsal,
        partial_reason=state.reason if state.state == "partial" else None,
        interruptions=state.interruptions,
        contract_sha256=contract,
        previous_manifest_sha256=previous,
    )
    data = manifest.to_bytes()
    files.write_whole(root / layout.MANIFEST, data)
    files.write_whole(root / layout.STATE, sealed_state(manifest, data).to_bytes())
    for path, _, _ in [*sealed, (layout.MANIFEST, 0, ""), (layout.STATE, 0, "")]:
        (root / path).chmod(0o444)
    return manifest


def sealed_state(manifest: Manifest, data: bytes) -> State:
    """What ``state.json`` says of a bundle sealed with ``manifest`` (its bytes are ``data``)."""
    return State(
        state="sealed",
        reason=manifest.partial_reason,
        interruptions=manifest.interruptions,
        manifest_sha256=sha256_hex(data),
    )


def remove_leftovers(root: Path) -> None:
    """Delete half-written files and empty folders."""
    entries = list(files.walk(root))
    for entry in entries:
        if Path(entry.rel).name.startswith(layout.TEMPORARY_PREFIX) and entry.kind != "folder":
            (root / entry.rel).unlink()
    folders = (entry.rel for entry in entries if entry.kind == "folder")
    for rel in sorted(folders, key=lambda rel: -rel.count("/")):
        if not any((root / rel).iterdir()):
            (root / rel).rmdir()


def cannot_write(root: Path, error: OSError) -> CannotMeasure:
    """The fault that a person reads when the disk under ``root`` refused with ``error``."""
    place = str(error.filename or root)
    if error.errno in files.DISK_FULL:
        return CannotMeasure(
            "the disk is full; what was written is kept and marked partial",
            where=place,
            remedy="free space and resume, or put the bundle on another disk",
        )
    return CannotMeasure(
        f"cannot write: {error.strerror or error}",
        where=place,
        remedy="check owner, permissions and mount",
    )
