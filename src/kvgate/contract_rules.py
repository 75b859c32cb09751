"""What the types of a contract cannot say: names that must exist, directions, what is planned.

Each rule yields the path of the key at fault and a message. A clause that could never be judged, or
that would reward the worse appliance, is refused before anybody signs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from kvgate.cells import (
    AXES,
    DEFAULT,
    LOCAL,
    Cell,
    cell_in,
    cells_of,
    in_setups,
    measured_in,
    of_clause,
)
from kvgate.contract_gates import (
    AnswersClause,
    CellPlan,
    Clause,
    CompareClause,
    ErrorsClause,
    GateTerms,
    LimitClause,
    PairPlan,
    SoakPlan,
)
from kvgate.contract_tables import Arm, Distance, Parallelism, Workload
from kvgate.criterion import BLOCK_STATISTICS, LESS_IS_BETTER, METRICS, Effect, Metric, Source
from kvgate.reuse import FRESH_KINDS

T = TypeVar("T")
Problem = tuple[str, str]
Gates = Mapping[int, GateTerms]
Axes = Mapping[str, Mapping[str, object]]
"""The names that the contract defines on each axis."""
DEVICE_ARM = "appliance"
"""The arm that is brought up to ask the appliance what it is."""


def inconsistencies(
    gates: Gates,
    arms: Mapping[str, Arm],
    workloads: Mapping[str, Workload],
    axes: Axes | None = None,
) -> Iterator[Problem]:
    """Every fault as (key path, message), gate by gate; ``axes``: none is defined."""
    axes = axes or {axis: {} for axis in AXES}
    if not gates:
        yield "id", "the contract has no gate"
    seen_names: dict[str, str] = {}
    for axis in AXES:
        for name in axes[axis]:
            if name in seen_names:
                # Blocks are called by them: cold_restore@16/tp8/wan.
                yield f"{axis}.{name}", f"{name!r} is a name of {seen_names[name]} already"
            seen_names[name] = axis
    before = 0
    for number, terms in gates.items():
        at = f"gate{number}"
        if terms.deadline_day < before:
            told = f"day {terms.deadline_day} is before the gate before's, day {before}"
            yield f"{at}.deadline_day", told
        before = terms.deadline_day
        yield from ((f"{at}.{path}", told) for path, told in _plan(terms, arms, workloads))
        yield from ((f"{at}.{path}", told) for path, told in _setups(terms, axes))
        seen: set[str] = set()
        for index, clause in enumerate(terms.clause):
            path = f"{at}.clause.{index}"
            if not clause.id.startswith(f"G{number}."):
                yield f"{path}.id", f"clause {clause.id} stands in gate {number}"
            if clause.id in seen:
                yield f"{path}.id", f"clause {clause.id} stands twice"
            seen.add(clause.id)
            for key, told in _clause(terms, clause, arms):
                yield f"{path}.{key}", told
    yield from _ways(gates, axes)


def _plan(
    terms: GateTerms, arms: Mapping[str, Arm], workloads: Mapping[str, Workload]
) -> Iterator[Problem]:
    plan, soak = terms.pairs, terms.soak
    if plan is not None and soak is not None:
        yield "soak", "a gate measures pairs or a soak, not both"
    if plan is not None:
        for arm in plan.compare:
            if arm not in arms:
                yield "pairs.compare", _unknown_arm(arm, arms)
        if plan.reference_arm is not None and plan.reference_arm not in arms:
            yield "pairs.reference_arm", _unknown_arm(plan.reference_arm, arms)
        if (plan.reference_arm is None) != (not plan.reference_cells):
            yield "pairs.reference_arm", "reference_arm and reference_cells belong together"
        for key in ("cells", "reference_cells", "warmup"):
            for cells in getattr(plan, key):
                if cells.workload not in workloads:
                    yield f"pairs.{key}", f"unknown workload {cells.workload!r}"
                elif key == "warmup" and workloads[cells.workload].kind == "multi_turn":
                    yield "pairs.warmup", "one request a stream is no conversation"
        yield from _one_store(plan, arms, workloads)
        twice = _repeated(cells_of(plan.cells))
        if twice:
            yield "pairs.cells", f"the cell {twice.label} stands twice"
    if soak is not None:
        yield from _soak(soak, arms, workloads)


def _one_store(
    plan: PairPlan, arms: Mapping[str, Arm], workloads: Mapping[str, Workload]
) -> Iterator[Problem]:
    """Both arms of a pair get the same prompts: in one store the second arm would find what is new
    to the first. An arm compared with itself gets prompts of its own instead."""
    first, second = plan.compare
    stores = {arms[arm].store for arm in plan.compare if arm in arms}
    if first == second or len(stores) != 1 or "none" in stores or {first, second} - set(arms):
        return
    for cells in plan.cells:
        workload = workloads.get(cells.workload)
        if workload is not None and workload.kind in {"miss"} | FRESH_KINDS:
            told = f"{first} and {second} share the store {stores.pop()}: the second would find"
            told += f" there what {cells.workload} sends the first as new; give each arm its own"
            yield "pairs.compare", told
            return


def _setups(terms: GateTerms, axes: Axes) -> Iterator[Problem]:
    """What the plan says of setups: names that exist, levels that several engines can share."""
    if terms.soak is not None:
        for axis, plain in zip(AXES, (DEFAULT, DEFAULT, LOCAL), strict=True):
            name = getattr(terms.soak, axis)
            if name not in axes[axis] and name != plain:
                yield f"soak.{axis}", _unknown(axis, name, axes)
        terms_of = axes["parallelism"].get(terms.soak.parallelism)
        if isinstance(terms_of, Parallelism) and terms_of.instances > 1:
            yield "soak.parallelism", "a long run is served by one engine"
    if terms.pairs is None:
        return
    measured = (*terms.pairs.cells, *terms.pairs.reference_cells)
    every = dict.fromkeys(name for line in measured for name in line.parallelism)
    for key in ("cells", "reference_cells", "warmup"):
        lines: tuple[CellPlan, ...] = getattr(terms.pairs, key)
        for line in lines:
            for axis, plain in zip(AXES, (DEFAULT, DEFAULT, LOCAL), strict=True):
                for name in getattr(line, axis):
                    if name not in axes[axis] and name != plain:
                        yield f"pairs.{key}", _unknown(axis, name, axes)
                    if key == "warmup" and name != plain:
                        yield "pairs.warmup", f"it runs in every setup: leave out {axis}"
            # The warm-up runs in every setup of the pairs and of the reference.
            for name in every if key == "warmup" else line.parallelism:
                shared = axes["parallelism"].get(name)
                engines = shared.instances if isinstance(shared, Parallelism) else 1
                uneven = [level for level in line.levels if level % engines]
                if uneven:
                    told = f"level {uneven[0]} cannot be split evenly over {engines} engines"
                    yield f"pairs.{key}", f"{told} of {name}"


def _ways(gates: Gates, axes: Axes) -> Iterator[Problem]:
    """A distance is a gain over the plain way, so the plain way must be known."""
    far = next((n for terms in gates.values() for n in _distances(terms) if n != LOCAL), None)
    local = axes["distance"].get(LOCAL)
    if local is None and far is not None:
        yield (
            f"distance.{far}",
            f"{far} is planned: say in [distance.{LOCAL}] what the plain way is",
        )
    elif isinstance(local, Distance) and local.round_trip_ms_at_most is None:
        told = "missing key: else a way that was long before is not seen"
        yield f"distance.{LOCAL}.round_trip_ms_at_most", told


def _distances(terms: GateTerms) -> Iterator[str]:
    """The distances that a gate plans."""
    if terms.soak is not None:
        yield terms.soak.distance
    if terms.pairs is not None:
        for line in (*terms.pairs.cells, *terms.pairs.reference_cells):
            yield from line.distance


def _unknown(axis: str, name: str, axes: Axes) -> str:
    known = ", ".join(axes[axis]) or "none is defined"
    return f"unknown {axis} {name!r}; known: {known}"


def _unplanned(clause: Clause, cells: Sequence[Cell]) -> Iterator[Problem]:
    """The setups that a clause names and in which none of ``cells`` is planned."""
    for axis in AXES:
        for name in getattr(clause, axis):
            if not any(getattr(c, axis) == name and in_setups(clause, c) for c in cells):
                yield axis, f"{name} is in no cell of the gate's plan of which the clause speaks"


def _uneven(clause: CompareClause | LimitClause, cells: Sequence[Cell]) -> Iterator[Problem]:
    """A level that one setup of the clause's workload plans and another does not: "every level in
    every setup" would quietly be fewer cells than it says."""
    mine = [c for c in cells if c.workload == clause.workload and in_setups(clause, c)]
    for setup in dict.fromkeys(cell.setup for cell in mine):
        planned = {cell.level for cell in mine if cell.setup == setup}
        missing = next((level for level in clause.levels if level not in planned), None)
        if missing is not None:
            where = cell_in(setup, str(clause.workload), missing).label
            yield "levels", f"{where} is not planned: plan it, or name the clause's setups"
            return


def _soak(
    soak: SoakPlan, arms: Mapping[str, Arm], workloads: Mapping[str, Workload]
) -> Iterator[Problem]:
    if soak.arm not in arms:
        yield "soak.arm", _unknown_arm(soak.arm, arms)
    if soak.workload not in workloads:
        yield "soak.workload", f"unknown workload {soak.workload!r}"
    elif workloads[soak.workload].kind != "cold_restore":
        yield "soak.workload", f"{soak.workload} is no cold restore: it would not ask the store"
    if soak.window_s > soak.duration_s:
        yield "soak.window_s", "a window is longer than the soak"
    if soak.warmup_s >= soak.duration_s:
        yield "soak.warmup_s", "the warm-up is as long as the soak"
    elif soak.warmup_s + 2 * soak.edge_s > soak.duration_s:
        yield "soak.edge_s", "first and last stretch overlap: make edge_s shorter"
    if soak.edge_s < soak.window_s:
        yield "soak.edge_s", "a stretch shorter than a window has no value"
    late = [fault for fault in soak.faults if fault.at_s >= soak.duration_s]
    if late:
        yield "soak.faults", f"{late[0].kind} at {late[0].at_s:g} s lies behind the soak's end"
    canaries = soak.canaries
    if canaries is None:
        return
    if canaries.workload not in workloads or workloads[canaries.workload].kind != "probe":
        yield "soak.canaries.workload", f"{canaries.workload!r} is no workload of kind probe"
    if canaries.every_s > soak.window_s:
        yield "soak.canaries.every_s", "a window would have no canary: make every_s shorter"
    if canaries.reference_arm not in arms:
        yield "soak.canaries.reference_arm", _unknown_arm(canaries.reference_arm, arms)
    elif arms[canaries.reference_arm].store != "none":
        yield "soak.canaries.reference_arm", "the reference must have no store"


def _clause(terms: GateTerms, clause: Clause, arms: Mapping[str, Arm]) -> Iterator[Problem]:
    metric = METRICS.get(clause.metric)
    if metric is None:
        yield "metric", f"unknown metric {clause.metric!r}; known: {', '.join(sorted(METRICS))}"
        return
    for key in ("arm", "reference_arm"):
        arm = getattr(clause, key, None)
        if arm is not None and arm not in arms:
            yield key, _unknown_arm(arm, arms)
    for arm in getattr(clause, "compare", ()):
        if arm not in arms:
            yield "compare", _unknown_arm(arm, arms)
    levels = getattr(clause, "levels", ())
    if _repeated(levels) is not None:
        yield "levels", f"level {_repeated(levels)} stands twice"
    if isinstance(clause, CompareClause):
        yield from _compare(terms, clause)
    elif isinstance(clause, LimitClause):
        yield from _limit(terms, clause, metric, arms)
    elif isinstance(clause, AnswersClause):
        yield from _answers(terms, clause)
    else:
        yield from _errors(terms, clause)


def _compare(terms: GateTerms, clause: CompareClause) -> Iterator[Problem]:
    known = BLOCK_STATISTICS.get(clause.metric, ())
    if clause.statistic not in known:
        yield "statistic", f"{clause.statistic!r} of {clause.metric}; known: {', '.join(known)}"
    less = clause.metric in LESS_IS_BETTER
    if clause.effect is Effect.GAIN and less:
        yield Effect.GAIN.value, f"a gain of {clause.metric} is a loss: write drop_at_least"
    if clause.effect in {Effect.DROP, Effect.RISE} and not less:
        yield clause.effect.value, f"{clause.metric} is better when larger: write gain_at_least"
    plan = terms.pairs
    planned = () if plan is None else cells_of(plan.cells)
    spoken = of_clause(clause, planned)
    yield from _unplanned(clause, spoken)
    for level in clause.levels:
        if not any(cell.level == level for cell in spoken):
            yield "levels", f"{clause.workload}@{level} is in no cell of the gate's plan of pairs"
    yield from _uneven(clause, planned)
    if plan is not None and clause.compare != plan.compare:
        yield "compare", f"the gate's pairs compare {' with '.join(plan.compare)}"


def _limit(
    terms: GateTerms, clause: LimitClause, metric: Metric, arms: Mapping[str, Arm]
) -> Iterator[Problem]:
    if clause.unit != metric.unit:
        yield "unit", f"unit {clause.unit!r}, but {metric.name} is measured in {metric.unit!r}"
    if metric.unit == "text" and not isinstance(clause.equals, str):
        yield "metric", f'{metric.name} is a text: write equals = "..."'
    if metric.unit != "text" and isinstance(clause.equals, str):
        yield "equals", f"{metric.name} is a number, not a text"
    less = metric.name in LESS_IS_BETTER
    named = next((axis for axis in AXES if getattr(clause, axis)), None)
    if named is not None and metric.source is not Source.BLOCK:
        yield named, f"{metric.name} is not measured in blocks: leave out {named}"
    if clause.floor is not None and less:
        yield "floor", f"{metric.name} is better when smaller: write ceiling"
    if clause.ceiling is not None and not less and metric.unit != "text":
        yield "ceiling", f"{metric.name} is better when larger: write floor"
    if metric.source is Source.FACT:
        if clause.hosts is None:
            yield "metric", f"{metric.name} is a fact of hosts: name their group with `hosts`"
        if metric.name.startswith("device_") and DEVICE_ARM not in arms:
            yield "metric", f"{metric.name} is asked in an arm named {DEVICE_ARM!r}: there is none"
    elif metric.source is Source.BLOCK:
        if clause.arm is None or clause.workload is None or not clause.levels:
            yield "metric", f"{metric.name} is measured in blocks: name arm, workload and levels"
        measured = _measured_in(terms, clause.arm)
        spoken = of_clause(clause, measured)
        yield from _unplanned(clause, spoken)
        for level in clause.levels:
            if not any(cell.level == level for cell in spoken):
                yield "levels", f"{clause.workload}@{level} of {clause.arm} is in no cell of a plan"
        yield from _uneven(clause, measured)
    elif metric.source is Source.ANSWERS:
        yield "metric", f"{metric.name} needs reference_arm, arm, workload and their tolerance"
    elif terms.soak is None:
        yield "metric", f"{metric.name} is measured in a soak, and the gate has none"
    elif metric.name == "soak_wrong_answers" and terms.soak.canaries is None:
        yield "metric", "soak_wrong_answers needs the soak's canaries"
    elif metric.name in {"fault_proved", "fault_recovery_time"} and not terms.soak.faults:
        yield "metric", f"{metric.name} needs faults in the soak's plan"


def _answers(terms: GateTerms, clause: AnswersClause) -> Iterator[Problem]:
    if clause.metric != "wrong_answers":
        yield "metric", "answers are compared under the metric wrong_answers"
    if clause.arm == clause.reference_arm:
        yield "reference_arm", "an arm's answers are always equal to its own"
    asked = {}
    for arm in (clause.reference_arm, clause.arm):
        asked[arm] = of_clause(clause, _measured_in(terms, arm))
        if not asked[arm]:
            yield "workload", f"{clause.workload} of {arm} is in no cell of the gate's plan"
    yield from _unplanned(clause, asked[clause.arm])
    # Each stored setup has probes of its own, and only the same probes can be compared.
    answered = {cell.setup.stored for cell in asked[clause.reference_arm]}
    for cell in asked[clause.arm]:
        if answered and cell.setup.stored not in answered:
            yield "reference_arm", f"{clause.reference_arm} answers no probe of {cell.label}"
            break


def _errors(terms: GateTerms, clause: ErrorsClause) -> Iterator[Problem]:
    if clause.metric != "failed_requests":
        yield "metric", "errors are compared under the metric failed_requests"
    if clause.compare[0] == clause.compare[1]:
        yield "compare", "an arm cannot have errors that it does not have itself"
    for arm in clause.compare:
        spoken = of_clause(clause, _measured_in(terms, arm))
        if not spoken:
            yield "compare", f"the gate's plan measures nothing of {arm}"
    tested = of_clause(clause, _measured_in(terms, clause.compare[1]))
    yield from _unplanned(clause, tested)
    # Engines that share the host in another way can fail by themselves: healthy ones beside them
    # are what a failure is held against.
    healthy = {cell.setup.stored for cell in _measured_in(terms, clause.compare[0])}
    alone = next((cell for cell in tested if healthy and cell.setup.stored not in healthy), None)
    if alone is not None:
        yield "compare", f"{clause.compare[0]} is not measured in the setup of {alone.label}"


def _measured_in(terms: GateTerms, arm: str | None) -> tuple[Cell, ...]:
    """The cells in which the gate measures an arm."""
    return () if terms.pairs is None else measured_in(terms.pairs, arm)


def _repeated(items: Sequence[T]) -> T | None:
    return next((item for i, item in enumerate(items) if item in items[:i]), None)


def _unknown_arm(arm: str, arms: Mapping[str, Arm]) -> str:
    return f"unknown arm {arm!r}; known: {', '.join(arms)}"
