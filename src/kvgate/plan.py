"""What a gate will measure, in which order: a pure function of contract, gate and seed.

A *session* brings the engine into one arm; all cells of the plan run inside it. Two adjacent
sessions of the two arms make a *pair*; couples of pairs run AB and BA in random order, so that an
effect of order cancels.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvgate.contract import CellPlan, Contract, PairPlan
from kvgate.contract_tables import Workload

COLD_BEFORE_WARM: Final = "cold_restore"
"""The workload whose prompts a warm block repeats."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition of measurement; pairs compare blocks of the same cell."""

    workload: str
    level: int
    parallelism: str = "default"
    strategy: str = "default"
    distance: str = "local"

    @property
    def label(self) -> str:
        extra = [v for v in (self.parallelism, self.strategy) if v != "default"]
        if self.distance != "local":
            extra.append(self.distance)
        return f"{self.workload}@{self.level}" + "".join(f"/{v}" for v in extra)


@dataclass(frozen=True, slots=True)
class Session:
    """The engine in one arm, then these cells in this order.

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


@dataclass(frozen=True, slots=True)
class PairOrder:
    """The two sessions of one pair in the order in which they run."""

    pair: int
    sessions: tuple[Session, Session]


def cells_of(plans: Iterable[CellPlan]) -> tuple[Cell, ...]:
    return tuple(Cell(plan.workload, level) for plan in plans for level in plan.levels)


def seed_of(contract: Contract, *parts: str | int) -> str:
    """A seed that both parties can derive again from the contract alone."""
    text = "/".join([contract.seed, *(str(p) for p in parts)])
    return hashlib.sha256(text.encode()).hexdigest()


def reference_session(contract: Contract, gate: int) -> Session | None:
    """The session that gives the recompute reference, where the gate's plan has one."""
    plan = contract.gate(gate).pairs
    if plan is None or plan.reference_arm is None:
        return None
    return Session(plan.reference_arm, "reference", None, 0, 0, cells_of(plan.reference_cells))


def pair_order(contract: Contract, gate: int, plan: PairPlan, pair: int, run: int) -> PairOrder:
    """Pair number ``pair`` (from 0): arms in AB/BA couples, cells shuffled, the same for both arms.

    The order of a couple is drawn once; its second pair runs the other way round.
    """
    couple = random.Random(seed_of(contract, "order", gate, run, pair // 2))
    reversed_first = couple.random() < 0.5
    reversed_ = reversed_first != (pair % 2 == 1)
    cells = list(cells_of(plan.cells))
    random.Random(seed_of(contract, "cells", gate, run, pair)).shuffle(cells)
    cells = _warm_after_cold(contract, cells)
    pool = pair % plan.pools
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


@dataclass(frozen=True, slots=True)
class PromptRange:
    """A block's prompts: ``count`` prompts of the named pool, from ``first``.

    Cells never share prompts, so one cell's block cannot warm another's.
    """

    pool: str
    first: int
    count: int


def warmup_prompts(gate: int, run: int, number: int, cell: Cell) -> PromptRange:
    """Prompts of a session's warm-up: one a stream, seen by nobody before or after."""
    return PromptRange(f"g{gate}/warmup/{run}/{number}/{cell.label}", 0, cell.level)


def prompts_of(contract: Contract, gate: int, session: Session, cell: Cell) -> PromptRange:
    """The prompts of one block.

    Cold, warm and probe blocks read the primed pool of the pair; a warm block repeats the prompts
    of the cold block at its level; a miss block gets prompts that nobody has ever seen, not even an
    earlier run of the gate or an earlier attempt at the same pair.
    """
    workload = contract.workloads[cell.workload]
    count = requests_in(workload, cell.level)
    if workload.kind == "miss":
        again = f"/{session.attempt}" if session.attempt else ""
        plan = contract.gate(gate).pairs
        # Two arms have two stores and get the same prompts; one arm against itself would find in
        # its store what its first session left there.
        alone = plan is None or plan.compare[0] == plan.compare[1]
        who = session.role if alone else "both"
        pool = f"g{gate}/miss/{session.run}/{cell.label}/{session.pair}/{who}{again}"
        return PromptRange(pool, 0, count)
    if workload.kind == "probe":
        # The same probes in every session: each answer is compared with the recompute arm's.
        return PromptRange(f"g{gate}/probe/{cell.label}", 0, count)
    if workload.kind == "warm":
        pool = f"g{gate}/{COLD_BEFORE_WARM}@{cell.level}/pool{session.pool}"
        return PromptRange(pool, 0, count)
    return PromptRange(f"g{gate}/{cell.label}/pool{session.pool}", 0, count)
