"""The setup of a rehearsal: what the simulated store promises, how far away it is, and the proof.

Distances are milliseconds of campaign time: a store at time scale 60 answers a delay of 600 ms
after 10 real ones, and a round trip that is measured here is scaled back.
"""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kvgate.errors import CannotMeasure, UsageError
from kvgate.rehearsal.running import HOST, fetch

ROUND_TRIPS: Final = 7
"""Their least is the way; the rest is a busy machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the play asks for: a delay (ms of campaign time), whether it is to be measured, and the
    store's settings."""

    delay_ms: float = 0.0
    measure: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def wanted_from(text: str) -> Wanted:
    """From the play's JSON; raises UsageError where it is none."""
    try:
        said = json.loads(text)
        settings = {str(k): str(v) for k, v in (said.get("settings") or {}).items()}
        return Wanted(float(said.get("delay_ms", 0)), bool(said.get("measure")), settings)
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"no setup: {error}", where=text[:80], remedy='write {"delay_ms": 0, "settings": {}}'
        ) from error


def arrange(store_port: int, wanted: Wanted) -> dict[str, Any]:
    """Set the store's promise and its distance; what it tells of them and what was measured.

    Raises CannotMeasure where the store does not take a setting.
    """
    base = f"http://{HOST}:{store_port}"
    told: dict[str, Any] = {}
    # What an earlier setup left is gone first: the plain way is measured without a delay.
    _set(base, {**wanted.settings, "delay_ms": "0"})
    if wanted.measure:
        told["round_trip_plain_ms"] = _round_trip_ms(base)
    if wanted.delay_ms:
        _set(base, {**wanted.settings, "delay_ms": str(wanted.delay_ms)})
    if wanted.measure:
        told["round_trip_ms"] = _round_trip_ms(base)
    kept = json.loads(fetch(f"{base}/v1/settings")[0])
    return {**told, "strategy": {name: str(value) for name, value in kept.items()}}


def parallelism(engine_ports: Sequence[int]) -> list[dict[str, Any]]:
    """What every engine of the host tells of how it shares it."""
    found = []
    for port in engine_ports:
        said = json.loads(fetch(f"http://{HOST}:{port}/server_info")[0])
        size = said["parallel_config"]["tensor_parallel_size"]
        found.append({"port": port, "tensor_parallel": size, "simulated": True})
    return found


def _set(base: str, settings: Mapping[str, str]) -> None:
    try:
        fetch(f"{base}/v1/settings", method="POST", body=json.dumps(settings).encode())
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:200]
        raise CannotMeasure(
            f"the simulated store does not take these settings: {said}", where=base
        ) from error


def _round_trip_ms(base: str) -> float:
    scale = float(json.loads(fetch(f"{base}/v1/device")[0])["time_scale"])
    took_s = []
    for _ in range(ROUND_TRIPS):
        began_s = time.monotonic()
        fetch(f"{base}/v1/ping")
        took_s.append(time.monotonic() - began_s)
    return round(min(took_s) * scale * 1e3, 3)
