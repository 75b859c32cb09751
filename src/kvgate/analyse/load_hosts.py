"""A block whose load came from several hosts: one timeline, and the share of each. Pure.

``block["load_hosts"]`` maps each client to its share, its client's report and its clock's offset to
the controller at both ends (see :class:`kvgate.load.offsets.ClockOffset`). A block of the local
client alone has no such entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from kvgate.analyse.checks import NS, Block, at_most, ratio
from kvgate.analyse.counters import value
from kvgate.analyse.ragged import Ragged
from kvgate.contract_tables import Validity
from kvgate.verdict import About, Condition

Hosts = Mapping[str, Mapping[str, Any]]

_STAMPS: Final = (
    "intended_ns", "scheduled_ns", "connected_ns", "sent_ns", "first_byte_ns", "first_token_ns",
    "first_text_ns", "last_token_ns", "end_ns",
)  # fmt: skip


def load_hosts_of(block: Block) -> Hosts | None:
    """The hosts of a block; None for a block of the local client."""
    found = block.get("load_hosts")
    if not isinstance(found, Mapping):
        return None
    return {str(host): said if isinstance(said, Mapping) else {} for host, said in found.items()}


def clients_of(block: Block) -> tuple[Mapping[str, Any], ...]:
    """The report of every client process host; one that is missing is empty."""
    hosts = load_hosts_of(block)
    said = [block.get("client")] if hosts is None else [h.get("client") for h in hosts.values()]
    return tuple(report if isinstance(report, Mapping) else {} for report in said)


def largest_cpu_share(block: Block) -> float | None:
    """CPU of one core that the busiest host's client took; None where one does not say."""
    return _largest([ratio(value(c, "cpu_s"), value(c, "wall_s")) for c in clients_of(block)])


def on_one_clock(block: Block, requests: pd.DataFrame) -> pd.DataFrame:
    """The requests with every time on the controller's clock: what was in flight at once is a
    question over all hosts. A host without an offset stays as it is; its condition is broken."""
    hosts = load_hosts_of(block)
    if not hosts or not len(requests):
        return requests
    by_host = {host: offset for host in hosts if (offset := _offset_ns(hosts[host])) is not None}
    ahead = requests["load_host"].map(by_host).fillna(0).astype("int64")
    moved = requests.copy()
    for column in _STAMPS:
        moved[column] = (requests[column].astype("Int64") - ahead).astype(requests[column].dtype)
    stamps = Ragged.of(requests["token_ns"])
    values = stamps.values - np.repeat(ahead.to_numpy(), stamps.lengths)
    moved["token_ns"] = pd.Series(
        np.split(values, np.cumsum(stamps.lengths)[:-1]), index=requests.index, dtype=object
    )
    return moved


def load_host_conditions(
    limits: Validity, block: Block, requests: pd.DataFrame
) -> Iterator[Condition]:
    """That every host did its share, from one start, on a clock that is known."""
    hosts = load_hosts_of(block)
    seen = set(requests["load_host"].unique().tolist()) if len(requests) else set()
    if hosts is None and len(seen) < 2:
        return
    hosts = hosts or {}
    wrong = list(_wrong(hosts, seen, requests))
    yield Condition(
        "load_hosts_whole",
        About.INSTRUMENT,
        not wrong,
        "; ".join(wrong) or f"{len(hosts)} hosts",
        "every load host did its share",
        "text",
        "a load host failed, was not reached or brought too few records: see load_hosts in "
        "block.json, nothing of it speaks about the appliance",
    )
    clients = [_part(said, "client") for said in hosts.values()]
    yield at_most(
        "load_start",
        About.INSTRUMENT,
        _scaled(_largest([value(client, "start_late_ns") for client in clients])),
        limits.load_start_late_s_at_most,
        "s",
        "a load host began after the common start: free it from other work",
    )
    yield at_most(
        "load_clock_offset",
        About.INSTRUMENT,
        _scaled(_largest([_uncertainty_ns(said) for said in hosts.values()])),
        limits.load_clock_offset_s_at_most,
        "s",
        "how far the load hosts' clocks are apart is not known well enough: look for a slow "
        "or lossy path between controller and load host",
    )
    yield at_most(
        "load_clock_drift",
        About.INSTRUMENT,
        _scaled(_largest([_drift_ns(said) for said in hosts.values()])),
        limits.load_clock_drift_s_at_most,
        "s",
        "a load host's clock ran away or was suspended during the block: check its time source",
    )


def _wrong(hosts: Hosts, seen: set[str], requests: pd.DataFrame) -> Iterator[str]:
    counted = Counter(requests["load_host"] if len(requests) else ())
    for host, said in hosts.items():
        fault, state = said.get("fault"), said.get("state")
        wanted, brought = value(said, "requests"), value(said, "records")
        if fault:
            yield f"{host}: {fault}"[:300]
        elif state != "done":
            yield f"{host}: {state or 'no word from its client'}"
        elif wanted is None or not brought == wanted == counted[host]:
            yield f"{host}: {counted[host]} of {wanted} requests"
    for host in sorted(seen - set(hosts)):
        yield f"{host}: requests of a host that no entry names"


def _part(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = said.get(name)
    return found if isinstance(found, Mapping) else {}


def _offsets(said: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    clock = _part(said, "clock")
    return _part(clock, "before"), _part(clock, "after")


def _offset_ns(said: Mapping[str, Any]) -> int | None:
    ends = [value(end, "offset_ns") for end in _offsets(said)]
    known = [int(offset) for offset in ends if offset is not None]
    return sum(known) // len(known) if known else None


def _uncertainty_ns(said: Mapping[str, Any]) -> float | None:
    """The larger of both ends; None where one is missing or its round trips contradict."""
    ends = _offsets(said)
    if any(value(end, "offset_ns") is None or end.get("agreed") is not True for end in ends):
        return None
    return _largest([value(end, "uncertainty_ns") for end in ends])


def _drift_ns(said: Mapping[str, Any]) -> float | None:
    before, after = (value(end, "offset_ns") for end in _offsets(said))
    return None if before is None or after is None else abs(after - before)


def _largest(values: Sequence[float | None]) -> float | None:
    """None where there is none, or one is missing."""
    known = [v for v in values if v is not None]
    return max(known) if known and len(known) == len(values) else None


def _scaled(ns: float | None) -> float | None:
    return None if ns is None else ns * NS
