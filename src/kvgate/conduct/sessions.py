"""Runs the sessions of a gate: reference first, then pairs until the judge has seen enough."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from kvgate.adjudicate import Judged, reopened_by_change
from kvgate.analyse.counters import ENGINE, seen_after
from kvgate.analyse.listed import ENDED, RUNNING
from kvgate.analyse.results import Ending
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.earlier import Earlier, block_digests
from kvgate.conduct.prime import Primed, pools_of, prime, send, still_holds, tokens_of
from kvgate.conduct.world import PUT_BACK, boot_id, changed_engine
from kvgate.contract import Contract, PairPlan
from kvgate.decide.ended import target_of, why_enough
from kvgate.drive.arms import Arms, RunningArm
from kvgate.errors import GateClosed
from kvgate.plan import (
    Cell,
    PromptRange,
    Session,
    Setup,
    cells_of,
    pair_orders,
    planned_setups,
    reference_sessions,
    seed_of,
    warmup_cells,
    warmup_prompts,
)


def planned_sessions(contract: Contract, gate: int, plan: PairPlan, *, extension: bool) -> int:
    """Sessions of a whole run that measures every planned pair once."""
    pairs = plan.max_pairs if extension else plan.planned_pairs
    setups = len(planned_setups(plan.cells))
    return len(reference_sessions(contract, gate)) + 2 * setups * pairs


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
        self._target = target_of(plan, extension=earlier.extension)
        self._primed: dict[str, Primed] = {}
        self._sessions: list[dict[str, Any]] = [dict(s) for s in earlier.sessions]
        self._environment: dict[str, dict[str, Any]] = {
            arm: dict(info) for arm, info in earlier.environment.items()
        }

    def steps(self) -> int:
        """About how many blocks and priming steps there still will be."""
        blocks = sum(len(reference.cells) for reference in self._references())
        one = len(cells_of(self._plan.cells))
        primed = sum(len(pools) for _, _, pools in self._to_prime())
        return blocks + 2 * one * max(1, self._plan.min_pairs - self._first_pair) + primed

    def _references(self) -> tuple[Session, ...]:
        """The reference sessions that were not measured yet."""
        if self._earlier.extension:
            return ()
        return tuple(
            session
            for session in reference_sessions(self._bench.contract, self._bench.gate)
            if not self._earlier.stands(None, session.setup)
        )

    def _to_prime(self) -> tuple[tuple[str, Setup, tuple[tuple[Cell, PromptRange], ...]], ...]:
        """Which arm with a store is primed with what, and in which setup its KV is written; the
        reference sessions restore too."""
        plan, arms = self._plan, self._bench.contract.arms
        wanted = dict.fromkeys(plan.compare, (plan.cells, plan.pools))
        if plan.reference_arm is not None and plan.reference_arm not in wanted:
            wanted[plan.reference_arm] = (plan.reference_cells, 1)
        found = []
        for arm, (cells, pools) in wanted.items():
            if arms[arm].store == "none":
                continue
            every = tuple(pools_of(self._bench, cells, pools))
            for setup in dict.fromkeys(cell.setup.stored for cell, _ in every):
                mine = tuple(pool for pool in every if pool[0].setup.stored == setup)
                found.append((arm, setup, mine))
        return tuple(found)

    def measure(self) -> None:
        """Prime, measure the reference session, then pairs.

        Where a run goes on, the judge is asked first: the pairs that stand may be enough already,
        and the looks that were taken at them stay taken.
        """
        self.end(self._until_enough())

    def end(self, why: Ending) -> None:
        """Note why nothing more is measured; a run without this note was broken off."""
        self._write_plan({"ended": why})

    def _until_enough(self) -> Ending:
        first = self._first_pair
        if first >= self._plan.min_pairs and (why := self._enough(first)) is not None:
            return why
        kept: set[str] = set()
        written: dict[str, dict[PromptRange, int]] = {}
        for arm, setup, pools in self._to_prime():
            store = self._bench.contract.arms[arm].store
            before = None if store in self._primed else self._primed_before(store)
            if before is not None:
                self._primed[store] = before
                kept.add(store)
            if store in kept:
                self._bench.progress.step(len(pools))
                continue
            primed = prime(self._bench, self._arms, arm, pools, setup)
            # What two arms or setups write into one store is held once.
            sent = written.setdefault(store, {})
            sent.update((prompts, tokens_of(self._bench, cell, prompts)) for cell, prompts in pools)
            self._primed[store] = replace(primed, tokens=sum(sent.values()))
        for reference in self._references():
            if not self._session(reference, reference.setup.of("reference")):
                return Ending.REOPENED
        for pair in range(first, self._target + self._plan.spare_pairs):
            orders = pair_orders(
                self._bench.contract, self._bench.gate, self._plan, pair, self._run
            )
            for order in orders:
                if self._earlier.stands(pair, order.setup):
                    continue  # measured whole before the interruption
                for session in order.sessions:
                    if not self._session(session, order.setup.of(f"pair {pair + 1}")):
                        return Ending.REOPENED
            if pair + 1 >= self._plan.min_pairs and (why := self._enough(pair + 1)) is not None:
                return why
        return Ending.TARGET

    def _primed_before(self, store: str) -> Primed | None:
        """What the store was primed with before an interruption, where it vouches for it still."""
        noted = Primed.noted(self._earlier.primed.get(store))
        if noted is None or not still_holds(self._bench, store, noted):
            return None
        self._bench.progress.note(
            f"the store {store} still holds the {noted.tokens:,} tokens that it was primed with"
        )
        return noted

    def _warm_up(self, number: int, session: Session, title: str) -> None:
        """Requests that nobody measures, so that the first block does not pay for a cold start."""
        bench, arm = self._bench, session.arm
        for cell in warmup_cells(self._plan, session.setup):
            bench.progress.doing(f"{title}: warming up the {arm} arm, {cell.label}")
            prompts = warmup_prompts(bench.gate, self._run, number, cell)
            send(bench, cell, prompts, cell.level, f"the warm-up of the {arm} arm")
        if self._plan.warmup:
            self._arms.reset_engine_cache(session.setup)

    def _session(self, session: Session, title: str) -> bool:
        """One arm brought up, all its cells measured; a dead engine ends the session early.

        False where the arm is not what an earlier gate saw, and the contract reopens that one:
        then nothing is measured on it.
        """
        bench, number = self._bench, len(self._sessions)
        setup = session.setup
        session = replace(session, attempt=self._earlier.attempt(session.pair, setup))
        bench.progress.doing(f"{title}: starting the {session.arm} arm")
        arm = self._arms.start(session.arm, setup)
        self._same_engine(setup.of(session.arm), arm.info)
        if self._reopened(setup.of(session.arm), arm.info):
            return False
        noted: dict[str, Any] = {
            **asdict(session), "setup": asdict(setup), "number": number, "cold": dict(arm.cold),
            "state": RUNNING, "boot_id": boot_id(), "blocks": {},
        }  # fmt: skip
        self._sessions.append(noted)
        self._write_plan()
        self._warm_up(number, session, title)
        self._cells(session, arm, noted, title)
        # Only from here on the session counts: what an interruption leaves before is broken.
        noted["state"] = ENDED
        self._write_plan()
        return True

    def _reopened(self, arm: str, info: Mapping[str, Any]) -> bool:
        """Note what an arm tells of itself, and ask the judge where it tells it for the first time
        or otherwise than before: the hours of a run that counts for nothing are not spent."""
        before = self._environment.get(arm)
        self._environment[arm] = dict(info)
        if before == self._environment[arm]:
            return False
        self._write_plan()
        judged = self._judge_now()
        if reopened_by_change(judged):
            self._bench.progress.note(f"nothing more is measured: {judged.verdict.reason}")
            return True
        return False

    def _cells(self, session: Session, arm: RunningArm, noted: dict[str, Any], title: str) -> None:
        bench = self._bench
        primed = self._primed.get(arm.store or "")
        primed = primed or Primed(0)
        last_kind = ""
        for cell in session.cells:
            kind = bench.contract.workloads[cell.workload].kind
            bench.progress.doing(f"{title}: {session.arm} {cell.label}")
            if kind != "warm" and last_kind:
                self._arms.reset_engine_cache(session.setup)
            n = next(self._numbers)
            place = Place(
                n, noted["number"], session, primed.tokens, primed.by, primed.started_ms
            )  # fmt: skip
            block = measure_block(bench, arm, place, cell)
            noted["blocks"][str(n)] = block_digests(bench.journal.root, n)
            self._write_plan()
            bench.progress.step()
            last_kind = kind
            if not seen_after(block, ENGINE):
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

    def _enough(self, pairs: int) -> Ending | None:
        """Why another pair could change nothing that the contract lets it change; else None."""
        judged = self._judge_now()
        if reopened_by_change(judged):
            return Ending.REOPENED
        return why_enough(
            judged.contract, self._bench.gate, judged.analysis, judged.verdict.clauses,
            pairs=pairs, extension=self._earlier.extension,
        )  # fmt: skip

    def _write_plan(self, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        bench = self._bench
        bench.journal.write_json(
            "plan.json",
            {
                "gate": bench.gate,
                "order_run": self._run,
                "seed": seed_of(bench.contract, "order", bench.gate, self._run),
                "setups": [asdict(setup) for setup in planned_setups(self._plan.cells)],
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
                **more,
            },
        )
