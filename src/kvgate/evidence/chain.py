"""The gates of one campaign hold on to each other: each manifest names the one before.

A bundle that was replaced as a whole agrees with itself; what does not agree is the next gate's
manifest. So the bundles that lie beside each other are followed back to the campaign's first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvgate.canonical import sha256_hex
from kvgate.errors import CannotMeasure
from kvgate.evidence import files, layout
from kvgate.evidence.manifest import Manifest, parse_manifest
from kvgate.evidence.strict_json import read_object
from kvgate.evidence.verify import Problem, verify

_RUN: Final = re.compile(r"g([1-4])-([0-9]{3})")
_MAX_FOLDERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Chain:
    """What was found on the way back. ``intact`` are folder names of predecessors that are as they
    were sealed, ``absent`` digests of those that do not lie here: nothing is said about them."""

    problems: tuple[Problem, ...]
    intact: tuple[str, ...]
    absent: tuple[str, ...]


def follow(root: Path) -> Chain:
    """Follow a sealed bundle back through the bundles beside it. Raises nothing for hostile ones.

    Also says where the folder's name (``g3-001``) and the run inside are not the same.
    """
    root = root.resolve()
    problems: list[Problem] = []
    intact: list[str] = []
    absent: list[str] = []
    beside = _beside(root)
    seen: set[str] = set()
    at: Path | None = root
    while at is not None and at.name not in seen:
        seen.add(at.name)
        here = "" if at == root else at.name
        manifest, campaign = _read(at)
        if manifest is None:
            break  # verify has said so
        problems += _own_name(at, here, campaign)
        digest, problem = _before(manifest, campaign, here)
        if problem is not None:
            problems.append(problem)
        extended = campaign.get("extends")
        if isinstance(extended, str) and extended not in beside:
            absent.append(extended)
        if digest is None:
            break
        name = beside.get(digest)
        if name is None:
            expected = _named(campaign)
            if expected is not None and expected in beside.values():
                detail = f"it is not the run that {at.name} follows: that had the manifest {digest}"
                problems.append(Problem(expected, "swapped", detail))
            else:
                absent.append(digest)
            break
        at = root.parent / name
        found = verify(at, expected_manifest_sha256=digest)
        if found:
            told = f"{found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
            problems.append(Problem(name, "chain", f"a gate before is not what was sealed: {told}"))
        else:
            intact.append(name)
    return Chain(tuple(problems), tuple(intact), tuple(absent))


def _read(root: Path) -> tuple[Manifest | None, Mapping[str, Any]]:
    try:
        data = files.read_safely(root, layout.MANIFEST, layout.MAX_JSON_BYTES)
        manifest = parse_manifest(data, layout.MANIFEST)
        return manifest, read_object(root, layout.CAMPAIGN) or {}
    except (CannotMeasure, OSError):
        return None, {}


def _before(
    manifest: Manifest, campaign: Mapping[str, Any], here: str
) -> tuple[str | None, Problem | None]:
    """The digest of the run before, and a problem where manifest and campaign differ on it."""
    digest = manifest.previous_manifest_sha256
    if "predecessor" not in campaign:
        return digest, None
    before = campaign["predecessor"]
    said = before.get("manifest_sha256") if isinstance(before, Mapping) else None
    if said == digest:
        return digest, None
    detail = "manifest and campaign.json name different runs as the one before"
    return digest, Problem(here or layout.CAMPAIGN, "chain", detail)


def _named(campaign: Mapping[str, Any]) -> str | None:
    before = campaign.get("predecessor")
    if not isinstance(before, Mapping):
        return None
    gate, run = before.get("gate"), before.get("run")
    return f"g{gate}-{run:03d}" if isinstance(gate, int) and isinstance(run, int) else None


def _own_name(root: Path, here: str, campaign: Mapping[str, Any]) -> list[Problem]:
    match = _RUN.fullmatch(root.name)
    gate, run = campaign.get("gate"), campaign.get("run")
    if match is None or gate is None or run is None:
        return []
    if (int(match[1]), int(match[2])) == (gate, run):
        return []
    detail = f"the folder is called {root.name}, the evidence in it is of gate {gate} run {run}"
    return [Problem(here, "swapped", detail[:200])]


def _beside(root: Path) -> dict[str, str]:
    """Digest of the manifest -> name, of the folders beside ``root`` and of itself."""
    found: dict[str, str] = {}
    try:
        folders = sorted(p for p in root.parent.iterdir() if p.is_dir() and not p.is_symlink())
    except OSError:
        return found
    for folder in folders[:_MAX_FOLDERS]:
        try:
            data = files.read_safely(folder, layout.MANIFEST, layout.MAX_JSON_BYTES)
        except (CannotMeasure, OSError):
            continue
        found[sha256_hex(data)] = folder.name
    return found
