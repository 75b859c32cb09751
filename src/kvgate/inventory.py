"""The inventory: where the arms live. An Ansible inventory with a few variables of ours.

The contract says what is compared; the inventory says on which hosts, behind which role.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvgate.contract_tables import Argument
from kvgate.errors import UsageError

Port = Annotated[int, Field(ge=1, le=65535)]
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")]
"""A host name or an IPv4 address."""
_HOST: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:@\[\]-]{0,199}")
"""A host of the inventory: it names a file of the evidence and a line of the report."""


MeterName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
MeterUrl = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._/-]*)?$")]

SIMULATED_ROLE: Final = "rehearsal_engine"
"""The Ansible role whose engine and stores are simulated."""


class Inventory(BaseModel):
    """The variables that kvgate reads, with the hosts of each group.

    ``engine_ports`` are those of several engines that share a host, ``engine_port`` first.
    ``time_scale`` is campaign seconds per second of this inventory: 1 on real hardware, more only
    in a rehearsal. ``store_bytes`` says who counts the bytes that a restore moved: the store, the
    kernel for its processes, or the RDMA ports of this host. ``stores_stay_up``: every store's page
    answers in every arm; where the role stops the stores of other arms it is False, and silence
    then means that nothing can have touched them. ``meters`` are pages with a counter of joules
    (name -> URL): information beside a verdict, never a condition.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    path: str
    hosts: Mapping[str, tuple[str, ...]]
    local_hosts: tuple[str, ...]
    rehearsal: bool
    contract: Argument
    engine_role: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    engine_host: Address
    engine_port: Port
    engine_ports: tuple[Port, ...] = ()
    store_ports: Mapping[str, Port] = {}
    store_metrics: Literal["kvstore", "lmcache", "mooncake"] = "lmcache"
    store_bytes: Literal["store", "process", "rdma"] = "process"
    stores_stay_up: bool = True
    time_scale: Annotated[float, Field(ge=1)] = 1.0
    engine_args: tuple[Argument, ...] = ()
    store_args: tuple[Argument, ...] = ()
    prime_args: tuple[Argument, ...] = ()
    waits_s: Annotated[float, Field(gt=0)] = 120.0
    meters: Mapping[MeterName, MeterUrl] = {}

    @model_validator(mode="after")
    def _distinct_ports(self) -> Inventory:
        if self.engine_ports and self.engine_ports[0] != self.engine_port:
            raise ValueError("engine_ports must begin with engine_port")
        ports = [*(self.engine_ports or (self.engine_port,)), *self.store_ports.values()]
        if len(set(ports)) != len(ports):
            raise ValueError("engine_port(s) and store_ports must be different ports of one host")
        return self

    @model_validator(mode="after")
    def _simulated_only_in_a_rehearsal(self) -> Inventory:
        simulated = self.engine_role == SIMULATED_ROLE or self.store_metrics == "kvstore"
        if simulated and not self.rehearsal:
            raise ValueError(
                "a simulated engine or store is a rehearsal: set kvgate_rehearsal to true, or "
                "name a real kvgate_engine_role and kvgate_store_metrics"
            )
        return self

    @property
    def engine_url(self) -> str:
        return f"http://{self.engine_host}:{self.engine_port}"

    def ports_of_engines(self, instances: int) -> tuple[int, ...]:
        """The ports of so many engines on the host, the first one's first.

        Raises UsageError where the inventory names fewer.
        """
        ports = self.engine_ports or (self.engine_port,)
        if len(ports) < instances:
            raise UsageError(
                f"{instances} engines are to share the host, the inventory has ports for "
                f"{len(ports)}",
                where=self.path,
                remedy=f"name {instances} in kvgate_engine_ports, kvgate_engine_port first",
            )
        return ports[:instances]

    def engine_urls(self, instances: int) -> tuple[str, ...]:
        """Base URLs of so many engines; raises as `ports_of_engines`."""
        ports = self.ports_of_engines(instances)
        return tuple(f"http://{self.engine_host}:{port}" for port in ports)

    def store_url(self, store: str) -> str | None:
        port = self.store_ports.get(store)
        return None if port is None else f"http://{self.engine_host}:{port}"

    def group(self, name: str) -> tuple[str, ...]:
        return self.hosts.get(name, ())

    @property
    def all_hosts(self) -> tuple[str, ...]:
        return tuple(sorted({host for hosts in self.hosts.values() for host in hosts}))


REQUIRED_GROUPS = ("engines", "appliances", "load_clients")
_PREFIX = "kvgate_"
PER_HOST = frozenset({"roce_interface", "agent_python"})
"""Variables that only playbooks read and that may differ from host to host."""


def inventory_from(listing: Mapping[str, Any], *, path: str) -> Inventory:
    """Inventory from what ``ansible-inventory --list`` prints.

    Raises UsageError when a group is empty, a variable is unknown, missing or of the wrong kind, or
    when hosts disagree about one of our variables.
    """
    hostvars: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    groups = {
        name: tuple(sorted(_hosts_of(listing, name)))
        for name in listing
        if name not in {"_meta", "all", "ungrouped"}
    }
    for group in REQUIRED_GROUPS:
        if not groups.get(group):
            raise UsageError(
                f"the group {group!r} has no host",
                where=path,
                remedy=f"add at least one host to {group}; inventories/rehearsal shows how",
            )
    local = tuple(
        sorted(h for h, values in hostvars.items() if values.get("ansible_connection") == "local")
    )
    variables: dict[str, Any] = {}
    for host, values in hostvars.items():
        for key, value in values.items():
            if not key.startswith(_PREFIX):
                continue
            name = key.removeprefix(_PREFIX)
            if name in PER_HOST:
                continue
            # By their text: a NaN differs from itself.
            if name in variables and repr(variables[name]) != repr(value):
                raise UsageError(
                    f"{key} differs between hosts ({host} says {value!r})",
                    where=path,
                    remedy="set it once in group_vars/all.yml",
                )
            variables[name] = value
    for host in sorted({host for hosts in groups.values() for host in hosts}):
        if not _HOST.fullmatch(host):
            raise UsageError(
                f"the host name {host[:100]!r} is not usable",
                where=path,
                remedy="use letters, digits, '.', '_' and '-'; its address goes to ansible_host",
            )
    try:
        return Inventory.model_validate_json(
            json.dumps({**variables, "path": path, "hosts": groups, "local_hosts": local})
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        # A rule that spans variables stands at none of them.
        key = _PREFIX + (".".join(str(p) for p in problem["loc"]) or "*_port(s)")
        what = {"extra_forbidden": "unknown variable", "missing": "missing variable"}.get(
            problem["type"], problem["msg"].removeprefix("Value error, ")
        )
        raise UsageError(
            f"{key}: {what}", where=path, remedy="correct group_vars/all.yml of the inventory"
        ) from error


def _hosts_of(listing: Mapping[str, Any], group: str) -> set[str]:
    entry: Mapping[str, Any] = listing.get(group, {})
    hosts = set(entry.get("hosts", ()))
    for child in entry.get("children", ()):
        hosts |= _hosts_of(listing, child)
    return hosts
