"""What a gate costs in hours, and when in the campaign they must be found. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvgate.cells import Cell, cells_of
from kvgate.contract import Contract, PairPlan
from kvgate.errors import UsageError
from kvgate.reuse import shared_parts

Cells = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Durations:
    """What the steps of a campaign cost, in seconds of the platform's time.

    ``prime_s`` is the time to compute one prompt: to prime it, or to recompute it where no store
    holds it. ``request_s`` is the engine's time for one restored request in a full closed loop:
    level / throughput.
    """

    start_s: float
    prime_s: float
    request_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Hours of a gate: ``fixed_h`` once (priming, reference session), ``pair_h`` for each pair.

    Two other ways to measure the same pairs stand beside it. ``blockwise_pair_h`` is a pair whose
    every block starts the engine anew, with the same primed pools. ``fresh_pair_h`` is one whose
    every block also primes prompts of its own; it needs ``fresh_fixed_h`` once.
    """

    fixed_h: float
    pair_h: float
    blockwise_pair_h: float
    fresh_fixed_h: float
    fresh_pair_h: float

    def hours(self, pairs: float) -> float:
        """Sessions, with the pools primed once."""
        return self.fixed_h + self.pair_h * pairs

    def blockwise_hours(self, pairs: float) -> float:
        """The engine started anew for every block, the pools primed once."""
        return self.fixed_h + self.blockwise_pair_h * pairs

    def fresh_hours(self, pairs: float) -> float:
        """The engine started anew for every block, each with prompts primed for it alone."""
        return self.fresh_fixed_h + self.fresh_pair_h * pairs


def cost(contract: Contract, gate: int, durations: Durations) -> Cost:
    """From the plan's cells: every session starts the engines once and measures every cell of its
    setup once.

    A pool of prompts is primed once in every arm that has a store, and once more for every way in
    which its KV is stored: another parallelism or strategy, never another distance.
    """
    plan = pairs_of(contract, gate)
    cells, reference = cells_of(plan.cells), cells_of(plan.reference_cells)
    sessions = 2 * len({cell.setup for cell in cells})

    def measured_s(arm: str, chosen: Cells) -> float:
        return sum(
            contract.workloads[c.workload].requests_per_level * c.level
            * _request_s(contract, arm, c.workload, durations)
            for c in chosen
        )  # fmt: skip

    pair_s = sum(measured_s(arm, cells) for arm in plan.compare)
    restored = dict.fromkeys(plan.compare, (cells, plan.pools))
    if plan.reference_arm is not None:
        restored.setdefault(plan.reference_arm, (reference, 1))
    priming_s, fresh_s = 0.0, 0.0
    for arm, (chosen, pools) in restored.items():
        if contract.arms[arm].store != "none":
            starts = len({cell.setup.stored for cell in chosen})
            primed_s = _primed(contract, chosen, pools) * durations.prime_s
            priming_s += starts * durations.start_s + primed_s
    for arm in plan.compare:
        if contract.arms[arm].store != "none":
            fresh_s += _primed(contract, cells, 1) * durations.prime_s
    reference_s = 0.0
    if plan.reference_arm is not None:
        starts = len({cell.setup for cell in reference})
        reference_s = starts * durations.start_s + measured_s(plan.reference_arm, reference)
    restarts_s = 2 * len(cells) * durations.start_s
    return Cost(
        (priming_s + reference_s) / 3600,
        (sessions * durations.start_s + pair_s) / 3600,
        (restarts_s + pair_s) / 3600,
        reference_s / 3600,
        (restarts_s + fresh_s + pair_s) / 3600,
    )


def _request_s(contract: Contract, arm: str, workload: str, durations: Durations) -> float:
    """The engine's time for one request: the prompt computed where no store holds it."""
    kind = contract.workloads[workload].kind
    computed = kind == "miss" or (contract.arms[arm].store == "none" and kind != "warm")
    return max(durations.prime_s, durations.request_s) if computed else durations.request_s


def _primed(contract: Contract, cells: Cells, pools: int) -> int:
    """Prompts that an arm's store is given: every pool of the cold cells, and the probes once."""
    prompts = 0
    stored = dict.fromkeys((c.workload, c.level, c.setup.stored) for c in cells)
    for name, level, _ in stored:
        workload = contract.workloads[name]
        shared = shared_parts(workload, contract.model.chunk_tokens)
        count = {"cold_restore": pools, "probe": 1}.get(workload.kind, 0)
        prompts += count * workload.requests_per_level * level
        prompts += 0 if shared is None else pools * shared.groups
    return prompts


def pairs_of(contract: Contract, gate: int) -> PairPlan:
    """The gate's plan of pairs. Raises UsageError where it has none."""
    plan = contract.gate(gate).pairs
    if plan is None:
        raise UsageError(f"gate {gate} of {contract.id} measures no pairs", remedy="add its plan")
    return plan


@dataclass(frozen=True, slots=True)
class Calendar:
    """One gate in the calendar: hours of one run at the most, hours with every granted retest and
    rerun, and the days between its deadline and that of the gate before. ``hours`` is None for a
    gate that takes facts alone."""

    gate: int
    deadline_day: int
    window_days: int
    hours: float | None
    granted_hours: float | None

    @property
    def fits(self) -> bool:
        """Whether one run at the most fits between the deadlines, day and night."""
        return self.hours is None or self.hours <= 24 * self.window_days


def calendar(contract: Contract, durations: Durations) -> tuple[Calendar, ...]:
    """Every gate with what it takes and the days that it has."""
    found = []
    before = 0
    for gate in contract.gates:
        terms = contract.gate(gate)
        hours: float | None = None
        if terms.pairs is not None:
            hours = cost(contract, gate, durations).hours(terms.pairs.max_pairs)
        elif terms.soak is not None:
            hours = terms.soak.duration_s / 3600
        runs = 1 + terms.retests + terms.reruns
        found.append(
            Calendar(
                gate,
                terms.deadline_day,
                terms.deadline_day - before,
                hours,
                None if hours is None else hours * runs,
            )
        )
        before = terms.deadline_day
    return tuple(found)
