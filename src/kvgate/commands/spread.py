"""Where the spread of a pair comes from: told, measured by G2, or assumed. It is always said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scipy import stats

from kvgate.analyse.estimate import estimate_effect
from kvgate.analyse.pairs import CellPairs, cell_pairs, log_ratios
from kvgate.analyse.results import Analysis
from kvgate.cells import Cell, cells_of
from kvgate.commands.bundles import judged_bundle
from kvgate.contract import CompareClause
from kvgate.contract_tables import Planning
from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.verify import verify
from kvgate.planning import ASSUMED_SD, TAIL_FACTOR

UPPER: Final = 0.80
"""Confidence of the upper bound that stands beside a measured spread."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A spread with its origin: ``pairs`` is None where it was not measured; ``borrowed`` where it
    was measured in another workload only."""

    sd: float
    origin: str
    pairs: int | None = None
    borrowed: bool = False

    @property
    def upper(self) -> float:
        """The 80 % upper confidence bound of a measured spread (chi-square); else the spread."""
        if self.pairs is None:
            return self.sd
        low = float(stats.chi2.ppf(1.0 - UPPER, self.pairs - 1))
        return self.sd * math.sqrt((self.pairs - 1) / low)


Measured = Mapping[tuple[str, str, Cell], Spread]
"""The spread of a metric's statistic in each cell."""


class Spreads:
    """The spread of every clause in every cell."""

    def __init__(self, source: str, found: Measured,
                 told: Mapping[str, float], default: float | None,
                 tail: float | None = None) -> None:  # fmt: skip
        self.source = source
        self._found = found
        self._told = told
        self._default = default
        self._tail = tail

    def of(self, clause: CompareClause, cell: Cell) -> Spread:
        """Raises CannotMeasure where G2 measured nothing like it."""
        name = f"{clause.metric}.{clause.statistic}"
        if name in self._told:
            return Spread(self._told[name], "--pair-sd")
        if self._default is not None:
            tail = clause.statistic == "p99"
            if tail and self._tail is not None:
                return Spread(self._tail, self.source)
            factor = TAIL_FACTOR if tail else 1.0
            origin = self.source if not tail else f"{self.source}, x {TAIL_FACTOR:g} for a p99"
            return Spread(self._default * factor, origin)
        key = (clause.metric, clause.statistic)
        exact = self._found.get((*key, cell))
        if exact is not None:
            return exact
        alike = {k[2]: s for k, s in self._found.items() if k[:2] == key}
        others = {c: s for c, s in alike.items() if c.workload == clause.workload}
        if not others and alike:
            # No promise about this workload: the noisiest of the others, and it is said.
            noisiest = max(alike.values(), key=lambda s: s.sd)
            origin = f"{noisiest.origin}; G2 measured nothing in {clause.workload}"
            return Spread(noisiest.sd, origin, noisiest.pairs, borrowed=True)
        if not others:
            raise CannotMeasure(
                f"G2's pairs say nothing of {name} in {clause.workload}",
                where=self.source,
                remedy=f"name it: --pair-sd {name}=SD",
            )
        # The same setup where it was measured, there the nearest level; of two, the noisier.
        nearest = min(
            others,
            key=lambda c: (
                c.setup != cell.setup, abs(math.log(c.level / cell.level)), -others[c].sd
            ),
        )  # fmt: skip
        return others[nearest]

    def sd(self, clause: CompareClause, cell: Cell) -> float:
        return self.of(clause, cell).sd

    def upper(self, clause: CompareClause, cell: Cell) -> float:
        return self.of(clause, cell).upper


def spreads(
    told: Sequence[str],
    g2: Path | None,
    clauses: Sequence[CompareClause],
    planning: Planning | None = None,
) -> Spreads:
    """From ``--pair-sd`` (``SD`` or ``METRIC.STATISTIC=SD``) and ``--from-g2``; else what the
    contract's ``planning`` takes for granted; else assumed.

    A named spread wins over a measured one. Raises UsageError for a spread that is none,
    CannotMeasure for a bundle that is not an intact G2.
    """
    default, named = _told(told, clauses)
    if g2 is not None:
        if default is not None:
            raise UsageError(
                "--pair-sd SD and --from-g2 both say how noisy a pair is",
                remedy="give one of them, or --pair-sd METRIC.STATISTIC=SD beside --from-g2",
            )
        return Spreads(f"the pairs of one arm against itself in {g2}", _measured(g2), named, None)
    if default is not None:
        return Spreads("--pair-sd", {}, named, default)
    if planning is not None:
        source = f"ASSUMED by the contract, not measured: {planning.source.en}"
        return Spreads(source, {}, named, planning.pair_sd, planning.tail_pair_sd)
    return Spreads(
        "ASSUMED as in docs/statistics.md, not measured: give --from-g2 BUNDLE or --pair-sd",
        {}, named, ASSUMED_SD,
    )  # fmt: skip


def _told(
    told: Sequence[str], clauses: Sequence[CompareClause]
) -> tuple[float | None, dict[str, float]]:
    known = sorted({f"{c.metric}.{c.statistic}" for c in clauses})
    default: float | None = None
    named: dict[str, float] = {}
    for text in told:
        name, equals, number = text.rpartition("=")
        try:
            sd = float(number)
        except ValueError:
            sd = math.nan
        if not 0.0 < sd < 1.0:
            raise UsageError(
                f"{text!r} is no spread of a log ratio",
                where="--pair-sd",
                remedy="give a number between 0 and 1, such as 0.058, or ttft.p99=0.12",
            )
        if not equals:
            default = sd
        elif name in known:
            named[name] = sd
        else:
            raise UsageError(
                f"no clause compares {name!r}",
                where="--pair-sd",
                remedy=f"known here: {', '.join(known) or 'none'}",
            )
    return default, named


def _measured(path: Path) -> Measured:
    judged = judged_bundle(path)
    problems = verify(path)
    plan = judged.contract.gate(judged.campaign.gate).pairs
    if problems:
        raise CannotMeasure(
            f"not an intact bundle: {problems[0]}", where=str(path), remedy="give the sealed one"
        )
    if plan is None or plan.compare[0] != plan.compare[1]:
        raise UsageError(
            "its pairs do not compare an arm with itself",
            where=str(path),
            remedy="give a bundle of G2, the noise floor",
        )
    found: dict[tuple[str, str, Cell], Spread] = {}
    for cell in cells_of(plan.cells):
        pairs = cell_pairs(judged.analysis, cell)
        for metric, statistic in (
            ("ttft", "p50"), ("ttft", "p99"), ("itl", "p50"), ("itl", "p99"),
            ("throughput", "steady"),
        ):  # fmt: skip
            spread = _spread(pairs, judged.analysis, metric, statistic)
            if spread is not None:
                found[(metric, statistic, cell)] = spread
    if not found:
        raise CannotMeasure(
            "it holds no two valid pairs of one arm against itself",
            where=str(path),
            remedy="run G2 again",
        )
    return found


def _spread(cell: CellPairs, analysis: Analysis, metric: str, statistic: str) -> Spread | None:
    estimate = estimate_effect(log_ratios(cell.valid, metric, statistic))
    if not estimate.valid or estimate.sd_log is None or estimate.n < 2:
        return None
    return Spread(estimate.sd_log, f"{cell.cell}, {estimate.n} pairs", estimate.n)
