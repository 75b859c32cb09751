"""What the types of a contract cannot say: clauses, cells and units that must fit together."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.contract import (
    CellPlan,
    Clause,
    CompareClause,
    Contract,
    GateTerms,
    LimitClause,
)
from kvgate.criterion import BLOCK_STATISTICS, METRICS, Source


def inconsistencies(contract: Contract) -> Iterator[tuple[str, str]]:
    """What the types cannot say, as (key path, message)."""
    if not contract.gates:
        yield "id", "the contract has no gate"
    for number in contract.gates:
        terms = contract.gate(number)
        seen: set[str] = set()
        for index, clause in enumerate(terms.clause):
            path = f"gate{number}.clause.{index}"
            if not clause.id.startswith(f"G{number}."):
                yield f"{path}.id", f"clause {clause.id} stands in gate {number}"
            if clause.id in seen:
                yield f"{path}.id", f"clause {clause.id} stands twice"
            seen.add(clause.id)
            for problem in _clause_inconsistencies(contract, terms, clause):
                yield f"{path}.{problem[0]}", problem[1]
        for cells in _cell_plans(terms):
            if cells.workload not in contract.workloads:
                yield f"gate{number}.pairs.cells", f"unknown workload {cells.workload!r}"
        if terms.soak is not None and terms.soak.workload not in contract.workloads:
            yield f"gate{number}.soak.workload", f"unknown workload {terms.soak.workload!r}"


def _cell_plans(terms: GateTerms) -> tuple[CellPlan, ...]:
    plan = terms.pairs
    return () if plan is None else plan.cells + plan.reference_cells + plan.warmup


def _clause_inconsistencies(
    contract: Contract, terms: GateTerms, clause: Clause
) -> Iterator[tuple[str, str]]:
    metric = METRICS.get(clause.metric)
    if metric is None:
        yield "metric", f"unknown metric {clause.metric!r}; known: {', '.join(sorted(METRICS))}"
        return
    for key in ("arm", "reference_arm"):
        arm = getattr(clause, key, None)
        if arm is not None and arm not in contract.arms:
            yield key, f"unknown arm {arm!r}; known: {', '.join(contract.arms)}"
    for arm in getattr(clause, "compare", ()):
        if arm not in contract.arms:
            yield "compare", f"unknown arm {arm!r}; known: {', '.join(contract.arms)}"
    if isinstance(clause, LimitClause) and clause.unit != metric.unit:
        yield "unit", f"unit {clause.unit!r}, but {metric.name} is measured in {metric.unit!r}"
    if isinstance(clause, LimitClause) and metric.source is Source.FACT and clause.hosts is None:
        yield "metric", f"{metric.name} is a fact of hosts: name their group with `hosts`"
    if isinstance(clause, LimitClause) and metric.source is Source.BLOCK and not clause.levels:
        yield "metric", f"{metric.name} is measured in blocks: name arm, workload and levels"
    if isinstance(clause, CompareClause):
        known = BLOCK_STATISTICS.get(clause.metric, ())
        if clause.statistic not in known:
            yield "statistic", f"{clause.statistic!r} of {clause.metric}; known: {', '.join(known)}"
        planned = {(c.workload, level) for c in _cell_plans(terms) for level in c.levels}
        for level in clause.levels:
            if (clause.workload, level) not in planned:
                yield "levels", f"{clause.workload}@{level} is in no cell of the gate's plan"
