"""Reading a bundle that anybody may have written: plain data and paths, nothing executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import files, layout
from kvgate.evidence.manifest import Manifest, StateName, parse_manifest
from kvgate.evidence.seal import read_state
from kvgate.evidence.strict_json import read_object


@dataclass(frozen=True, slots=True)
class BlockEvidence:
    """One block. ``block`` is the content of its ``block.json``, None where the block was never
    finished; a path is None where the file is missing."""

    n: int
    block: Mapping[str, Any] | None
    requests_path: Path | None
    engine_path: Path | None
    host_path: Path | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """All inputs of a verdict. What is missing is None, never empty.

    ``rehearsal`` is False only where both ``campaign.json`` and, in a sealed bundle, the manifest
    say so: what does not say what it is counts as a rehearsal. ``partial_reason`` is set where
    evidence is known to be missing. ``manifest_sha256`` is the bundle's digest, None unless sealed.
    """

    root: Path
    state: StateName
    partial_reason: str | None
    interruptions: tuple[str, ...]
    manifest: Manifest | None
    manifest_sha256: str | None
    contract: bytes | None
    inventory: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    campaign: Mapping[str, Any] | None
    verdict: Mapping[str, Any] | None
    blocks: tuple[BlockEvidence, ...]
    facts: Mapping[str, Mapping[str, Any]]
    rehearsal: bool


def load_bundle(root: Path) -> Bundle:
    """Read the bundle in ``root``, whatever its state; content is not compared with the seal
    (that is :func:`kvgate.evidence.verify.verify`).

    Raises UsageError where there is no bundle, CannotMeasure for links, special files, unsafe
    names, oversized or loose JSON, Parquet beyond its limits.
    """
    state = read_state(root)
    if state is None:
        raise UsageError(
            "no evidence bundle here", where=str(root), remedy="give the folder of a bundle"
        )
    entries = _inspect(root)
    manifest = _read_manifest(root) if state.state == "sealed" else None
    campaign = read_object(root, layout.CAMPAIGN)
    return Bundle(
        root=root,
        state=state.state,
        partial_reason=state.reason,
        interruptions=state.interruptions,
        manifest=manifest,
        manifest_sha256=manifest.sha256 if manifest is not None else None,
        contract=_read_contract(root),
        inventory=read_object(root, layout.INVENTORY),
        plan=read_object(root, layout.PLAN),
        campaign=campaign,
        verdict=read_object(root, layout.VERDICT),
        blocks=_blocks(root, entries),
        facts=_facts(root, entries),
        rehearsal=_rehearsal(campaign, manifest),
    )


def check_parquet(path: Path) -> None:
    """Raises CannotMeasure where a Parquet file claims more than a block can hold, or is none.

    Reads the footer alone: a run-length column of a few bytes can unfold to billions of rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    remedy = "get a clean copy of the bundle"
    try:
        footer = pq.read_metadata(path)
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        values = [group.column(c).num_values for group in groups for c in range(footer.num_columns)]
        unfolded_bytes = sum(group.total_byte_size for group in groups)
    except (pa.ArrowException, OSError, ValueError) as error:
        told = str(error).splitlines()
        raise CannotMeasure(
            f"not a Parquet file: {told[0][:200] if told else type(error).__name__}",
            where=str(path),
            remedy=remedy,
        ) from error
    most = max(values, default=0)
    if footer.num_columns > 0:
        most = max(most, sum(values) // footer.num_columns, footer.num_rows)
    if most > layout.MAX_PARQUET_VALUES or unfolded_bytes > layout.MAX_FILE_BYTES:
        raise CannotMeasure(
            f"claims {most} values in a column, {unfolded_bytes} bytes",
            where=str(path),
            remedy=remedy,
        )


def _inspect(root: Path) -> dict[str, files.Entry]:
    entries: dict[str, files.Entry] = {}
    total_bytes = 0
    for entry in files.walk(root):
        name = entry.rel.rpartition("/")[2]
        if name.startswith(layout.TEMPORARY_PREFIX):
            continue
        fault = layout.path_fault(entry.rel)
        if entry.kind in ("link", "special"):
            fault = f"is a {entry.kind} file"
        elif entry.size > layout.MAX_FILE_BYTES:
            fault = f"has {entry.size} bytes"
        if fault is not None:
            raise files.UnsafeFile(
                f"{entry.rel[:200]!r} {fault}", where=str(root), remedy="get a clean copy"
            )
        total_bytes += entry.size
        entries[entry.rel] = entry
    if total_bytes > layout.MAX_TOTAL_BYTES:
        raise files.UnsafeFile(f"holds {total_bytes} bytes", where=str(root))
    return entries


def _read_manifest(root: Path) -> Manifest:
    try:
        data = files.read_safely(root, layout.MANIFEST, layout.MAX_JSON_BYTES)
    except FileNotFoundError as error:
        raise CannotMeasure(
            "says sealed but has no manifest", where=str(root), remedy="get a clean copy"
        ) from error
    return parse_manifest(data, str(root / layout.MANIFEST))


def _read_contract(root: Path) -> bytes | None:
    try:
        return files.read_safely(root, layout.CONTRACT, layout.MAX_JSON_BYTES)
    except FileNotFoundError:
        return None


def _blocks(root: Path, entries: Mapping[str, files.Entry]) -> tuple[BlockEvidence, ...]:
    numbers = set()
    for rel, entry in entries.items():
        parts = rel.split("/")
        if parts[0] != layout.BLOCKS or len(parts) < 2:
            continue
        if not layout.BLOCK_NUMBER.fullmatch(parts[1]) or (
            len(parts) == 2 and entry.kind != "folder"
        ):
            raise CannotMeasure(
                f"{rel[:200]!r} is no numbered block", where=str(root), remedy="get a clean copy"
            )
        numbers.add(int(parts[1]))
    return tuple(_block(root, n, entries) for n in sorted(numbers))


def _block(root: Path, n: int, entries: Mapping[str, files.Entry]) -> BlockEvidence:
    def path(name: str) -> Path | None:
        rel = f"{layout.BLOCKS}/{n}/{name}"
        entry = entries.get(rel)
        if entry is None or entry.kind != "file":
            return None
        check_parquet(root / rel)
        return root / rel

    return BlockEvidence(
        n=n,
        block=(block := read_object(root, f"{layout.BLOCKS}/{n}/{layout.BLOCK}")),
        # An unfinished block may hold half a file; what it holds is not evidence.
        requests_path=path(layout.REQUESTS) if block is not None else None,
        engine_path=path(layout.ENGINE) if block is not None else None,
        host_path=path(layout.HOST) if block is not None else None,
    )


def _facts(root: Path, entries: Mapping[str, files.Entry]) -> dict[str, Mapping[str, Any]]:
    facts: dict[str, Mapping[str, Any]] = {}
    for rel in layout.canonical_order(entries):
        folder, _, name = rel.rpartition("/")
        if folder == layout.FACTS and name.endswith(".json") and entries[rel].kind == "file":
            facts[name.removesuffix(".json")] = read_object(root, rel) or {}
    return facts


def _rehearsal(campaign: Mapping[str, Any] | None, manifest: Manifest | None) -> bool:
    says = [] if campaign is None else [campaign.get("rehearsal")]
    if manifest is not None:
        says.append(manifest.rehearsal)
    return not says or any(word is not False for word in says)
