"""Pairs of blocks of one cell: the unit of replication, and its log ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.cells import Cell
from kvgate.verdict import About, Exclusion


@dataclass(frozen=True, slots=True)
class Pair:
    """The two blocks of one cell in one pair."""

    number: int
    reference: BlockResult
    test: BlockResult

    @property
    def valid(self) -> bool:
        return self.reference.valid and self.test.valid

    @property
    def tested_second(self) -> bool:
        return self.test.position == 1

    @property
    def against_appliance(self) -> bool:
        """The test block broke only conditions about the appliance; its reference was healthy."""
        broken = [c for c in self.test.conditions if c.ok is not True]
        return (
            self.reference.valid
            and bool(broken)
            and all(c.about is About.APPLIANCE and c.ok is False for c in broken)
        )


@dataclass(frozen=True, slots=True)
class CellPairs:
    """All pairs of one cell, complete ones only, by pair number.

    ``incomplete`` counts the pairs that lack a block, ``lost`` says in which role, and
    ``duplicated`` are the numbers of pairs with more than one block in a role.
    """

    cell: str
    pairs: tuple[Pair, ...]
    incomplete: int
    lost: Mapping[str, int] = field(default_factory=dict)
    duplicated: tuple[int, ...] = ()

    @property
    def valid(self) -> tuple[Pair, ...]:
        return tuple(p for p in self.pairs if p.valid)

    def excluded_share(self, role: str) -> float:
        """Share of the pairs whose block in this role broke a condition or is not there."""
        blocks = [p.reference if role == "reference" else p.test for p in self.pairs]
        excluded = sum(not b.valid for b in blocks) + self.lost.get(role, 0)
        expected = len(self.pairs) + self.incomplete
        return excluded / expected if expected else 0.0

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the broken conditions, most frequent first."""
        counts: dict[str, int] = {}
        for pair in self.pairs:
            for block in (pair.reference, pair.test):
                for condition in block.conditions:
                    if condition.ok is not True:
                        counts[condition.name] = counts.get(condition.name, 0) + 1
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def cell_pairs(analysis: Analysis, cell: Cell) -> CellPairs:
    """The pairs of a cell in order of measurement.

    Every pair that any cell of the gate was measured in is expected here too: one that left no
    block is incomplete. A pair number with more than one block in a role is duplicated: nothing
    says which of them is the measurement.
    """
    by_pair: dict[int, dict[str, list[BlockResult]]] = {}
    for block in analysis.blocks:
        if block.pair is None or block.cell != cell:
            continue
        if block.interrupted:
            continue  # the pair was measured anew under the same number
        by_pair.setdefault(block.pair, {}).setdefault(block.role, []).append(block)
    pairs: list[Pair] = []
    duplicated: list[int] = []
    lost = {"reference": 0, "test": 0}
    expected = 1 + max((b.pair for b in analysis.blocks if b.pair is not None), default=-1)
    for number in range(expected):
        roles = by_pair.get(number, {})
        reference, test = roles.get("reference", []), roles.get("test", [])
        if len(reference) == 1 and len(test) == 1:
            pairs.append(Pair(number, reference[0], test[0]))
            continue
        if len(reference) > 1 or len(test) > 1:
            duplicated.append(number)
        lost["reference"] += len(reference) != 1
        lost["test"] += len(test) != 1
    return CellPairs(cell.label, tuple(pairs), expected - len(pairs), lost, tuple(duplicated))


def exclusions(analysis: Analysis) -> tuple[Exclusion, ...]:
    """Every broken condition of every block, in order of blocks."""
    return tuple(
        Exclusion(block.n, block.pair, block.arm, block.cell.label, condition)
        for block in sorted(analysis.blocks, key=lambda b: b.n)
        for condition in block.conditions
        if condition.ok is not True
    )


_STATISTICS: Mapping[tuple[str, str], Callable[[BlockResult], float | None]] = {
    ("ttft", "p50"): lambda b: b.statistics.ttft_p50_s,
    ("ttft", "p99"): lambda b: b.statistics.ttft_p99_s,
    ("itl", "p50"): lambda b: b.statistics.itl_p50_s,
    ("itl", "p99"): lambda b: b.statistics.itl_p99_s,
    ("throughput", "steady"): lambda b: b.statistics.output_tok_per_s,
}


def arm_values(
    pairs: Sequence[Pair], metric: str, statistic: str
) -> tuple[tuple[float | None, float | None], ...]:
    """(reference, test) block statistics of each pair, in the metric's unit."""
    of = _STATISTICS[metric, statistic]
    return tuple((of(pair.reference), of(pair.test)) for pair in pairs)


def log_ratios(pairs: Sequence[Pair], metric: str, statistic: str) -> tuple[float, ...]:
    """log(test / reference) of each pair; NaN where a value is missing or not positive.

    One number a block whatever the statistic, so pairs stay the unit of replication. A p99 of a
    block of 48 requests is hardly more than its maximum, but the log ratio of two of them is
    centred on the true change of scale, and the t interval over pairs holds. A quantile pooled over
    pairs is smoother and has no such interval: jackknife pseudo-values of a quantile are not
    consistent (Miller 1974, Biometrika 61, 1-15), see docs/decisions/.
    """
    return tuple(_log_ratio(r, t) for r, t in arm_values(pairs, metric, statistic))


def _log_ratio(reference: float | None, test: float | None) -> float:
    if reference is None or test is None or not (reference > 0 and test > 0):
        return math.nan
    return math.log(test / reference)
