"""What the vendors' own tools say of accelerators: power, use, memory, temperature, throttling.

Names changed over the versions of drivers and tools; each figure has its spellings, best first, and
the first one that holds a number is taken. ``N/A`` is missing and never 0.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from kvgate.observe.host import Reading

TOOL_DEADLINE_S: Final = 5.0
_MIB: Final = 1024 * 1024
"""What these tools print as MB or MiB is 1024 x 1024 bytes."""

Parse = Callable[[str], Iterator[Reading]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A program and what its output means; ``asks`` are tried in turn until one is understood."""

    name: str
    asks: tuple[tuple[str, ...], ...]
    parse: Parse

    def look(self) -> tuple[list[Reading], str | None]:
        """(readings, fault) now; raises nothing."""
        fault = "no answer"
        for arguments in self.asks:
            try:
                said = subprocess.run(
                    [self.name, *arguments],
                    capture_output=True,
                    text=True,
                    timeout=TOOL_DEADLINE_S,
                    check=False,
                )
                readings = list(self.parse(said.stdout)) if said.returncode == 0 else []
            except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
                fault = f"{type(error).__name__}: {error}"[:200]
                continue
            if readings:
                return readings, None
            fault = (said.stderr or said.stdout or fault).strip()[:200]
        return [], f"{self.name}: {fault}"


def installed() -> tuple[Tool, ...]:
    """The tools that this host has; of two for the same accelerators the newer one."""
    found = [tool for tool in TOOLS if shutil.which(tool.name)]
    names = {tool.name for tool in found}
    return tuple(t for t in found if not (t.name == "rocm-smi" and "amd-smi" in names))


def number(text: object) -> float | None:
    """A figure with or without its unit, as a number; None for ``N/A`` and its like."""
    if isinstance(text, Mapping):
        return number(text.get("value"))
    if isinstance(text, bool) or text is None:
        return None
    found = re.match(r"\s*(-?\d+(?:\.\d+)?)", str(text))
    return None if found is None else float(found.group(1))


def _first(record: Mapping[str, Any], *names: str) -> float | None:
    return next((n for name in names if (n := number(record.get(name))) is not None), None)


def _rows(source: str, figures: Mapping[str, float | None]) -> Iterator[Reading]:
    yield from ((source, name, value) for name, value in figures.items() if value is not None)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _bytes(mib: float | None) -> float | None:
    return None if mib is None else mib * _MIB


_SLOWED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""Hardware slowdown, software and hardware thermal slowdown, power brake. Idle clocks, a setting of
the clocks and the power cap that an accelerator is sold with are no fault."""


def parse_nvidia(text: str) -> Iterator[Reading]:
    """``nvidia-smi --query-gpu=... --format=csv``: a head with units, one line an accelerator."""
    lines = list(csv.reader(text.splitlines(), skipinitialspace=True))
    if not lines:
        return
    head = [cell.split(" [")[0].strip() for cell in lines[0]]
    for cells in lines[1:]:
        record = dict(zip(head, cells, strict=False))
        index = number(record.get("index"))
        if index is None:
            continue
        mask = record.get("clocks_event_reasons.active") or record.get(
            "clocks_throttle_reasons.active"
        )
        known = mask is not None and re.fullmatch(r"\s*0x[0-9a-fA-F]+\s*", mask) is not None
        yield from _rows(
            f"accelerator:{index:.0f}",
            {
                "power_w": _first(record, "power.draw.average", "power.draw.instant", "power.draw"),
                "used_share": _share(_first(record, "utilization.gpu")),
                "memory_used_bytes": _bytes(_first(record, "memory.used")),
                "temperature_c": _first(record, "temperature.gpu"),
                "throttled": float(bool(int(mask, 16) & _SLOWED)) if known and mask else None,
            },
        )


def parse_amd(text: str) -> Iterator[Reading]:
    """``amd-smi metric --json``: a list, in newer versions below ``gpu_data``."""
    told = json.loads(text)
    records = told.get("gpu_data") if isinstance(told, Mapping) else told
    if not isinstance(records, Sequence):
        return
    for record in records:
        power, heat, memory, usage = (
            part if isinstance(part := record.get(name), Mapping) else {}
            for name in ("power", "temperature", "mem_usage", "usage")
        )
        status = str(power.get("throttle_status", "N/A")).upper()
        yield from _rows(
            f"accelerator:{int(record['gpu'])}",
            {
                "power_w": _first(power, "socket_power", "average_socket_power", "power_usage"),
                "used_share": _share(_first(usage, "gfx_activity", "gfx_usage")),
                "memory_used_bytes": _bytes(_first(memory, "used_vram")),
                "temperature_c": _first(heat, "hotspot", "junction", "edge"),
                "throttled": {"THROTTLED": 1.0, "UNTHROTTLED": 0.0}.get(status),
            },
        )


def parse_rocm(text: str) -> Iterator[Reading]:
    """``rocm-smi --json``: one object a card, figures as text below spelled-out names. It does not
    say whether a card is throttled."""
    for card, record in json.loads(text).items():
        index = re.fullmatch(r"card(\d+)", card)
        if index is None or not isinstance(record, Mapping):
            continue
        yield from _rows(
            f"accelerator:{index.group(1)}",
            {
                "power_w": _first(
                    record,
                    "Current Socket Graphics Package Power (W)",
                    "Average Graphics Package Power (W)",
                ),
                "used_share": _share(_first(record, "GPU use (%)")),
                "memory_used_bytes": _first(record, "VRAM Total Used Memory (B)"),
                "temperature_c": _first(
                    record, "Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"
                ),
            },
        )


def parse_npu(text: str) -> Iterator[Reading]:
    """``npu-smi info``: a table with two lines a chip; no throttling in it."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.strip().startswith("|")
    ]
    for upper, lower in pairwise(lines):
        card = re.match(r"(\d+)\s+\S+", upper[0])
        if card is None or len(upper) != 3 or len(lower) != 3:
            continue
        # The bus address tells the second line of a chip from the table of processes below.
        if re.match(r"[0-9A-Fa-f]{4}:", lower[1]) is None:
            continue
        power, heat = (*upper[2].split(), "", "")[:2]
        memory = re.findall(r"(\d+)\s*/\s*\d+", lower[2])
        yield from _rows(
            f"accelerator:{card.group(1)}",
            {
                "power_w": number(power),
                "temperature_c": number(heat),
                "used_share": _share(number(lower[2])),
                "memory_used_bytes": _bytes(number(memory[-1])) if memory else None,
            },
        )


_NVIDIA: Final = "index,utilization.gpu,memory.used,temperature.gpu"

TOOLS: Final = (
    # One unknown field fails the whole question, so older spellings are questions of their own.
    Tool(
        "nvidia-smi",
        tuple(
            (f"--query-gpu={_NVIDIA},{fields}", "--format=csv")
            for fields in (
                "power.draw.average,power.draw.instant,clocks_event_reasons.active",
                "power.draw,clocks_event_reasons.active",
                "power.draw,clocks_throttle_reasons.active",
            )
        ),
        parse_nvidia,
    ),
    Tool("amd-smi", (("metric", "--json"),), parse_amd),
    Tool(
        "rocm-smi",
        (("--showpower", "--showuse", "--showmeminfo", "vram", "--showtemp", "--json"),),
        parse_rocm,
    ),
    Tool("npu-smi", (("info",),), parse_npu),
)
