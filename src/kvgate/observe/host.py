"""What the Linux kernel says of this host and of chosen processes, read from /proc.

Names carry their unit. Those ending in ``_s`` or ``_bytes`` of CPU, network, disk and processes
are counts since boot or since the process started; memory is a state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

Reading = tuple[str, str, float]
"""(source, name, value); sources are ``host``, ``net:<interface>``, ``disk:<device>``,
``pid:<number>``."""

_SECTOR_BYTES: Final = 512  # the kernel's unit in diskstats, whatever the device's own is
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MEMORY: Final = {
    "MemTotal": "memory_total_bytes",
    "MemAvailable": "memory_available_bytes",
    "Cached": "page_cache_bytes",
    "Dirty": "dirty_bytes",
    "SwapFree": "swap_free_bytes",
}
# Columns of /proc/net/dev after the interface's name.
_NET: Final = {
    0: "rx_bytes",
    2: "rx_errors",
    3: "rx_dropped",
    8: "tx_bytes",
    10: "tx_errors",
    11: "tx_dropped",
}
_IO: Final = frozenset({"read_bytes", "write_bytes", "rchar", "wchar"})


def read_host(
    pids: Sequence[int] = (), *, proc: Path = Path("/proc"), sys_block: Path = Path("/sys/block")
) -> tuple[list[Reading], list[str]]:
    """(readings, faults) now. What the kernel does not offer, a process that has gone and one that
    may not be read give no reading and one line in ``faults``; nothing is raised."""
    readings: list[Reading] = []
    faults: list[str] = []
    parts: list[tuple[str, Callable[[], Iterator[Reading]]]] = [
        ("cpu", partial(_cpu, proc)),
        ("memory", partial(_memory, proc)),
        ("network", partial(_network, proc)),
        ("disks", partial(_disks, proc, sys_block)),
    ]
    parts += [(f"pid:{pid}", partial(_process, proc, pid)) for pid in pids]
    for part, read in parts:
        try:
            readings.extend(read())
        except (OSError, ValueError, IndexError) as error:
            faults.append(f"{part}: {error}"[:200])
    return readings, faults


def _cpu(proc: Path) -> Iterator[Reading]:
    with (proc / "stat").open() as stream:
        fields = [int(word) for word in stream.readline().split()[1:9]]
    # user nice system idle iowait irq softirq steal; guest time is inside user already
    idle = fields[3] + fields[4]
    yield "host", "cpu_busy_s", (sum(fields) - idle) / _TICKS_PER_S
    yield "host", "cpu_total_s", sum(fields) / _TICKS_PER_S
    yield "host", "cpu_steal_s", fields[7] / _TICKS_PER_S


def _memory(proc: Path) -> Iterator[Reading]:
    for line in (proc / "meminfo").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key in _MEMORY:
            yield "host", _MEMORY[key], int(rest.split()[0]) * 1024


def _network(proc: Path) -> Iterator[Reading]:
    for line in (proc / "net" / "dev").read_text().splitlines()[2:]:
        interface, _, rest = line.partition(":")
        fields = rest.split()
        for column, name in _NET.items():
            yield f"net:{interface.strip()}", name, int(fields[column])


def _disks(proc: Path, sys_block: Path) -> Iterator[Reading]:
    for line in (proc / "diskstats").read_text().splitlines():
        fields = line.split()
        device = fields[2]
        # Partitions repeat what their device counts; loop and RAM devices what others do.
        if device.startswith(("loop", "ram")) or not (sys_block / device).exists():
            continue
        yield f"disk:{device}", "read_bytes", int(fields[5]) * _SECTOR_BYTES
        yield f"disk:{device}", "written_bytes", int(fields[9]) * _SECTOR_BYTES


def _process(proc: Path, pid: int) -> Iterator[Reading]:
    source = f"pid:{pid}"
    folder = proc / str(pid)
    # The command may hold spaces and brackets; the fields start after its last bracket.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    yield source, "cpu_s", (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    yield source, "threads", int(fields[17])
    yield source, "start_ticks", int(fields[19])
    yield source, "resident_bytes", int(fields[21]) * _PAGE_BYTES
    yield source, "descriptors", len(os.listdir(folder / "fd"))  # noqa: PTH208 - names alone
    for line in (folder / "io").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in _IO:
            yield source, key, int(value)
