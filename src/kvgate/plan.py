"""What a gate will measure, in which order: a pure function of contract, gate and seed.

A *session* brings the engines into one arm in one setup; all cells of that setup run inside it. Two
adjacent sessions of the two arms make a *pair*; couples of pairs run AB and BA in random order, so
that an effect of order cancels. Where a plan has several setups, each has two sessions under every
number of a pair.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvgate.cells import Cell, Setup, cell_in, cells_of
from kvgate.contract import CellPlan, Contract, PairPlan
from kvgate.contract_tables import Workload
from kvgate.reuse import FRESH_KINDS, RESTORED_KINDS, SHARED_KINDS, reuse_of, shared_parts

__all__ = [
    "COLD_BEFORE_WARM",
    "Cell",
    "PairOrder",
    "PromptRange",
    "Session",
    "Setup",
    "StoreShare",
    "cells_of",
    "pair_order",
    "pair_orders",
    "planned_setups",
    "prompts_of",
    "reference_sessions",
    "requests_in",
    "seed_of",
    "store_shares",
    "warmup_cells",
    "warmup_prompts",
]

COLD_BEFORE_WARM: Final = "cold_restore"
"""The workload whose prompts a warm block repeats."""


@dataclass(frozen=True, slots=True)
class Session:
    """The engines in one arm and one setup, then these cells in this order.

    ``pair`` is None for the reference session; ``position`` is 0 or 1 inside its pair and ``role``
    says which side of the comparison it is (an arm compared with itself has both roles);
    ``pool`` names the prompts, shared by the two sessions of a pair. ``attempt`` counts from 0 how
    often the pair was begun before: an interruption breaks a pair, which is then measured anew.
    """

    arm: str
    role: str
    pair: int | None
    position: int
    pool: int
    cells: tuple[Cell, ...]
    run: int = 1
    attempt: int = 0

    @property
    def setup(self) -> Setup:
        """That of its cells, which is the same for all."""
        return self.cells[0].setup if self.cells else Setup()


@dataclass(frozen=True, slots=True)
class PairOrder:
    """The two sessions of one pair in the order in which they run, in one setup."""

    pair: int
    sessions: tuple[Session, Session]

    @property
    def setup(self) -> Setup:
        return self.sessions[0].setup


def planned_setups(plans: Iterable[CellPlan]) -> tuple[Setup, ...]:
    """The setups of a plan, each once, in the contract's order."""
    return tuple(dict.fromkeys(cell.setup for cell in cells_of(plans)))


def seed_of(contract: Contract, *parts: str | int) -> str:
    """A seed that both parties can derive again from the contract alone."""
    text = "/".join([contract.seed, *(str(p) for p in parts)])
    return hashlib.sha256(text.encode()).hexdigest()


def reference_sessions(contract: Contract, gate: int) -> tuple[Session, ...]:
    """The sessions that give the recompute reference, one a setup; none without a reference."""
    plan = contract.gate(gate).pairs
    if plan is None or plan.reference_arm is None:
        return ()
    cells = cells_of(plan.reference_cells)
    return tuple(
        Session(plan.reference_arm, "reference", None, 0, 0, _in(setup, cells))
        for setup in planned_setups(plan.reference_cells)
    )


def _in(setup: Setup, cells: Iterable[Cell]) -> tuple[Cell, ...]:
    return tuple(cell for cell in cells if cell.setup == setup)


def pair_orders(
    contract: Contract, gate: int, plan: PairPlan, pair: int, run: int
) -> tuple[PairOrder, ...]:
    """Pair number ``pair`` (from 0) in every setup of the plan, the setups in random order."""
    setups = list(planned_setups(plan.cells))
    random.Random(seed_of(contract, "setups", gate, run, pair)).shuffle(setups)
    return tuple(pair_order(contract, gate, plan, pair, run, setup) for setup in setups)


def pair_order(
    contract: Contract, gate: int, plan: PairPlan, pair: int, run: int, setup: Setup | None = None
) -> PairOrder:
    """Pair number ``pair`` (from 0) in one setup, the plan's first where none is named: arms in
    AB/BA couples, cells shuffled, the same for both arms.

    The order of a couple is drawn once for each setup; its second pair runs the other way round.
    """
    setup = setup or planned_setups(plan.cells)[0]
    # A plan without axes keeps the order that its seed has always given.
    own = (setup.label,) if setup.label else ()
    couple = random.Random(seed_of(contract, "order", gate, run, pair // 2, *own))
    reversed_first = couple.random() < 0.5
    reversed_ = reversed_first != (pair % 2 == 1)
    cells = list(_in(setup, cells_of(plan.cells)))
    random.Random(seed_of(contract, "cells", gate, run, pair, *own)).shuffle(cells)
    cells = _warm_after_cold(contract, cells)
    # Distances read the same pools: where there are two, not both the same one.
    nearby = [s for s in planned_setups(plan.cells) if s.stored == setup.stored]
    pool = (pair + nearby.index(setup)) % plan.pools
    roles = ["reference", "test"]
    if reversed_:
        roles.reverse()
    sessions = tuple(
        Session(
            arm=plan.compare[0] if role == "reference" else plan.compare[1],
            role=role,
            pair=pair,
            position=position,
            pool=pool,
            cells=tuple(cells),
            run=run,
        )
        for position, role in enumerate(roles)
    )
    return PairOrder(pair, (sessions[0], sessions[1]))


def _warm_after_cold(contract: Contract, cells: list[Cell]) -> list[Cell]:
    """A warm block reads what the cold block of its level left in the engine's cache, which every
    other block empties first: so it directly follows that block."""
    warm = [c for c in cells if contract.workloads[c.workload].kind == "warm"]
    ordered: list[Cell] = []
    for cell in (c for c in cells if c not in warm):
        ordered.append(cell)
        if cell.workload == COLD_BEFORE_WARM:
            ordered.extend(c for c in warm if c.level == cell.level)
    return ordered + [c for c in warm if c not in ordered]


def requests_in(workload: Workload, level: int) -> int:
    """Requests of a block: a multiple of the level, so that each stream serves as many."""
    return workload.requests_per_level * level


WEAK_STORE_SHARE: Final = 0.10
"""Below it a block's figures hardly depend on the store: the engine's own cache serves the rest of
what is repeated."""


@dataclass(frozen=True, slots=True)
class StoreShare:
    """``share`` of a block's prompt tokens that only the store can have when they are asked for."""

    gate: int
    workload: str
    level: int
    share: float

    @property
    def weak(self) -> bool:
        return self.share < WEAK_STORE_SHARE


def store_shares(contract: Contract) -> tuple[StoreShare, ...]:
    """Of every planned cell whose prompts share stored beginnings, each workload and level once."""
    found = {}
    for gate in contract.gates:
        plan = contract.gate(gate).pairs
        for cell in () if plan is None else cells_of(plan.cells):
            workload = contract.workloads[cell.workload]
            if workload.kind not in SHARED_KINDS:
                continue
            requests = requests_in(workload, cell.level)
            reuse = reuse_of(workload, requests, contract.model.chunk_tokens)
            if reuse is not None:
                at = (gate, cell.workload, cell.level)
                found[at] = StoreShare(*at, reuse.stored)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class PromptRange:
    """A block's prompts: ``count`` prompts of the named pool, from ``first``.

    Cells never share prompts, so one cell's block cannot warm another's.
    """

    pool: str
    first: int
    count: int


def warmup_cells(plan: PairPlan, setup: Setup) -> tuple[Cell, ...]:
    """What warms up every session, in the session's own setup."""
    return tuple(
        cell_in(setup, line.workload, level) for line in plan.warmup for level in line.levels
    )


def warmup_prompts(gate: int, run: int, number: int, cell: Cell) -> PromptRange:
    """Prompts of a session's warm-up: one a stream, seen by nobody before or after."""
    return PromptRange(f"g{gate}/warmup/{run}/{number}/{cell.label}", 0, cell.level)


def prompts_of(contract: Contract, gate: int, session: Session, cell: Cell) -> PromptRange:
    """The prompts of one block.

    Cold, warm and probe blocks read the primed pool of the pair, which every distance of a setup
    shares: KV lies in the store once. A warm block repeats the prompts
    of the cold block at its level; a miss block gets prompts that nobody has ever seen, not even an
    earlier run of the gate or an earlier attempt at the same pair. So does what is new in prompts
    that share a stored beginning, and every conversation.
    """
    workload = contract.workloads[cell.workload]
    count = requests_in(workload, cell.level)
    if workload.kind == "miss":
        again = f"/{session.attempt}" if session.attempt else ""
        plan = contract.gate(gate).pairs
        # Two arms have two stores (a contract with one for both is refused) and get the same
        # prompts; one arm against itself would find in its store what its first session left there.
        alone = plan is None or plan.compare[0] == plan.compare[1]
        who = session.role if alone else "both"
        pool = f"g{gate}/miss/{session.run}/{cell.label}/{session.pair}/{who}{again}"
        return PromptRange(pool, 0, count)
    if workload.kind in FRESH_KINDS:
        pool = f"g{gate}/{_stored(cell, cell.workload)}/pool{session.pool}"
        return PromptRange(pool, count * _fresh_number(contract, gate, session), count)
    if workload.kind == "probe":
        # The same probes in every session: each answer is compared with the recompute arm's.
        return PromptRange(f"g{gate}/probe/{_stored(cell, cell.workload)}", 0, count)
    if workload.kind == "warm":
        pool = f"g{gate}/{_stored(cell, COLD_BEFORE_WARM)}/pool{session.pool}"
        return PromptRange(pool, 0, count)
    return PromptRange(f"g{gate}/{_stored(cell, cell.workload)}/pool{session.pool}", 0, count)


def stored_prompts(
    contract: Contract, gate: int, session: Session, cell: Cell
) -> PromptRange | None:
    """What a store is primed with for a block; None where its workload restores nothing.

    Of prompts that share a beginning these are the beginnings alone, under the name that
    :mod:`kvgate.load.shapes` gives them.
    """
    workload = contract.workloads[cell.workload]
    if workload.kind not in RESTORED_KINDS:
        return None
    prompts = prompts_of(contract, gate, session, cell)
    shared = shared_parts(workload, contract.model.chunk_tokens)
    if shared is None:
        return prompts
    return PromptRange(f"{prompts.pool}/prefix", 0, shared.groups)


def _fresh_number(contract: Contract, gate: int, session: Session) -> int:
    """A number of its own for each pair, run and attempt, and for both sessions of a pair whose
    arms share one store."""
    plan = contract.gate(gate).pairs
    alone = plan is None or plan.compare[0] == plan.compare[1]
    number = 0
    for part, most in (
        (session.run, 1_000),
        (0 if session.pair is None else session.pair + 1, 10_000),
        (session.attempt, 1_000),
        (int(alone and session.role == "test"), 2),
    ):
        number = number * most + part % most
    return number


def _stored(cell: Cell, workload: str) -> str:
    """The name of what a cell of that workload reads from the store."""
    setup = cell.setup.stored
    return Cell(workload, cell.level, setup.parallelism, setup.strategy).label
