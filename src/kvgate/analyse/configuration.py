"""What was under test, from what hosts and roles told: serials, firmware, drivers, engine, tuning.

Pure. What nobody told is not there; it is never taken for unchanged or for changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Told = Mapping[str, Any]
Configuration = dict[str, dict[str, str]]

_DEVICE: Final[Mapping[str, str]] = {"serials": "serial", "firmware": "firmware"}
_DMI: Final[Mapping[str, str]] = {"serials": "dmi_serial", "firmware": "dmi_bios"}
_ENGINE: Final = (
    "engine", "engine_version", "store_version", "version", "packages", "model", "models",
    "model_digest", "connector",
)  # fmt: skip
_TUNING: Final = ("engine_args", "store_args", "command_line")
_PASSING: Final = frozenset({"created", "arm", "simulated", "scenario", "time_scale"})
"""Keys inside these that change with every start or belong to the simulation."""


def configuration(
    facts: Mapping[str, Told], environment: Mapping[str, Any], appliances: Sequence[str]
) -> Configuration:
    """Kind of change -> place -> what it said.

    ``facts`` by host as in ``facts/*.json``; ``environment`` by arm as in ``plan.json``, with its
    setup where it has one ("appliance/tp8");
    ``appliances`` are the hosts whose DMI tables speak for the appliance.
    """
    found: Configuration = {}
    for kind, place, said in (*_of_hosts(facts, appliances), *_of_arms(environment)):
        text = " ".join(said.split())
        if text:
            found.setdefault(kind, {})[place] = text
    return found


def _of_hosts(
    facts: Mapping[str, Told], appliances: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    for host in sorted(facts):
        said = facts[host].get("host")
        if not isinstance(said, Mapping):
            continue
        files = said.get("files")
        files = files if isinstance(files, Mapping) else {}
        yield "driver", f"{host} kernel", str(files.get("kernel") or "")
        drivers = said.get("drivers")
        for name, version in sorted((drivers if isinstance(drivers, Mapping) else {}).items()):
            yield "driver", f"{host} {name}", str(version or "")
        device = facts[host].get("device")
        if isinstance(device, Mapping):
            for kind, key in _DEVICE.items():
                yield kind, f"{host} device", str(device.get(key) or "")
        elif host in appliances:
            for kind, key in _DMI.items():
                yield kind, f"{host} DMI", str(files.get(key) or "")


def _of_arms(environment: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key in sorted(environment):
        info = environment[key]
        if not isinstance(info, Mapping):
            continue
        yield from _of_arm(key, info)
        arm, _, setup = key.partition("/")
        if setup and arm not in environment:
            # Whatever the setup, it is the same device and the same build: so an earlier gate that
            # brought the arm up in another setup can be compared with.
            yield from (e for e in _of_arm(arm, info) if e[0] != "tuning")


def _of_arm(arm: str, info: Told) -> Iterator[tuple[str, str, str]]:
    device = info.get("device")
    if isinstance(device, Mapping):
        for kind, key in _DEVICE.items():
            yield kind, f"{arm} device", str(device.get(key) or "")
    for kind, keys in (("engine", _ENGINE), ("tuning", _TUNING)):
        for key in keys:
            for name, text in _flat(key, info.get(key)):
                yield kind, f"{arm} {name}", text


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            if key not in _PASSING:
                yield from _flat(f"{name}.{key}", value[key])
    elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        for number, item in enumerate(value):
            yield from _flat(f"{name}.{number}", item)
    elif isinstance(value, list):
        yield name, " ".join(str(v) for v in value)
    elif value is not None:
        yield name, str(value)
