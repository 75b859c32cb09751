"""``opened.jsonl`` in a campaign's folder: one line when a run is opened, one when it is sealed.

The list decides nothing: no verdict, grant or state is read from it. It only makes the campaign
close where a bundle that it names is gone or another. It is appended to, never rewritten, and each
line names the digest of the one before; each bundle names its own line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kvgate.campaign import OPENED, Noted, Witnesses
from kvgate.evidence.files import sync_folder
from kvgate.evidence.seal import cannot_write

MAX_BYTES: Final = 1 << 20
_REPORT: Final = re.compile(r"g([1-4])-([0-9]{3})\.[a-z.]+")


def witnesses(campaign: Path, reports: Path) -> Witnesses:
    """What is left in the campaign's folder that speaks of runs; raises nothing for its content."""
    found = sorted(_reported(reports))
    try:
        noted = _parsed(_whole_lines(campaign / OPENED))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Witnesses(fault=str(error) or type(error).__name__, reported=tuple(found))
    return Witnesses(noted, reported=tuple(found))


def note_opened(campaign: Path, gate: int, run: int, as_of: str) -> str:
    """Append that a run was opened; returns the digest of the line.

    Raises CannotMeasure where the disk refuses.
    """
    return _append(campaign, {"what": "opened", "gate": gate, "run": run, "as_of": as_of})


def note_sealed(campaign: Path, gate: int, run: int, manifest_sha256: str) -> None:
    """Append how a run was sealed, once. Raises CannotMeasure where the disk refuses."""
    said = witnesses(campaign, campaign).noted
    if not any((n.gate, n.run, n.manifest_sha256) == (gate, run, manifest_sha256) for n in said):
        _append(
            campaign,
            {"what": "sealed", "gate": gate, "run": run, "manifest_sha256": manifest_sha256},
        )


def _append(campaign: Path, said: Mapping[str, Any]) -> str:
    path = campaign / OPENED
    try:
        before = _whole_lines(path)
        entry = {**said, "before": _digest(before[-1]) if before else ""}
        line = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A line that a crash tore was never believed: its run had written nothing yet.
            end = sum(map(len, before))
            os.ftruncate(descriptor, end)
            os.pwrite(descriptor, line, end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(campaign)
    except OSError as error:
        raise cannot_write(campaign, error) from error
    return _digest(line)


def _whole_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def _parsed(lines: list[bytes]) -> tuple[Noted, ...]:
    found: list[Noted] = []
    before = ""
    for number, line in enumerate(lines, start=1):
        said = json.loads(line)
        if not isinstance(said, dict) or said["before"] != before:
            raise ValueError(f"line {number} does not follow from the one before")
        before = _digest(line)
        opened = said["what"] == "opened"
        found.append(
            Noted(
                int(said["gate"]),
                int(said["run"]),
                before,
                str(said["as_of"]) if opened else "",
                None if opened else str(said["manifest_sha256"]),
            )
        )
    return tuple(found)


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _reported(reports: Path) -> set[tuple[int, int]]:
    """Runs that a file beside the reports is named after."""
    if not reports.is_dir():
        return set()
    matches = (_REPORT.fullmatch(path.name) for path in reports.iterdir())
    return {(int(m[1]), int(m[2])) for m in matches if m}
