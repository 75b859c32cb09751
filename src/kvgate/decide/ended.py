"""When a run of pairs has ended, and whether one that says so did. Pure.

The run asks this to know when to stop, the judge to know whether it did: whoever breaks off a run
and calls that its end would draw afresh what he has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvgate.analyse.pairs import Pair, cell_pairs
from kvgate.analyse.results import Analysis, Ending
from kvgate.cells import cells_of
from kvgate.contract import CompareClause, Contract, PairPlan
from kvgate.criterion import Effect
from kvgate.verdict import ClauseVerdict, GateVerdict, Verdict

NOT_BORNE_OUT: Final = "end_not_borne_out"
"""The reason's code where a run says that it ended and its evidence does not."""


def all_pairs(contract: Contract, gate: int, analysis: Analysis) -> tuple[Pair, ...]:
    """The pairs of every cell of the gate's plan."""
    plan = contract.gate(gate).pairs
    if plan is None:
        return ()
    return tuple(
        pair
        for cell in dict.fromkeys(cells_of(plan.cells))
        for pair in cell_pairs(analysis, cell).pairs
    )


def target_of(plan: PairPlan, *, extension: bool) -> int:
    """An extension may go on to the contract's limit; a first run stops where it was planned."""
    return plan.max_pairs if extension else plan.planned_pairs


def why_enough(
    contract: Contract,
    gate: int,
    analysis: Analysis,
    clauses: Sequence[ClauseVerdict],
    *,
    pairs: int,
    extension: bool,
) -> Ending | None:
    """Why no further pair could change anything that the contract lets it change, after ``pairs``
    of them; None where one could."""
    plan = contract.gate(gate).pairs
    if plan is None or pairs < plan.min_pairs:
        return None
    target = target_of(plan, extension=extension)
    if any(c.verdict is Verdict.FAIL for c in clauses):
        return Ending.ENOUGH
    found = all_pairs(contract, gate, analysis)
    at_fault = {p.number for p in found if p.against_appliance}
    if not any(p.valid for p in found) and not (0 < len(at_fault) < plan.min_pairs):
        # Not one usable pair after min_pairs: more of the same will not help, unless what
        # speaks against the appliance is not yet enough to hold it against it.
        return Ending.UNUSABLE
    compared = any(
        isinstance(clause, CompareClause) and clause.effect is not Effect.SAME
        for clause in contract.gate(gate).clause
    )
    fewest = _fewest_valid(found)
    settled = all(c.verdict is Verdict.PASS for c in clauses)
    if settled and fewest >= (plan.min_pairs if compared else target):
        return Ending.ENOUGH
    if (pairs >= target and fewest >= target) or pairs >= target + plan.spare_pairs:
        return Ending.TARGET
    return None


def _fewest_valid(pairs: Sequence[Pair]) -> int:
    """The number of valid pairs in the cell that has the fewest."""
    counts: dict[str, int] = {}
    for pair in pairs:
        label = pair.reference.cell.label
        counts[label] = counts.get(label, 0) + pair.valid
    return min(counts.values(), default=0)


def borne_out(
    contract: Contract,
    gate: int,
    analysis: Analysis,
    clauses: Sequence[ClauseVerdict],
    *,
    extension: bool,
    reopened: bool,
) -> bool:
    """Whether sessions and pairs bear out the end that the run notes; True where it notes none."""
    end = analysis.end
    if end is None:
        return True
    if end.why is None or end.running:
        return False
    if end.why is Ending.REOPENED or reopened:
        return end.why is Ending.REOPENED and reopened
    terms = contract.gate(gate)
    if terms.soak is not None:
        return end.why is Ending.TARGET and end.long_run
    if terms.pairs is None:
        return end.why is Ending.TARGET
    if end.broken or set(end.sessions) - {b.session for b in analysis.blocks}:
        return False
    why = why_enough(contract, gate, analysis, clauses, pairs=end.pairs, extension=extension)
    return why is end.why


def broken_off(verdict: GateVerdict) -> bool:
    """Whether the verdict is of a run that says that it ended and did not."""
    return any(found.code == NOT_BORNE_OUT for found in verdict.findings)
