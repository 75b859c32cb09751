"""Runs the sessions of a gate: reference first, then pairs until the judge has seen enough."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from kvgate.adjudicate import Judged, reopened_by_change
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.earlier import ENDED, RUNNING, Earlier, block_digests
from kvgate.conduct.prime import Primed, pools_of, prime, send, still_holds
from kvgate.conduct.world import PUT_BACK, boot_id, changed_engine
from kvgate.contract import CompareClause, Contract, PairPlan
from kvgate.criterion import Effect
from kvgate.decide.judge import all_pairs
from kvgate.drive.arms import Arms, RunningArm
from kvgate.errors import GateClosed
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


def planned_sessions(contract: Contract, gate: int, plan: PairPlan, *, extension: bool) -> int:
    """Sessions of a whole run that measures every planned pair once."""
    pairs = plan.max_pairs if extension else plan.planned_pairs
    return (reference_session(contract, gate) is not None) + 2 * pairs


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
        self._earlier = earlier
        self._run = earlier.order_run
        self._judge_now = judge_now
        self._numbers = itertools.count(earlier.next_block)
        self._first_pair = earlier.next_pair
        # An extension may go on to the contract's limit; a first run stops where it was planned.
        self._target = plan.max_pairs if earlier.extension else plan.planned_pairs
        self._primed: dict[str, Primed] = {}
        self._sessions: list[dict[str, Any]] = [dict(s) for s in earlier.sessions]
        self._environment: dict[str, dict[str, Any]] = {
            arm: dict(info) for arm, info in earlier.environment.items()
        }

    def steps(self) -> int:
        """About how many blocks and priming steps there still will be."""
        reference = self._reference()
        blocks = 0 if reference is None else len(reference.cells)
        one = len(pair_order(self._bench.contract, self._bench.gate, self._plan, 0, self._run)
                  .sessions[0].cells)  # fmt: skip
        primed = sum(len(pools) for pools in self._to_prime().values())
        return blocks + 2 * one * max(1, self._plan.min_pairs - self._first_pair) + primed

    def _reference(self) -> Session | None:
        """The reference session where there is one and it was not measured yet."""
        if self._earlier.reference_done:
            return None
        return reference_session(self._bench.contract, self._bench.gate)

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
        """Prime, measure the reference session, then pairs.

        Where a run goes on, the judge is asked first: the pairs that stand may be enough already,
        and the looks that were taken at them stay taken.
        """
        first = self._first_pair
        if first >= self._plan.min_pairs and self._enough(self._judge_now(), first):
            return
        for arm, pools in self._to_prime().items():
            store = self._bench.contract.arms[arm].store
            before = self._primed_before(store)
            if before is not None:
                self._bench.progress.step(len(pools))
            self._primed[store] = before or prime(self._bench, self._arms, arm, pools)
        reference = self._reference()
        if reference is not None:
            self._session(reference, "reference")
        for pair in range(first, self._target + self._plan.spare_pairs):
            order = pair_order(self._bench.contract, self._bench.gate, self._plan, pair, self._run)
            for session in order.sessions:
                self._session(session, f"pair {pair + 1}")
            if pair + 1 >= self._plan.min_pairs and self._enough(self._judge_now(), pair + 1):
                return

    def _primed_before(self, store: str) -> Primed | None:
        """What the store was primed with before an interruption, where it vouches for it still."""
        noted = Primed.noted(self._earlier.primed.get(store))
        if noted is None or not still_holds(self._bench, store, noted):
            return None
        self._bench.progress.note(
            f"the store {store} still holds the {noted.tokens:,} tokens that it was primed with"
        )
        return noted

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
        session = replace(session, attempt=self._earlier.attempt(session.pair))
        bench.progress.doing(f"{title}: starting the {session.arm} arm")
        arm = self._arms.start(session.arm)
        self._same_engine(session.arm, arm.info)
        self._environment[session.arm] = dict(arm.info)
        noted: dict[str, Any] = {
            **asdict(session), "number": number, "cold": dict(arm.cold),
            "state": RUNNING, "boot_id": boot_id(), "blocks": {},
        }  # fmt: skip
        self._sessions.append(noted)
        self._write_plan()
        self._warm_up(number, session.arm, title)
        self._cells(session, arm, noted, title)
        # Only from here on the session counts: what an interruption leaves before is broken.
        noted["state"] = ENDED
        self._write_plan()

    def _cells(self, session: Session, arm: RunningArm, noted: dict[str, Any], title: str) -> None:
        bench = self._bench
        primed = self._primed.get(arm.store or "")
        tokens, by = (0, None) if primed is None else (primed.tokens, primed.by)
        last_kind = ""
        for cell in session.cells:
            kind = bench.contract.workloads[cell.workload].kind
            bench.progress.doing(f"{title}: {session.arm} {cell.label}")
            if kind != "warm" and last_kind:
                self._arms.reset_engine_cache()
            n = next(self._numbers)
            block = measure_block(bench, arm, Place(n, noted["number"], session, tokens, by), cell)
            noted["blocks"][str(n)] = block_digests(bench.journal.root, n)
            self._write_plan()
            bench.progress.step()
            last_kind = kind
            after = (block["observation"]["targets"].get("engine") or {}).get("after")
            if after is None:
                bench.progress.note(
                    f"block {n}: the engine of the {session.arm} arm no longer answers; "
                    "the rest of this session is not measured"
                )
                return

    def _same_engine(self, arm: str, info: Mapping[str, Any]) -> None:
        """Raises GateClosed where a run goes on and the arm is no longer what it was."""
        before = self._earlier.environment.get(arm)
        changed = "" if before is None else changed_engine(arm, before, info)
        if changed:
            raise GateClosed(
                f"{self._bench.journal.root.name} was interrupted and cannot go on: {changed}",
                where=str(self._bench.journal.root),
                remedy=PUT_BACK,
            )

    def _enough(self, judged: Judged, pairs: int) -> bool:
        """Whether another pair could still change something the contract lets it change."""
        if reopened_by_change(judged):
            return True
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
                "carried_blocks": self._earlier.carried_blocks,
                "primed_tokens": {store: one.tokens for store, one in self._primed.items()},
                "primed": {store: asdict(one) for store, one in self._primed.items()},
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
