"""Was a block measured in the setup that its cell names, and did all its engines share the load?

Pure. What the role told of the running setup stands in ``block.json`` under ``setup``; what the
contract defines for the cell's names is compared with it, and nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvgate.analyse.checks import Block, at_least, ratio
from kvgate.analyse.counters import engines_of, grown_in, value
from kvgate.cells import LOCAL, Cell
from kvgate.contract import Contract
from kvgate.contract_tables import Arm
from kvgate.verdict import About, Condition

Compared = tuple[bool | None, str, str]
"""Whether it is as planned (None: nobody told), what was told, what is planned."""


def setup_conditions(contract: Contract, block: Block) -> Iterator[Condition]:
    """Whether the running setup is the planned one, where the contract defines the cell's setup."""
    cell = Cell(**block["cell"])
    said = block.get("setup")
    told: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    compared = list(_parallelism(contract, block, cell, told))
    arm = contract.arms[str(block["arm"])]
    if arm.store != "none":
        # An arm without a store has neither a promise of its nor a way to it.
        compared += [*_strategy(contract, cell, told), *_distance(contract, arm, cell, told)]
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
    if terms is None and not contract.parallelism:
        return
    # Beside others a plain cell is one engine: two would be a setup that nobody named.
    instances, size = (1, None) if terms is None else (terms.instances, terms.tensor_parallel)
    said = told.get("engines")
    engines = [e for e in said if isinstance(e, Mapping)] if isinstance(said, list) else None
    count, served = None if engines is None else len(engines), len(engines_of(block))
    # The load went to as many as the block says, the role tells of those that it started.
    right = None if count is None else count == served == instances
    sizes = [value(e, "tensor_parallel") for e in engines or ()]
    if size is not None and right:
        right = None if None in sizes else all(told_ == size for told_ in sizes)
    shown = served if count == instances else count
    yield (
        right,
        _written("?" if shown is None else f"{shown}", None if size is None else sizes),
        _written(f"{instances}", None if size is None else [float(size)]),
    )


def _written(count: str, sizes: Sequence[float | None] | None) -> str:
    """ "2 x TP 4": no words, since the evidence is read in two languages."""
    if sizes is None:
        return f"{count} ×"
    known = dict.fromkeys("?" if s is None else f"{s:.0f}" for s in sizes) or ["?"]
    return f"{count} × TP " + "+".join(known)


def _strategy(contract: Contract, cell: Cell, told: Mapping[str, Any]) -> Iterator[Compared]:
    terms = contract.strategy.get(cell.strategy)
    if terms is None:
        return
    said = told.get("strategy")
    settings: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    for name, wanted in sorted(terms.settings.items()):
        found = settings.get(name)
        yield (
            None if found is None else _spelled(found) == wanted,
            f"{name}={'?' if found is None else _spelled(found)[:60]}",
            f"{name}={wanted}",
        )


def _spelled(told: Any) -> str:
    """As JSON and TOML write it: the command that is asked prints JSON, where true is no "True"."""
    return str(told).lower() if isinstance(told, bool) else str(told)


def _distance(
    contract: Contract, arm: Arm, cell: Cell, told: Mapping[str, Any]
) -> Iterator[Compared]:
    """What a round trip to the store gained, and how long it was before, in ms of campaign time."""
    terms = contract.distance.get(cell.distance)
    if terms is None:
        return
    far, near = value(told, "round_trip_ms"), value(told, "round_trip_plain_ms")
    gained = None if far is None or near is None else far - near
    planned_ms = terms.delay_of(arm)
    yield (
        None if gained is None else abs(gained - planned_ms) <= terms.within_ms,
        "RTT ?" if gained is None else f"RTT {gained:+.3g} ms",
        f"RTT {planned_ms:+.3g} ±{terms.within_ms:.3g} ms",
    )
    # A way that was long before gains no less; where a distance says nothing of it, local does.
    local = contract.distance.get(LOCAL)
    limit_ms = terms.round_trip_ms_at_most
    if limit_ms is None and local is not None:
        limit_ms = local.round_trip_ms_at_most
    if limit_ms is not None:
        yield (
            None if near is None else near <= limit_ms,
            "RTT0 ?" if near is None else f"RTT0 {near:.3g} ms",
            f"RTT0 ≤ {limit_ms:.3g} ms",
        )
