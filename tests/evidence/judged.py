"""Small sealed runs with a real verdict: gate 1 of the rehearsal's contract from written facts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from kvgate.adjudicate import adjudicate
from kvgate.campaign.records import CampaignFacts, Mode, Predecessor
from kvgate.contract import parse_contract
from kvgate.evidence.journal import Journal
from kvgate.evidence.manifest import Manifest

ROOT = Path(__file__).parents[2]
CONTRACT = (ROOT / "gates" / "contracts" / "rehearsal.toml").read_text()
GROUPS = ("engines", "appliances", "load_clients")


def contract_with(*signers: str) -> bytes:
    """The rehearsal's contract with these lines as ``parties.signers``."""
    listed = ", ".join(f"'{line.strip()}'" for line in signers)
    lines = CONTRACT.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("site ="))
    return "".join([*lines[: at + 1], f"signers = [{listed}]\n", *lines[at + 1 :]]).encode()


def write_run(
    root: Path,
    *,
    run: int = 1,
    serial: str = "SIM-FX100-0001",
    contract: bytes | None = None,
    before: tuple[int, Manifest] | None = None,
    campaign: str = "demo",
) -> Manifest:
    """A sealed run of gate 1; another ``serial`` than the contract's fails it. ``before`` is the
    run before and its manifest."""
    terms = contract or CONTRACT.encode()
    parsed = parse_contract(terms, name="contract.toml")
    device = {
        "model": parsed.appliance.model, "serial": serial, "firmware": parsed.appliance.firmware,
        "link_gbit_per_s": 100,
    }  # fmt: skip
    as_of = f"2026-03-{run:02d}T08:00:00+00:00"
    previous = None if before is None else before[1].sha256
    facts = CampaignFacts(
        name=campaign,
        gate=1,
        run=run,
        mode=Mode.COUNTED,
        rehearsal=True,
        as_of=as_of,
        contract_id=parsed.id,
        contract_digest=parsed.digest,
        kvgate_version="0.0.test",
        inventory="inventories/rehearsal",
        selected=tuple(c.id for c in parsed.gate(1).clause),
        retests_used=0,
        reruns_used=0,
        serials=parsed.appliance.serials,
        firmware=parsed.appliance.firmware,
        predecessor=None if before is None else Predecessor(1, before[0], previous or "", as_of),
        faults=(),
        time_scale=60.0,
        extends=None,
    )
    with Journal(root) as journal:
        journal.write_bytes("contract.toml", terms)
        journal.write_json("inventory.json", {"hosts": {g: [f"sim-{g}"] for g in GROUPS}})
        journal.write_json("campaign.json", facts)
        journal.write_json("plan.json", {"gate": 1, "sessions": [], "environment": {}})
        for group in GROUPS:
            record: dict[str, Any] = {"host": _host()}
            if group == "appliances":
                record["device"] = device
            journal.write_json(f"facts/sim-{group}.json", record)
        journal.write_bytes("verdict.json", adjudicate(root).verdict_json)
        return journal.seal(previous_manifest_sha256=previous, kvgate_version="0.0.test")


def _host() -> dict[str, Any]:
    return {
        "python_version": "3.11",
        "cpu_count": 4,
        "open_files_hard_limit": 65536,
        "disk_free_bytes": 10**11,
        "files": {"meminfo": "MemTotal:       16000000 kB\n"},
        "interface": "-",
        "link": None,
        "gids": [],
        "nvme_smart": {},
        "commands": {},
    }


def make_key(path: Path) -> str:
    """A new key pair at ``path``; returns the public half without its comment."""
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(make, check=True, timeout=30)
    return path.with_suffix(".pub").read_text().strip()
