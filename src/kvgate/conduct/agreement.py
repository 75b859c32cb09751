"""What contract and inventory must agree on before anything runs."""

from __future__ import annotations

from kvgate.contract import Contract
from kvgate.errors import UsageError
from kvgate.inventory import Inventory


def check_agreement(contract: Contract, inventory: Inventory, faults: tuple[str, ...]) -> None:
    """Raises UsageError for the first thing on which contract and inventory disagree."""
    if contract.rehearsal != inventory.rehearsal:
        kinds = ("a rehearsal", "a real acceptance")
        mine, theirs = kinds if contract.rehearsal else kinds[::-1]
        raise UsageError(
            f"the contract {contract.id} is for {mine}, the inventory for {theirs}",
            where=inventory.path,
            remedy="use a contract and an inventory of the same kind",
        )
    if contract.placeholders and not contract.rehearsal:
        raise UsageError(
            f"the contract still holds placeholders: {', '.join(contract.placeholders)}",
            where=f"contract {contract.id}",
            remedy="put in what both parties agreed on; lines marked EXAMPLE are to be set",
        )
    if faults and not inventory.rehearsal:
        raise UsageError(
            "faults can be played in a rehearsal only", where=inventory.path, remedy="drop --fault"
        )
    if inventory.time_scale != 1 and not inventory.rehearsal:
        raise UsageError(
            "kvgate_time_scale must be 1 on real hardware",
            where=inventory.path,
            remedy="remove it from group_vars/all.yml",
        )
    for number in contract.gates:
        for clause in contract.gate(number).clause:
            hosts = getattr(clause, "hosts", None)
            if hosts is not None and not inventory.group(hosts):
                raise UsageError(
                    f"clause {clause.id} speaks of the hosts {hosts!r}, and the inventory has none",
                    where=inventory.path,
                    remedy=f"add the group {hosts}, or correct `hosts` in the contract",
                )
    for name, arm in contract.arms.items():
        if arm.store != "none" and arm.store not in inventory.store_ports:
            raise UsageError(
                f"the arm {name} needs the store {arm.store!r}, which the inventory does not have",
                where=inventory.path,
                remedy="add it to kvgate_store_ports",
            )
    for terms in contract.parallelism.values():
        inventory.ports_of_engines(terms.instances)
