"""Where the shipped contracts, gates and inventories are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "gates" / "contracts"
REHEARSAL = CONTRACTS / "rehearsal.toml"
LAB = ("fx100-mi308x", "fx100-ascend910b")
