"""Was a block measured in the setup that its cell names, and did all its engines share the load?

Pure. What the role told of the running setup stands in ``block.json`` under ``setup``; what the
contract defines for the cell's names is compared with it, and nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvgate.analyse.checks import Block, at_least, ratio
from kvgate.analyse.counters import engines_of, grown_in, value
from kvgate.cells import Cell
from kvgate.contract import Contract
from kvgate.verdict import About, Condition

Compared = tuple[bool | None, str, str]
"""Whether it is as planned (None: nobody told), what was told, what is planned."""


def setup_conditions(contract: Contract, block: Block) -> Iterator[Condition]:
    """Whether the running setup is the planned one, where the contract defines the cell's setup."""
    cell = Cell(**block["cell"])
    said = block.get("setup")
    told: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    compared = list(_parallelism(contract, block, cell, told))
    if contract.arms[str(block["arm"])].store != "none":
        # An arm without a store has neither a promise of its nor a way to it.
        compared += [*_strategy(contract, cell, told), *_distance(contract, cell, told)]
    if not compared:
        return
    answers = [ok for ok, _, _ in compared]
    yield Condition(
        "setup_as_planned",
        About.ENVIRONMENT,
        False if False in answers else None if None in answers else True,
        "; ".join(found for _, found, _ in compared),
        "; ".join(wanted for _, _, wanted in compared),
        "text",
        "engines, store and network were not brought up as the contract names it: see the role",
    )
    instances = contract.instances(cell.parallelism)
    if instances > 1:
        served = [grown_in(block, name, "prompt_tokens") for name in engines_of(block)]
        known = [tokens for tokens in served if tokens is not None]
        whole = len(known) == instances
        yield at_least(
            "engines_share_load",
            About.ENVIRONMENT,
            ratio(min(known), sum(known) / instances) if whole else None,
            contract.validity.engine_share_at_least,
            "1",
            "one engine of the host had less to do than the others: check its port and its log",
        )


def _parallelism(
    contract: Contract, block: Block, cell: Cell, told: Mapping[str, Any]
) -> Iterator[Compared]:
    terms = contract.parallelism.get(cell.parallelism)
    if terms is None:
        return
    said = told.get("engines")
    engines = [e for e in said if isinstance(e, Mapping)] if isinstance(said, list) else None
    count = None if engines is None else len(engines)
    served = len(engines_of(block))
    yield (
        None if count is None else count == served == terms.instances,
        _engines(count if count != terms.instances else served),
        _engines(terms.instances),
    )
    if terms.tensor_parallel is None:
        return
    sizes = [value(e, "tensor_parallel") for e in engines or [{}]]
    yield (
        None if None in sizes else all(size == terms.tensor_parallel for size in sizes),
        "TP " + "+".join("?" if size is None else f"{size:.0f}" for size in sizes),
        f"TP {terms.tensor_parallel}",
    )


def _engines(count: int | None) -> str:
    if count is None:
        return "engines not told"
    return f"{count} engine" + ("" if count == 1 else "s")


def _strategy(contract: Contract, cell: Cell, told: Mapping[str, Any]) -> Iterator[Compared]:
    terms = contract.strategy.get(cell.strategy)
    if terms is None:
        return
    said = told.get("strategy")
    settings: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    for name, wanted in sorted(terms.settings.items()):
        found = settings.get(name)
        yield (
            None if found is None else str(found) == wanted,
            f"{name}={'?' if found is None else str(found)[:60]}",
            f"{name}={wanted}",
        )


def _distance(contract: Contract, cell: Cell, told: Mapping[str, Any]) -> Iterator[Compared]:
    """What a round trip to the store gained, in ms of campaign time."""
    terms = contract.distance.get(cell.distance)
    if terms is None:
        return
    far, near = value(told, "round_trip_ms"), value(told, "round_trip_plain_ms")
    gained = None if far is None or near is None else far - near
    yield (
        None if gained is None else abs(gained - terms.delay_ms) <= terms.within_ms,
        "round trip not told" if gained is None else f"round trip {gained:+.3g} ms",
        f"round trip {terms.delay_ms:+.3g} ms within {terms.within_ms:.3g} ms",
    )
