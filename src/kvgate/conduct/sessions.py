"""Runs the sessions of a gate: reference first, then pairs until the judge has seen enough."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvgate.adjudicate import Judged
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.prime import pools_of, prime, send
from kvgate.contract import CompareClause, PairPlan
from kvgate.criterion import Effect
from kvgate.decide.judge import all_pairs
from kvgate.drive.arms import Arms
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.journal import Journal
from kvgate.plan import (
    Cell,
    PromptRange,
    Session,
    cells_of,
    pair_order,
    reference_session,
    seed_of,
    warmup_prompts,
)
from kvgate.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Earlier:
    """Where this run goes on: after nothing, or after the pairs of an inconclusive run.

    ``order_run`` seeds the order of arms, so that a couple begun earlier is completed.
    """

    order_run: int
    next_block: int = 0
    next_pair: int = 0
    sessions: tuple[dict[str, Any], ...] = ()


def carry_over(journal: Journal, bundle: Path) -> Earlier:
    """Copy the measured blocks of an inconclusive run into this bundle, under their own numbers.

    Raises CannotMeasure where its evidence cannot be read.
    """
    source = load_bundle(bundle)
    plan: Mapping[str, Any] = source.plan or {}
    pairs = [-1]
    numbers = [-1]
    for block in source.blocks:
        if block.block is None:
            continue
        folder = journal.block_dir(block.n)
        for path in (block.requests_path, block.engine_path, block.host_path):
            if path is not None:
                shutil.copyfile(path, folder / path.name)
        journal.finish_block(block.n, block.block)
        numbers.append(block.n)
        if block.block["pair"] is not None:
            pairs.append(int(block.block["pair"]))
    return Earlier(
        order_run=int(plan.get("order_run", 1)),
        next_block=max(numbers) + 1,
        next_pair=max(pairs) + 1,
        sessions=tuple(dict(s) for s in plan.get("sessions") or ()),
    )


class Sessions:
    """The sessions of one gate run, in order, each written down before and after."""

    def __init__(
        self,
        bench: Bench,
        arms: Arms,
        plan: PairPlan,
        earlier: Earlier,
        judge_now: Callable[[], Judged],
    ) -> None:
        self._bench = bench
        self._arms = arms
        self._plan = plan
        self._run = earlier.order_run
        self._judge_now = judge_now
        self._numbers = itertools.count(earlier.next_block)
        self._first_pair = earlier.next_pair
        # An extension may go on to the contract's limit; a first run stops where it was planned.
        self._target = plan.max_pairs if earlier.next_pair else plan.planned_pairs
        self._primed: dict[str, int] = {}
        self._sessions: list[dict[str, Any]] = list(earlier.sessions)
        self._environment: dict[str, dict[str, Any]] = {}

    def steps(self) -> int:
        """About how many blocks and priming steps there will be."""
        reference = reference_session(self._bench.contract, self._bench.gate)
        blocks = 0 if reference is None else len(reference.cells)
        one = len(pair_order(self._bench.contract, self._bench.gate, self._plan, 0, self._run)
                  .sessions[0].cells)  # fmt: skip
        primed = sum(len(pools) for pools in self._to_prime().values())
        return blocks + 2 * one * self._plan.min_pairs + primed

    def _to_prime(self) -> dict[str, tuple[tuple[Cell, PromptRange], ...]]:
        """What each arm with a store has to be primed with; the reference session restores too."""
        plan, arms = self._plan, self._bench.contract.arms
        wanted = dict.fromkeys(plan.compare, (plan.cells, plan.pools))
        if plan.reference_arm is not None and plan.reference_arm not in wanted:
            wanted[plan.reference_arm] = (plan.reference_cells, 1)
        return {
            arm: tuple(pools_of(self._bench, cells, pools))
            for arm, (cells, pools) in wanted.items()
            if arms[arm].store != "none"
        }

    def measure(self) -> None:
        """Prime, measure the reference session, then pairs."""
        for arm, pools in self._to_prime().items():
            store = self._bench.contract.arms[arm].store
            self._primed[store] = prime(self._bench, self._arms, arm, pools)
        reference = reference_session(self._bench.contract, self._bench.gate)
        if reference is not None and not self._first_pair:
            self._session(reference, "reference")
        for pair in range(self._first_pair, self._target + self._plan.spare_pairs):
            order = pair_order(self._bench.contract, self._bench.gate, self._plan, pair, self._run)
            for session in order.sessions:
                self._session(session, f"pair {pair + 1}")
            if pair + 1 >= self._plan.min_pairs and self._enough(self._judge_now(), pair + 1):
                return

    def _warm_up(self, number: int, arm: str, title: str) -> None:
        """Requests that nobody measures, so that the first block does not pay for a cold start."""
        bench = self._bench
        for cell in cells_of(self._plan.warmup):
            bench.progress.doing(f"{title}: warming up the {arm} arm, {cell.label}")
            prompts = warmup_prompts(bench.gate, self._run, number, cell)
            workload = bench.contract.workloads[cell.workload]
            send(bench, workload, prompts, cell.level, f"the warm-up of the {arm} arm")
        if self._plan.warmup:
            self._arms.reset_engine_cache()

    def _session(self, session: Session, title: str) -> None:
        """One arm brought up, all its cells measured; a dead engine ends the session early."""
        bench, number = self._bench, len(self._sessions)
        bench.progress.doing(f"{title}: starting the {session.arm} arm")
        arm = self._arms.start(session.arm)
        self._environment[session.arm] = dict(arm.info)
        self._sessions.append({**asdict(session), "number": number, "cold": dict(arm.cold)})
        self._write_plan()
        self._warm_up(number, session.arm, title)
        primed = self._primed.get(arm.store or "", 0)
        last_kind = ""
        for cell in session.cells:
            kind = bench.contract.workloads[cell.workload].kind
            bench.progress.doing(f"{title}: {session.arm} {cell.label}")
            if kind != "warm" and last_kind:
                self._arms.reset_engine_cache()
            n = next(self._numbers)
            block = measure_block(bench, arm, Place(n, number, session, primed), cell)
            bench.progress.step()
            last_kind = kind
            after = (block["observation"]["targets"].get("engine") or {}).get("after")
            if after is None:
                bench.progress.note(
                    f"block {n}: the engine of the {session.arm} arm no longer answers; "
                    "the rest of this session is not measured"
                )
                return

    def _enough(self, judged: Judged, pairs: int) -> bool:
        """Whether another pair could still change something the contract lets it change."""
        compared = [
            c
            for clause, c in zip(
                judged.contract.gate(self._bench.gate).clause, judged.verdict.clauses, strict=True
            )
            if isinstance(clause, CompareClause) and clause.effect is not Effect.SAME
        ]
        if any(c.verdict is Verdict.FAIL for c in judged.verdict.clauses):
            return True
        pairs_so_far = all_pairs(judged.contract, self._bench.gate, judged.analysis)
        at_fault = {p.number for p in pairs_so_far if p.against_appliance}
        if not any(p.valid for p in pairs_so_far) and not (
            0 < len(at_fault) < self._plan.min_pairs
        ):
            # Not one usable pair after min_pairs: more of the same will not help, unless what
            # speaks against the appliance is not yet enough to hold it against it.
            return True
        wanted = self._plan.min_pairs if compared else self._target
        settled = all(c.verdict is Verdict.PASS for c in judged.verdict.clauses)
        fewest = _fewest_valid(judged, self._bench.gate)
        if settled and fewest >= wanted:
            return True
        return pairs >= self._target and fewest >= self._target

    def _write_plan(self) -> None:
        bench = self._bench
        bench.journal.write_json(
            "plan.json",
            {
                "gate": bench.gate,
                "order_run": self._run,
                "seed": seed_of(bench.contract, "order", bench.gate, self._run),
                "compare": list(self._plan.compare),
                "pairs": {
                    "min": self._plan.min_pairs,
                    "planned": self._plan.planned_pairs,
                    "max": self._plan.max_pairs,
                    "spare": self._plan.spare_pairs,
                },
                "primed_tokens": dict(self._primed),
                "sessions": self._sessions,
                "environment": self._environment,
            },
        )


def _fewest_valid(judged: Judged, gate: int) -> int:
    """The number of valid pairs in the cell that has the fewest."""
    counts: dict[str, int] = {}
    for pair in all_pairs(judged.contract, gate, judged.analysis):
        label = pair.reference.cell.label
        counts[label] = counts.get(label, 0) + pair.valid
    return min(counts.values(), default=0)
