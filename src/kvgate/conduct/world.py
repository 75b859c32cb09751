"""What must be the same before and after an interruption: one comparison for each layer.

What files say is compared before anything starts; hosts and engines are asked when they are up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import kvgate
from kvgate.analyse.configuration import configuration
from kvgate.campaign import Configuration, changes_between
from kvgate.canonical import canonical_json
from kvgate.contract import Contract
from kvgate.inventory import Inventory

PUT_BACK: Final = "bring that back as it was, or start a new campaign with --campaign NAME"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class World:
    """What contract, inventory, command line and program say; no host is asked for it."""

    contract_digest: str
    inventory: Mapping[str, Any]
    kvgate_version: str
    serials: tuple[str, ...]
    firmware: str
    faults: tuple[str, ...]


def world_of(contract: Contract, inventory: Inventory, faults: tuple[str, ...]) -> World:
    return World(
        contract.digest,
        # As a bundle would give it back: canonical JSON rounds.
        json.loads(canonical_json(inventory.model_dump(mode="json"))),
        kvgate.__version__,
        contract.appliance.serials,
        contract.appliance.firmware,
        faults,
    )


def changed_world(before: World, now: World) -> str:
    """What is not as it was, in a few words; empty where nothing changed."""
    if before.contract_digest != now.contract_digest:
        return "the contract changed"
    if before.kvgate_version != now.kvgate_version:
        return f"it was begun with kvgate {before.kvgate_version}, this is {now.kvgate_version}"
    if before.serials != now.serials:
        return "the serial numbers changed"
    if before.firmware != now.firmware:
        return f"the firmware changed from {before.firmware} to {now.firmware}"
    keys = sorted(
        key
        for key in before.inventory.keys() | now.inventory.keys()
        # The folder may be named in another way; what stands in it counts.
        if key != "path" and before.inventory.get(key) != now.inventory.get(key)
    )
    if keys:
        return f"the inventory changed ({', '.join(keys)})"
    if before.faults != now.faults:
        return "other faults are played"
    return ""


def changed_engine(arm: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing that an arm says differently of itself; empty where nothing changed."""
    return _first_change(configuration({}, {arm: before}, ()), configuration({}, {arm: now}, ()))


def changed_host(
    host: str, before: Mapping[str, Any], now: Mapping[str, Any], appliances: tuple[str, ...]
) -> str:
    """What identifies a host and differs between two records of its facts; empty where nothing."""
    return _first_change(
        configuration({host: before}, {}, appliances), configuration({host: now}, {}, appliances)
    )


def _first_change(before: Configuration, now: Configuration) -> str:
    found = changes_between(before, now)
    if not found:
        return ""
    first = found[0]
    return f"the {first.kind} changed ({first.where}: {first.before} -> {first.after})"


def boot_id() -> str | None:
    """This machine's boot, None where the kernel does not say: monotonic times of two boots have
    nothing in common."""
    try:
        return BOOT_ID.read_text().strip() or None
    except OSError:
        return None
