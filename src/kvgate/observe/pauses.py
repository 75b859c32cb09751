"""Pause frames of an Ethernet port by priority, from the driver's own counters (``ethtool -S``).

A lossless fabric (RoCE) pauses single priorities; the kernel counts none of them. Names are the
driver's; which of them are pauses is told by :func:`is_pause`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvgate.observe.host import Reading

PORTS: Final = Path("/sys/class/infiniband")
_DEADLINE_S: Final = 3.0
_LINE: Final = re.compile(r"\s*([A-Za-z0-9_.\[\]-]+):\s*(\d+)\s*$")
_PAUSE: Final = re.compile(r"pause|pfc|(?:priority_\d|flow_control)_xo(?:n|ff)")
_NO_FRAMES: Final = re.compile(r"duration|transition|storm|ena$|cfg|watchdog")
"""Counted beside the frames: how long, how often it changed, and settings."""


def is_pause(name: str) -> bool:
    """Whether a driver's counter counts pause frames.

    mlx5 ``rx_prio3_pause``, bnxt ``rx_pfc_ena_frames_pri3``, ice and i40e ``rx_priority_3_xoff``,
    hns3 ``mac_rx_pfc_pri3_pkt_num``, ixgbe ``rx_flow_control_xoff``, and pauses of the whole port.
    """
    lower = name.lower()
    return _PAUSE.search(lower) is not None and _NO_FRAMES.search(lower) is None


def parse_ethtool(text: str, source: str) -> Iterator[Reading]:
    """The pause counters of ``ethtool -S INTERFACE``; nothing where the driver has none."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None and is_pause(found.group(1)):
            yield source, found.group(1), float(found.group(2))


@dataclass(frozen=True, slots=True)
class Ethtool:
    """Asks the interface behind each RDMA port; ``interfaces`` maps the port's source to it."""

    program: str
    interfaces: Mapping[str, str]
    name: str = "ethtool"

    @classmethod
    def of_host(cls, root: Path = PORTS) -> Ethtool | None:
        """None where there is no such program, or no RDMA port with an interface."""
        program = shutil.which("ethtool") or shutil.which("ethtool", path="/usr/sbin:/sbin")
        found = {
            f"rdma:{port.parent.parent.name}/{port.name}": interface.name
            for port in sorted(root.glob("*/ports/*"))
            for interface in sorted(port.parent.parent.glob("device/net/*"))[:1]
        }
        return cls(program, found) if program and found else None

    def look(self) -> tuple[list[Reading], str | None]:
        """(readings, fault) now; raises nothing."""
        readings: list[Reading] = []
        faults = []
        for source, interface in self.interfaces.items():
            try:
                said = subprocess.run(
                    [self.program, "-S", interface],
                    capture_output=True, text=True, timeout=_DEADLINE_S, check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                faults.append(f"{interface}: {error}"[:200])
                continue
            if said.returncode:
                faults.append(f"{interface}: {(said.stderr or said.stdout).strip()}"[:200])
            else:
                readings.extend(parse_ethtool(said.stdout, source))
        return readings, f"ethtool: {'; '.join(faults)}"[:300] if faults else None
