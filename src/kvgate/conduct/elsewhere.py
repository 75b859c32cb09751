"""The hosts that take part in a block beside this machine: load clients and remote engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from kvgate.conduct.load_hosts import LoadHosts
from kvgate.conduct.remote_hosts import HostWatches
from kvgate.contract_tables import Validity
from kvgate.drive.agents import Agents
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.inventory import Inventory
from kvgate.observe.observation import Observation
from kvgate.observe.rows import Rows


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """``load`` is None where this machine's client drives alone; ``groups`` maps each host that is
    observed to its group of the inventory."""

    load: LoadHosts | None = None
    agents: Agents | None = None
    groups: Mapping[str, str] = field(default_factory=dict)


def is_driven_here(inventory: Inventory) -> bool:
    """Whether the only load client is this machine's."""
    clients = inventory.group("load_clients")
    return len(clients) == 1 and clients[0] in inventory.local_hosts


def observed_hosts(inventory: Inventory) -> Mapping[str, str]:
    """Hosts whose telemetry must come from elsewhere; one that is both counts as an engine."""
    return {
        host: group
        for group in ("load_clients", "engines")
        for host in inventory.group(group)
        if host not in inventory.local_hosts
    }


def prepare(
    inventory: Inventory,
    limits: Validity,
    playbooks: Playbooks,
    run_dir: Path,
    on_play: Callable[[PlayResult], None],
) -> Elsewhere:
    """One play where a host is elsewhere, none otherwise.

    Raises CannotMeasure naming a host that is unreachable or lacks what it needs.
    """
    groups = observed_hosts(inventory)
    alone = is_driven_here(inventory)
    if alone and not groups:
        return Elsewhere()
    agents = Agents(playbooks, inventory.local_hosts, run_dir, on_play)
    clients = inventory.group("load_clients")
    agents.prepare([*groups, *(() if alone else clients)])
    load = None if alone else LoadHosts(agents, clients, limits, run_dir / "work")
    return Elsewhere(load, agents, groups)


def group_here(inventory: Inventory) -> str | None:
    """What this machine is in a block; None where it only conducts."""
    here = set(inventory.local_hosts)
    for group in ("engines", "load_clients"):
        if here & set(inventory.group(group)):
            return group
    return None


class Watched:
    """Telemetry of the hosts elsewhere during one block; a context that ends by itself."""

    def __init__(
        self, inventory: Inventory, elsewhere: Elsewhere, pids: Sequence[int], period_s: float
    ) -> None:
        """``pids``: the store's processes, on the first engine host, which published them."""
        first = inventory.group("engines")[0]
        self._engines = inventory.group("engines")
        self._local = inventory.local_hosts
        self.local_pids = tuple(pids) if first in inventory.local_hosts else ()
        self._watches: HostWatches | None = None
        if elsewhere.agents is not None and elsewhere.groups:
            self._watches = HostWatches(
                elsewhere.agents, elsewhere.groups, period_s, {first: tuple(pids)}
            )
        self.rows: Mapping[str, Rows] = {}

    def __enter__(self) -> Self:
        if self._watches is not None:
            self._watches.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._watches is not None:
            self._watches.__exit__()
            self.rows = self._watches.rows()

    def engine_rows(self, observation: Observation) -> list[Rows]:
        """What the kernel of each engine host says, in the inventory's order; all that are this
        machine are one."""
        found = [observation.host if h in self._local else self.rows[h] for h in self._engines]
        return list({id(rows): rows for rows in found}.values())

    def to_json(self) -> dict[str, Any]:
        """``hosts`` of ``block.json``; nothing where every host is this machine."""
        return {} if self._watches is None else {"hosts": dict(self._watches.to_json())}


def grown_together(
    hosts: Sequence[Rows], name: str, sources_of: Callable[[Rows], Sequence[str]]
) -> float | None:
    """The growth of one counter over the sources wanted of each host, on all hosts together.

    None without any, or where one is missing or fell: a driver that began anew.
    """
    total = 0.0
    for rows in hosts:
        sources = sources_of(rows)
        if not sources:
            return None
        for source in sources:
            series = rows.series(source, name)
            if len(series) < 2 or any(b[1] < a[1] for a, b in pairwise(series)):
                return None
            total += series[-1][1] - series[0][1]
    return total if hosts else None
