"""Small sealed runs with a real verdict: gate 1 of the rehearsal's contract from written facts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kvgate.campaign import Predecessor
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.manifest import Manifest
from made.g1 import CONTRACT, DEVICE, ROOT, write_g1

__all__ = ["ROOT", "contract_with", "make_key", "write_run"]


def contract_with(*signers: str) -> bytes:
    """The rehearsal's contract with these lines as ``parties.signers``."""
    listed = ", ".join(f"'{line.strip()}'" for line in signers)
    lines = CONTRACT.read_text().splitlines(keepends=True)
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
    as_of = f"2026-03-{run:02d}T08:00:00+00:00"
    predecessor = (
        None if before is None else Predecessor(1, before[0], before[1].sha256, as_of)
    )  # fmt: skip
    written = write_g1(
        root.parent, run=run, device=DEVICE | {"serial": serial}, as_of=as_of, contract=contract,
        name=campaign, before=predecessor,
    )  # fmt: skip
    assert written == root
    manifest = load_bundle(root).manifest
    assert manifest is not None
    return manifest


def make_key(path: Path) -> str:
    """A new key pair at ``path``; returns the public half without its comment."""
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(make, check=True, timeout=30)
    return path.with_suffix(".pub").read_text().strip()
