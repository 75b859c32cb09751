"""Whether processors or accelerators of this host were slowed down during a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kvgate.observe.host import Reading
from kvgate.observe.rows import Rows

_EVENTS: Final = "cpu_throttle_events"


def read_cpu_throttling(
    cpus: Path = Path("/sys/devices/system/cpu"), cgroup: Path = Path("/sys/fs/cgroup")
) -> Iterator[Reading]:
    """``cpu_throttle_events``: thermal events of all cores since boot, and periods in which our
    control group was out of its share; nothing where the kernel counts neither."""
    counts = []
    for path in cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        try:
            counts.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    try:
        for line in (cgroup / "cpu.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "nr_throttled":
                counts.append(int(value))
    except (OSError, ValueError):
        pass
    if counts:
        yield "host", _EVENTS, sum(counts)


def throttling_of(host: Rows) -> Mapping[str, Any]:
    """Over the block: ``looks, throttled_looks, share, accelerators, accelerators_told``.

    A look is one value of one accelerator, or one interval of the processors' count of events; it
    is throttled where the tool says so, or where the count grew. ``share`` is None without a look.
    ``accelerators_told`` are those of which a tool said whether they are throttled: not every tool
    does, and processors that were not slowed down say nothing of them.
    """
    accelerators = {s for s in host.sources() if s.startswith("accelerator:")}
    each = {source: [v for _, v in host.series(source, "throttled")] for source in accelerators}
    values = [value for told in each.values() for value in told]
    events = [value for _, value in host.series("host", _EVENTS)]
    looks = len(values) + max(0, len(events) - 1)
    slow = sum(1 for v in values if v) + sum(1 for a, b in pairwise(events) if b != a)
    return {
        "looks": looks,
        "throttled_looks": slow,
        "share": slow / looks if looks else None,
        "accelerators": len(accelerators),
        "accelerators_told": sum(1 for told in each.values() if told),
    }
