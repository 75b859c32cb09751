"""Where each piece of a bundle lies, and how large a stranger's bundle may be.

A bundle is a folder of plain files::

    state.json                open | partial | sealed, why, and the manifest's digest
    manifest.json             every file below with size, SHA-256 and chain; written by the seal
    contract.toml  inventory.json  plan.json  campaign.json  verdict.json
    blocks/<n>/               requests.parquet  engine.parquet  host.parquet  block.json
    facts/<host>.json  ansible/...
    signatures/<party>.sig    the one place that may grow after sealing
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kvgate.errors import UsageError

FORMAT: Final = "kvgate-bundle/1"
STATE: Final = "state.json"
MANIFEST: Final = "manifest.json"
CONTRACT: Final = "contract.toml"
INVENTORY: Final = "inventory.json"
PLAN: Final = "plan.json"
CAMPAIGN: Final = "campaign.json"
VERDICT: Final = "verdict.json"
BLOCKS: Final = "blocks"
FACTS: Final = "facts"
ANSIBLE: Final = "ansible"
SIGNATURES: Final = "signatures"
BLOCK: Final = "block.json"
REQUESTS: Final = "requests.parquet"
ENGINE: Final = "engine.parquet"
HOST: Final = "host.parquet"

TEMPORARY_PREFIX: Final = ".writing-"
"""Files with this prefix are halves of an interrupted write: never read, never sealed."""

# Limits of a bundle from outside. A gate of 72 hours at one sample a second stays below a tenth.
MAX_FILES: Final = 200_000
MAX_DEPTH: Final = 16
MAX_FILE_BYTES: Final = 16 << 30
MAX_TOTAL_BYTES: Final = 256 << 30
MAX_JSON_BYTES: Final = 64 << 20
MAX_SIGNATURE_BYTES: Final = 64 << 10
MAX_SIGNATURES: Final = 64
MAX_PATH_BYTES: Final = 1024
MAX_PARQUET_VALUES: Final = 400_000_000
"""Values in one column of one Parquet file: run lengths let a small file claim billions."""
MAX_REQUESTS: Final = 5_000_000
"""Rows of one ``requests.parquet``: 72 hours at ten requests a second are half of it."""

BLOCK_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,6}")
PARTY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def path_fault(rel: str) -> str | None:
    """Why ``rel`` may not name a file of a bundle, or None where it may.

    Allowed are relative POSIX paths without ``.``, ``..``, empty parts, backslashes, control
    characters or names of Windows drives.
    """
    if not rel:
        return "is empty"
    try:
        size = len(rel.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if rel.startswith("/") or re.match(r"[A-Za-z]:", rel):
        return "is absolute"
    if "\\" in rel or any(ord(c) < 0x20 or ord(c) == 0x7F for c in rel):
        return "holds a backslash or a control character"
    parts = rel.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "leaves its folder or has an empty part"
    if len(parts) > MAX_DEPTH:
        return f"is deeper than {MAX_DEPTH} folders"
    if any(part.startswith(TEMPORARY_PREFIX) for part in parts):
        return "names a half-written file"
    return None


def require_safe(rel: str, where: Path | str) -> str:
    """``rel`` itself; raises UsageError when :func:`path_fault` has something against it."""
    fault = path_fault(rel)
    if fault is not None:
        raise UsageError(
            f"path {rel[:200]!r} {fault}",
            where=str(where),
            remedy="use a plain relative path inside the bundle",
        )
    return rel


def canonical_order(paths: Iterable[str]) -> list[str]:
    """Paths by their UTF-8 bytes: the one order of a manifest, free of any locale."""
    return sorted(paths, key=lambda path: path.encode("utf-8"))
