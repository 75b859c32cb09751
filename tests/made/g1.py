"""A small sealed run of G1 under the rehearsal's contract, from written facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvgate.adjudicate import adjudicate
from kvgate.campaign import CampaignFacts, Mode, Predecessor
from kvgate.contract import parse_contract
from kvgate.evidence.journal import Journal

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "gates" / "contracts" / "rehearsal.toml"
AS_OF = "2026-03-01T08:00:00+00:00"
CLAUSES = tuple(f"G1.{n}" for n in range(1, 8))

DEVICE = {
    "model": "FX100 (simulated)",
    "serial": "SIM-FX100-0001",
    "firmware": "sim-1.0",
    "link_gbit_per_s": 100,
}


def host_facts(cpu_count: int = 4) -> dict[str, Any]:
    return {
        "python_version": "3.11",
        "cpu_count": cpu_count,
        "open_files_hard_limit": 65536,
        "disk_free_bytes": 10**11,
        "files": {"meminfo": "MemTotal:       16000000 kB\n"},
        "interface": "-",
        "link": None,
        "gids": [],
        "nvme_smart": {},
        "commands": {},
    }


def write_g1(
    campaign: Path,
    *,
    run: int = 1,
    device: dict[str, Any] | None = None,
    as_of: str = AS_OF,
    seal: bool = True,
    contract: bytes | None = None,
    name: str | None = None,
    before: Predecessor | None = None,
) -> Path:
    """A G1 run in ``campaign``; PASS unless ``device`` or ``contract`` say otherwise. ``name`` is
    what it calls its campaign (default: its folder), ``before`` the run that it is chained to."""
    terms = contract or CONTRACT.read_bytes()
    parsed = parse_contract(terms, name="contract.toml")
    root = campaign / f"g1-{run:03d}"
    facts = CampaignFacts(
        name=name or campaign.name,
        gate=1,
        run=run,
        mode=Mode.COUNTED,
        rehearsal=True,
        as_of=as_of,
        contract_id=parsed.id,
        contract_digest=parsed.digest,
        kvgate_version="0.1.0",
        inventory="inventories/rehearsal",
        selected=CLAUSES,
        retests_used=0,
        reruns_used=0,
        serials=parsed.appliance.serials,
        firmware=parsed.appliance.firmware,
        predecessor=before,
        faults=(),
        time_scale=60.0,
        extends=None,
    )
    groups = {name: [f"rehearsal-{name}"] for name in ("engines", "appliances", "load_clients")}
    with Journal(root) as journal:
        journal.write_bytes("contract.toml", terms)
        journal.write_json("inventory.json", {"hosts": groups})
        journal.write_json("campaign.json", facts)
        journal.write_json("plan.json", {"gate": 1, "sessions": [], "environment": {}})
        for group in groups:
            record: dict[str, Any] = {"host": host_facts()}
            if group == "appliances":
                record["device"] = device or DEVICE
            journal.write_json(f"facts/rehearsal-{group}.json", record)
        if seal:
            journal.write_bytes("verdict.json", adjudicate(root).verdict_json)
            previous = None if before is None else before.manifest_sha256
            journal.seal(previous_manifest_sha256=previous, kvgate_version="0.1.0")
    return root
