"""What block.json says that the counters grew by; missing stays missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

ENGINE: Final = "engine"
STORE_PREFIX: Final = "store-"
METER_PREFIX: Final = "meter-"


def value(record: Mapping[str, Any] | None, name: str) -> float | None:
    """A finite number of a record, or None where it is missing or no number."""
    found = None if record is None else record.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def grown(block: Mapping[str, Any], target: str, counter: str) -> float | None:
    """Increase of a counter of a target over the block; None where it is missing."""
    increase = _view(block, target).get("increase") or {}
    return value(increase.get("delta"), counter)


def energy_j(block: Mapping[str, Any]) -> float | None:
    """Joules that all meters counted over the block; None without meters, or where one of them did
    not tell or was restarted."""
    meters = [name for name in targets(block) if name.startswith(METER_PREFIX)]
    told = [grown(block, name, "energy_j") for name in meters]
    known = [j for j in told if j is not None and j > 0]
    whole = len(known) == len(meters) and all(restarts(block, name) == 0 for name in meters)
    return math.fsum(known) if meters and whole else None


def restarts(block: Mapping[str, Any], target: str) -> int | None:
    """Restarts of a target's process in the block; None where that cannot be told."""
    view = _view(block, target)
    if view.get("before") is None or view.get("after") is None:
        return None
    found = value(view.get("increase"), "restarts")
    return None if found is None else int(found)


def before(block: Mapping[str, Any], target: str, counter: str) -> float | None:
    """A counter or gauge as it stood before the block."""
    return value(_view(block, target).get("before"), counter)


def simulates(block: Mapping[str, Any], target: str) -> bool:
    """Whether the target counts its own lateness, as only simulated engines and stores do."""
    view = _view(block, target)
    return any(value(view.get(side), "late_s") is not None for side in ("before", "after"))


def seen(block: Mapping[str, Any], target: str) -> bool:
    """Whether the target answered at all, before or after the block."""
    view = _view(block, target)
    return view.get("before") is not None or view.get("after") is not None


def _view(block: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = targets(block).get(target) or {}
    return found


def targets(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engines and stores that were observed in the block, by name."""
    observation: Mapping[str, Any] = block.get("observation") or {}
    found: Mapping[str, Any] = observation.get("targets") or {}
    return found
