"""A sealed evidence bundle from foreign files.

It goes through the same judge as our own. It never counts in a campaign, and what the files do not
prove stands in it as broken conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kvgate
from kvgate.campaign import CampaignFacts, Mode, utc_text
from kvgate.canonical import sha256_hex
from kvgate.contract import Contract
from kvgate.contract_gates import PairPlan
from kvgate.errors import UsageError
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import write_record_rows
from kvgate.imports.imported import Imported, read_source
from kvgate.imports.manifest import FORMATS, ForeignBlock, Manifest
from kvgate.observe.adapters import adapter_for
from kvgate.observe.counters import increase
from kvgate.observe.exposition import parse
from kvgate.observe.observation import TargetView
from kvgate.plan import requests_in


@dataclass(frozen=True, slots=True)
class Kept:
    """A block as it went into the bundle."""

    n: int
    block: ForeignBlock
    imported: Imported


def write_blocks(
    journal: Journal,
    contract: Contract,
    contract_bytes: bytes,
    manifest: Manifest,
    folder: Path,
    selected: tuple[str, ...],
) -> tuple[Kept, ...]:
    """Everything but verdict and seal. ``folder``: where the manifest's files lie.

    Raises UsageError for a file that cannot be used; nothing of it is guessed.
    """
    read = [_read(folder, block) for block in manifest.block]
    journal.write_bytes("contract.toml", contract_bytes)
    journal.write_json("inventory.json", {
        "imported": True, "rehearsal": contract.rehearsal, "hosts": {}, "path": manifest.name,
    })  # fmt: skip
    journal.write_json("campaign.json", _campaign(contract, manifest, selected))
    journal.write_json("plan.json", {"gate": manifest.gate, "sessions": [], "environment": {}})
    plan = contract.gate(manifest.gate).pairs
    assert plan is not None  # load_manifest refuses a gate without pairs
    kept: list[Kept] = []
    for n, (block, imported, digest) in enumerate(read):
        write_record_rows(imported.records, journal.block_dir(n) / "requests.parquet")
        journal.finish_block(
            n, _block_json(contract, plan, manifest.gate, n, block, imported, digest, folder)
        )
        kept.append(Kept(n, block, imported))
    return tuple(kept)


def _read(folder: Path, block: ForeignBlock) -> tuple[ForeignBlock, Imported, str]:
    source = read_source(folder / block.file)
    return block, FORMATS[block.format](source, block.part), sha256_hex(source.data)


def _campaign(contract: Contract, manifest: Manifest, selected: tuple[str, ...]) -> CampaignFacts:
    return CampaignFacts(
        name=manifest.name,
        gate=manifest.gate,
        run=1,
        mode=Mode.IMPORTED,
        rehearsal=contract.rehearsal,
        as_of=utc_text(datetime.now(UTC)),
        contract_id=contract.id,
        contract_digest=contract.digest,
        kvgate_version=kvgate.__version__,
        inventory=manifest.name,
        selected=selected,
        retests_used=0,
        reruns_used=0,
        serials=contract.appliance.serials,
        firmware=contract.appliance.firmware,
        predecessor=None,
        faults=(),
        time_scale=1.0,
        extends=None,
    )


def _block_json(
    contract: Contract,
    plan: PairPlan,
    gate: int,
    n: int,
    block: ForeignBlock,
    imported: Imported,
    digest: str,
    folder: Path,
) -> dict[str, Any]:
    workload = contract.workloads[block.workload]
    records = imported.records
    duration_s = None
    if records:
        ends = max(r.end_ns for r in records)
        duration_s = (ends - min(r.intended_ns for r in records)) * 1e-9 or None
    return {
        "n": n,
        "gate": gate,
        "session": 2 * block.pair + block.order,
        "pair": block.pair,
        "role": "reference" if block.arm == plan.compare[0] else "test",
        "position": block.order,
        "pool": 0,
        "arm": block.arm,
        "cell": asdict(block.cell),
        "kind": workload.kind,
        "requests_planned": requests_in(workload, block.level),
        "requests_recorded": len(records),
        "prompt_tokens_each": workload.prompt_tokens,
        "output_tokens_each": workload.output_tokens,
        "prompts": {"pool": "unknown", "first": 0, "count": requests_in(workload, block.level)},
        "primed_tokens": None,
        "started_at": block.started_at or "unknown",
        "duration_s": duration_s,
        "time_scale": 1.0,
        "client": None,
        "load_state": "imported",
        "fault": None,
        "observation": {"coverage_share": None, "targets": _targets(block, folder)},
        "moved": {"bytes": None, "how": "the file does not say"},
        "imported": {
            "tool": imported.tool,
            "format": block.format,
            "part": block.part,
            "file": Path(block.file).name,
            "sha256": digest,
            "requests_planned": imported.requests_planned,
            "totals": dict(imported.totals),
            "lacks": sorted(imported.lacks),
            "notes": list(imported.notes),
        },
    }


def _targets(block: ForeignBlock, folder: Path) -> Mapping[str, Any]:
    """The engine's counters from two metrics pages, where the manifest names them."""
    if block.engine_before is None or block.engine_after is None:
        return {}
    adapter = adapter_for(block.engine)
    pages = []
    for name in (block.engine_before, block.engine_after):
        source = read_source(folder / name)
        try:
            pages.append(adapter.read(parse(source.text())))
        except ValueError as fault:
            raise UsageError(
                f"not a metrics page: {fault}", where=str(source.path),
                remedy="save the engine's /metrics as it is",
            ) from None  # fmt: skip
    before, after = pages
    view = TargetView("engine", adapter.name, adapter.role, before, after, increase(before, after))
    return {"engine": view.to_json()}
