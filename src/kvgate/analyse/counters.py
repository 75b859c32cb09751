"""What block.json says that the counters grew by; missing stays missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

ENGINE: Final = "engine"
STORE_PREFIX: Final = "store-"
METER_PREFIX: Final = "meter-"
MOST_ENGINES: Final = 64


def engine_names(count: int) -> tuple[str, ...]:
    """What several engines of one host are called where they were observed."""
    return (ENGINE, *(f"{ENGINE}-{number}" for number in range(2, count + 1)))


def engines_of(block: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines that shared the block, one where it does not say."""
    found = block.get("engines", 1)
    plausible = (
        isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= MOST_ENGINES
    )
    if not plausible:
        raise ValueError(f"{found!r} engines")
    return engine_names(found)


def _targets(block: Mapping[str, Any], target: str) -> tuple[str, ...]:
    """The engines together are asked for by the name of the first."""
    return engines_of(block) if target == ENGINE else (target,)


def value(record: Mapping[str, Any] | None, name: str) -> float | None:
    """A finite number of a record, or None where it is missing or no number."""
    found = None if record is None else record.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def grown(block: Mapping[str, Any], target: str, counter: str) -> float | None:
    """Increase of a counter of a target over the block; None where it is missing.

    Of `ENGINE` it is that of all engines together; one that is missing makes it missing.
    """
    return _sum([grown_in(block, name, counter) for name in _targets(block, target)])


def grown_in(block: Mapping[str, Any], target: str, counter: str) -> float | None:
    """The same of one target alone."""
    increase = _view(block, target).get("increase") or {}
    return value(increase.get("delta"), counter)


def _sum(told: Sequence[float | None]) -> float | None:
    known = [number for number in told if number is not None]
    return math.fsum(known) if len(known) == len(told) else None


def energy_j(block: Mapping[str, Any]) -> float | None:
    """Joules that all meters counted over the block; None without meters, or where one of them did
    not tell or was restarted."""
    meters = [name for name in targets(block) if name.startswith(METER_PREFIX)]
    told = [grown(block, name, "energy_j") for name in meters]
    known = [j for j in told if j is not None and j > 0]
    whole = len(known) == len(meters) and all(restarts(block, name) == 0 for name in meters)
    return math.fsum(known) if meters and whole else None


def restarts(block: Mapping[str, Any], target: str) -> int | None:
    """Restarts of a target's process in the block, of all engines together; None where that cannot
    be told of one of them."""
    found = _sum([_restarts_in(block, name) for name in _targets(block, target)])
    return None if found is None else int(found)


def _restarts_in(block: Mapping[str, Any], target: str) -> float | None:
    view = _view(block, target)
    if view.get("before") is None or view.get("after") is None:
        return None
    return value(view.get("increase"), "restarts")


def before(block: Mapping[str, Any], target: str, counter: str) -> float | None:
    """A counter or gauge as it stood before the block, of all engines together."""
    return _sum([value(_view(block, t).get("before"), counter) for t in _targets(block, target)])


def simulates(block: Mapping[str, Any], target: str) -> bool:
    """Whether the target counts its own lateness, as only simulated engines and stores do."""
    view = _view(block, target)
    return any(value(view.get(side), "late_s") is not None for side in ("before", "after"))


def seen_after(block: Mapping[str, Any], target: str) -> bool:
    """Whether the target, every engine of several, answered after the block."""
    return all(_view(block, name).get("after") is not None for name in _targets(block, target))


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
