"""The manifest and the state: two small records that make a folder a bundle.

The chain: the first link is the SHA-256 of the manifest's header in canonical JSON; each file's
link is the SHA-256 of ``<link before>\\n<path>\\n<size>\\n<sha256>\\n``. Files stand in the order
of their paths' UTF-8 bytes, so a removed, added, moved or swapped entry breaks each link after it.
The header holds the digest of the manifest of the gate before: one chain for a whole campaign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from kvgate.canonical import canonical_json, sha256_hex
from kvgate.errors import CannotMeasure
from kvgate.evidence import layout
from kvgate.evidence.strict_json import parse_strict

StateName = Literal["open", "partial", "sealed"]
T = TypeVar("T")


class ManifestEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sealed file: relative path, size in bytes, SHA-256 and its link of the chain."""

    path: str
    size_bytes: int
    sha256: str
    chain: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a sealed bundle holds.

    ``partial_reason`` is set where evidence is known to be missing (a full disk, an interruption
    not resumed); ``interruptions`` lists those that were resumed. ``chain`` is the last link.
    """

    format: str
    kvgate_version: str
    rehearsal: bool
    partial_reason: str | None
    interruptions: tuple[str, ...]
    contract_sha256: str
    previous_manifest_sha256: str | None
    files: tuple[ManifestEntry, ...]
    chain: str

    def to_bytes(self) -> bytes:
        """The bytes of ``manifest.json``; their SHA-256 is the bundle's digest."""
        return canonical_json(self)

    @property
    def sha256(self) -> str:
        """The bundle's digest: what signatures sign and the next gate refers to."""
        return sha256_hex(self.to_bytes())


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``state.json``: open while a gate runs, partial with a reason, or sealed with the digest."""

    format: str = layout.FORMAT
    state: StateName
    reason: str | None = None
    interruptions: tuple[str, ...] = ()
    manifest_sha256: str | None = None

    def to_bytes(self) -> bytes:
        """The bytes of ``state.json``."""
        return canonical_json(self)


def chained(manifest: Manifest) -> Manifest:
    """``manifest`` with each link and the last one computed anew from its other fields."""
    link = sha256_hex(canonical_json(_header(manifest)))
    files = []
    for entry in manifest.files:
        text = f"{link}\n{entry.path}\n{entry.size_bytes}\n{entry.sha256}\n"
        link = sha256_hex(text.encode("utf-8"))
        files.append(msgspec.structs.replace(entry, chain=link))
    return msgspec.structs.replace(manifest, files=tuple(files), chain=link)


def build_manifest(
    files: Iterable[tuple[str, int, str]],
    *,
    kvgate_version: str,
    rehearsal: bool,
    partial_reason: str | None,
    interruptions: tuple[str, ...],
    contract_sha256: str,
    previous_manifest_sha256: str | None,
) -> Manifest:
    """The manifest of ``files`` (path, size in bytes, SHA-256), in any order."""
    by_path = {path: (size, digest) for path, size, digest in files}
    entries = tuple(
        ManifestEntry(path, *by_path[path], chain="") for path in layout.canonical_order(by_path)
    )
    return chained(
        Manifest(
            format=layout.FORMAT,
            kvgate_version=kvgate_version,
            rehearsal=rehearsal,
            partial_reason=partial_reason,
            interruptions=interruptions,
            contract_sha256=contract_sha256,
            previous_manifest_sha256=previous_manifest_sha256,
            files=entries,
            chain="",
        )
    )


def parse_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in ``data``. Raises CannotMeasure where it is none of ours."""
    return _convert(data, where, Manifest)


def parse_state(data: bytes, where: str) -> State:
    """The state in ``data``. Raises CannotMeasure where it is none of ours."""
    return _convert(data, where, State)


def _convert(data: bytes, where: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(parse_strict(data, where), kind)
    except msgspec.ValidationError as error:
        raise CannotMeasure(
            f"not a {kind.__name__.lower()} of {layout.FORMAT}: {error}",
            where=where,
            remedy="use the kvgate version that wrote it, or ask for a clean copy",
        ) from error


def _header(manifest: Manifest) -> dict[str, Any]:
    fields = msgspec.structs.asdict(manifest)
    return {name: fields[name] for name in fields if name not in ("files", "chain")}
