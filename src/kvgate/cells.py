"""The conditions of measurement: a workload at a level, in a setup of engines, store and network.

A *setup* is what an arm is brought up with: how the engines share the machine, what the store
promises about a write, and how far away it is. Two arms are only ever compared in one setup.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kvgate.contract_gates import CellPlan, ClauseBase, PairPlan, SoakPlan

DEFAULT: Final = "default"
LOCAL: Final = "local"
AXES: Final = ("parallelism", "strategy", "distance")
"""The contract's keys of a setup, as they stand in cells and clauses."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One combination of the three axes, by their names in the contract."""

    parallelism: str = DEFAULT
    strategy: str = DEFAULT
    distance: str = LOCAL

    @property
    def label(self) -> str:
        """What differs from the plain setup, "tp4x2/wan_10ms"; empty for the plain one."""
        extra = [v for v in (self.parallelism, self.strategy) if v != DEFAULT]
        return "/".join([*extra, *([self.distance] if self.distance != LOCAL else [])])

    @property
    def stored(self) -> Setup:
        """The setup in which KV is written once for every distance: engines that share a machine in
        another way write other KV, and so does a store with other promises."""
        return Setup(self.parallelism, self.strategy)

    def of(self, arm: str) -> str:
        """An arm in this setup, as evidence names it: "appliance/tp8"."""
        return f"{arm}/{self.label}" if self.label else arm


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition of measurement; pairs compare blocks of the same cell."""

    workload: str
    level: int
    parallelism: str = DEFAULT
    strategy: str = DEFAULT
    distance: str = LOCAL

    @property
    def label(self) -> str:
        setup = self.setup.label
        return f"{self.workload}@{self.level}" + (f"/{setup}" if setup else "")

    @property
    def setup(self) -> Setup:
        return Setup(self.parallelism, self.strategy, self.distance)


def setups_of(plan: CellPlan) -> tuple[Setup, ...]:
    """Every combination that one line of a plan asks for, in the contract's order."""
    named = itertools.product(plan.parallelism, plan.strategy, plan.distance)
    return tuple(Setup(*names) for names in named)


def soak_setup(plan: SoakPlan) -> Setup:
    """The one setup of a long run."""
    return Setup(plan.parallelism, plan.strategy, plan.distance)


def cell_in(setup: Setup, workload: str, level: int) -> Cell:
    """A workload at a level in a setup."""
    return Cell(workload, level, setup.parallelism, setup.strategy, setup.distance)


def cells_of(plans: Iterable[CellPlan]) -> tuple[Cell, ...]:
    """Every cell of a plan, in the contract's order."""
    return tuple(_cells(plans))


def _cells(plans: Iterable[CellPlan]) -> Iterator[Cell]:
    for plan in plans:
        for setup in setups_of(plan):
            for level in plan.levels:
                yield cell_in(setup, plan.workload, level)


def measured_in(plan: PairPlan, arm: str | None) -> tuple[Cell, ...]:
    """The cells in which a plan measures an arm: in pairs, as the reference, or both."""
    paired = plan.cells if arm in plan.compare else ()
    reference = plan.reference_cells if arm == plan.reference_arm else ()
    return cells_of((*paired, *reference))


def of_clause(clause: ClauseBase, cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells that a clause speaks of: its workload and levels where it names them, in the setups
    that it names; an axis that it does not name leaves all planned ones in. Each cell once, in
    order of setups, then of the clause's levels."""
    workload = getattr(clause, "workload", None)
    levels: tuple[int, ...] = getattr(clause, "levels", ())
    found = [
        cell
        for cell in dict.fromkeys(cells)
        if workload in (None, cell.workload)
        and (not levels or cell.level in levels)
        and in_setups(clause, cell)
    ]
    setups = list(dict.fromkeys(cell.setup for cell in found))
    at = {level: i for i, level in enumerate(levels)}
    return tuple(sorted(found, key=lambda c: (setups.index(c.setup), at.get(c.level, 0))))


def in_setups(clause: ClauseBase, cell: Cell) -> bool:
    """Whether the clause speaks of the cell's setup."""
    return all(
        not getattr(clause, axis) or getattr(cell, axis) in getattr(clause, axis) for axis in AXES
    )
