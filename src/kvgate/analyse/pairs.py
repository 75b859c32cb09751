"""Pairs of blocks of one cell: the unit of replication, and its log ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.verdict import About, Exclusion

Samples = NDArray[np.float64]


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


def cell_pairs(analysis: Analysis, workload: str, level: int) -> CellPairs:
    """The pairs of a cell in order of measurement.

    Every pair that any cell of the gate was measured in is expected here too: one that left no
    block is incomplete. A pair number with more than one block in a role is duplicated: nothing
    says which of them is the measurement.
    """
    by_pair: dict[int, dict[str, list[BlockResult]]] = {}
    label = f"{workload}@{level}"
    for block in analysis.blocks:
        if block.pair is None or block.cell.workload != workload or block.cell.level != level:
            continue
        if block.interrupted:
            continue  # the pair was measured anew under the same number
        label = block.cell.label
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
    return CellPairs(label, tuple(pairs), expected - len(pairs), lost, tuple(duplicated))


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
    ("itl", "p50"): lambda b: b.statistics.itl_p50_s,
    ("throughput", "steady"): lambda b: b.statistics.output_tok_per_s,
    ("restore_rate", "mean"): lambda b: b.restore_bytes_per_s,
    # In one block a p99 is hardly more than the maximum: shown, and pooled where it is judged.
    ("ttft", "p99"): lambda b: b.statistics.ttft_p99_s,
    ("itl", "p99"): lambda b: b.statistics.itl_p99_s,
}
_POOLED = {("ttft", "p99"): "ttft_s", ("itl", "p99"): "itl_s"}


def arm_values(
    pairs: Sequence[Pair], metric: str, statistic: str
) -> tuple[tuple[float | None, float | None], ...]:
    """(reference, test) block statistics of each pair, in the metric's unit."""
    of = _STATISTICS[metric, statistic]
    return tuple((of(pair.reference), of(pair.test)) for pair in pairs)


def log_ratios(
    pairs: Sequence[Pair],
    samples: Mapping[int, Mapping[str, Samples]],
    metric: str,
    statistic: str,
) -> tuple[float, ...]:
    """log(test / reference) of each pair; NaN where a value is missing or not positive.

    A p99 is pooled over pairs, since in one block it is hardly more than the maximum: the value of
    pair i is then the jackknife pseudo-value n*T - (n-1)*T(without i) of the log ratio T of the
    pooled quantiles (Tukey 1958), so that the same interval applies.
    """
    name = _POOLED.get((metric, statistic))
    if name is None:
        return tuple(_log_ratio(r, t) for r, t in arm_values(pairs, metric, statistic))
    return _pseudo_values(pairs, samples, name)


def _pseudo_values(
    pairs: Sequence[Pair], samples: Mapping[int, Mapping[str, Samples]], name: str
) -> tuple[float, ...]:
    n = len(pairs)
    empty = np.empty(0)
    reference = [samples.get(p.reference.n, {}).get(name, empty) for p in pairs]
    test = [samples.get(p.test.n, {}).get(name, empty) for p in pairs]
    if n < 2 or any(len(s) == 0 for s in (*reference, *test)):
        return (math.nan,) * n
    whole = _log_ratio(_p99(reference), _p99(test))
    return tuple(
        n * whole
        - (n - 1)
        * _log_ratio(_p99(reference[:i] + reference[i + 1 :]), _p99(test[:i] + test[i + 1 :]))
        for i in range(n)
    )


def _p99(parts: Sequence[Samples]) -> float:
    return float(np.quantile(np.concatenate(parts), 0.99))


def _log_ratio(reference: float | None, test: float | None) -> float:
    if reference is None or test is None or not (reference > 0 and test > 0):
        return math.nan
    return math.log(test / reference)
