"""RDMA ports of this host as the kernel counts them, and what they grew by over a block.

All values are counts since boot, so only their growth says anything. Payload counters are in units
of four bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kvgate.observe.host import Reading
from kvgate.observe.pauses import is_pause
from kvgate.observe.rows import Rows

SOURCE: Final = "rdma:"
_WORD_BYTES: Final = 4
_BYTES: Final = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes"}
ERRORS: Final = frozenset({
    "port_rcv_errors", "port_xmit_discards", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_rcv_constraint_errors", "port_xmit_constraint_errors",
    "symbol_error", "link_error_recovery", "link_downed", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "VL15_dropped", "out_of_sequence", "packet_seq_err",
    "local_ack_timeout_err", "rx_icrc_encapsulated", "out_of_buffer", "implied_nak_seq_err",
    "rnr_nak_retry_err", "duplicate_request", "req_transport_retries_exceeded",
})  # fmt: skip
"""Frames lost, damaged, out of order or sent again, in the words of ports and drivers."""
PAUSES: Final = frozenset({"port_xmit_wait", "tx_pause", "rx_pause", "rx_pause_duration",
                           "tx_pause_duration"})  # fmt: skip
"""A port that had to wait: frames, or ticks of the port, whichever the driver counts."""


def read_ports(root: Path = Path("/sys/class/infiniband")) -> Iterator[Reading]:
    """Every counter of every RDMA port, as ``rdma:<device>/<port>``; nothing without a port. A
    counter that cannot be read is left out."""
    for port in sorted(root.glob("*/ports/*")):
        source = f"{SOURCE}{port.parent.parent.name}/{port.name}"
        for path in sorted((*port.glob("counters/*"), *port.glob("hw_counters/*"))):
            try:
                value = int(path.read_text())
            except (OSError, ValueError):
                continue
            if path.name in _BYTES:
                yield source, _BYTES[path.name], value * _WORD_BYTES
            elif path.name in ERRORS or path.name in PAUSES:
                yield source, path.name, value
        yield from _pauses_of_interface(port, source)


def _pauses_of_interface(port: Path, source: str) -> Iterator[Reading]:
    # Global pause frames, where the driver shows them beside the interface's other statistics.
    for path in sorted(port.parent.parent.glob("device/net/*/statistics/*pause*")):
        try:
            yield source, path.name, int(path.read_text())
        except (OSError, ValueError):
            continue


def fabric_of(host: Rows) -> Mapping[str, Any]:
    """``{"ports", "rx_bytes", "errors", "pauses", "by_counter"}`` over the block.

    A sum is None where no port has such a counter, or where one fell (a driver that began anew).
    """
    ports = [source for source in host.sources() if source.startswith(SOURCE)]
    grown: dict[str, float | None] = {}
    for source in ports:
        for name in host.names(source):
            series = host.series(source, name)
            growth = series[-1][1] - series[0][1] if len(series) > 1 else None
            grown[f"{source}:{name}"] = (
                growth if growth is not None and 0 <= growth < math.inf else None
            )

    def total(wanted: Callable[[str], bool]) -> float | None:
        chosen = [v for key, v in grown.items() if wanted(key.rpartition(":")[2])]
        known = [v for v in chosen if v is not None]
        grew = sum(known) if known and len(known) == len(chosen) else math.inf
        return grew if math.isfinite(grew) else None

    return {
        "ports": len(ports),
        "rx_bytes": total("rx_bytes".__eq__),
        "errors": total(ERRORS.__contains__),
        "pauses": total(lambda name: name in PAUSES or is_pause(name)),
        "by_counter": {key: v for key, v in sorted(grown.items()) if v},
    }
