"""Fills the stores with the prompts that later blocks restore, and waits until they acknowledge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kvgate.analyse.acknowledged import (
    Said,
    held_tokens,
    is_busy,
    lies_behind,
    taken_tokens,
    witness,
)
from kvgate.analyse.counters import value
from kvgate.conduct.block import CLIENT_GRACE_S, Bench, block_job
from kvgate.contract import CellPlan
from kvgate.contract_tables import Workload
from kvgate.drive.arms import Arms
from kvgate.errors import CannotMeasure
from kvgate.load.job import Progress as Counts
from kvgate.load.run import run_load
from kvgate.observe.adapters import adapter_for
from kvgate.observe.scrape import scrape
from kvgate.plan import Cell, PromptRange, Session, Setup, cells_of, stored_prompts
from kvgate.reuse import SHARED_KINDS, shared_parts

PRIME_CONCURRENCY = 8
POLL_S = 0.2
PLAIN = Setup()
FIRST_LOOK_S = 30.0


def pools_of(
    bench: Bench, cells: tuple[CellPlan, ...], pools: int
) -> Iterator[tuple[Cell, PromptRange]]:
    """Every pool of prompts that some block of ``cells`` will restore, each once."""
    seen: set[PromptRange] = set()
    for pool in range(pools):
        session = Session("", "test", pool, 0, pool, ())
        for cell in dict.fromkeys(cells_of(cells)):
            prompts = stored_prompts(bench.contract, bench.gate, session, cell)
            if prompts is not None and prompts not in seen:
                seen.add(prompts)
                yield cell, prompts


@dataclass(frozen=True, slots=True)
class Primed:
    """What a store acknowledged when it was primed: tokens sent, and what it said of itself then.

    ``started_ms`` is the start of its process, ``stored`` what it held (tokens), ``by`` the counter
    that acknowledged; None where it does not say.
    """

    tokens: int
    started_ms: int | None = None
    stored: float | None = None
    by: str | None = None

    @classmethod
    def noted(cls, plain: Mapping[str, object] | None) -> Primed | None:
        """From ``plan.json``; None where nothing usable was noted."""
        tokens = value(plain, "tokens")
        if tokens is None:
            return None
        started, by = value(plain, "started_ms"), None if plain is None else plain.get("by")
        return cls(
            int(tokens),
            None if started is None else int(started),
            value(plain, "stored"),
            by if isinstance(by, str) else None,
        )


def prime(
    bench: Bench,
    arms: Arms,
    arm: str,
    pools: tuple[tuple[Cell, PromptRange], ...],
    setup: Setup = PLAIN,
) -> Primed:
    """Send every prompt of ``pools`` once through ``arm`` in ``setup``; returns what the store
    acknowledged.

    Raises CannotMeasure when a request fails or the store does not acknowledge in time.
    """
    running = arms.start(arm, setup, priming=True)
    then = None if running.store is None else _first_look(bench, running.store)
    tokens = 0
    for number, (cell, prompts) in enumerate(pools, start=1):
        bench.progress.doing(f"priming {arm}: {cell.label} ({number} of {len(pools)})")
        send(bench, cell, prompts, PRIME_CONCURRENCY, f"priming {cell.label} in {arm}", prime=True)
        tokens += tokens_of(bench, cell, prompts)
        bench.progress.step()
    if running.store is None or then is None:
        return Primed(tokens)
    return _wait_for_store(bench, running.store, tokens, then)


def still_holds(bench: Bench, store: str, primed: Primed) -> bool:
    """Whether a store still vouches for what it was primed with, asked once.

    The very process that acknowledged it must say so again and must hold no less than then. One
    that does not answer, was restarted or does not say when it started is primed again: a missing
    chunk would be held against the appliance.
    """
    counters = _said_by(bench, store)
    if counters is None or primed.started_ms is None or primed.stored is None:
        return False
    now = _of_store(counters, primed.tokens, bench.contract.model.kv_bytes_per_token)
    least = bench.contract.validity.acknowledged_share_at_least * primed.tokens
    return (
        now.stored is not None
        and now.stored >= max(least, primed.stored)
        and not is_busy(counters)
        and now.started_ms == primed.started_ms
    )


def _said_by(bench: Bench, store: str) -> Said | None:
    look = scrape(f"{bench.inventory.store_url(store)}/metrics", 2.0)
    if look.samples is None:
        return None
    return adapter_for(bench.inventory.store_metrics).read(look.samples).to_json()


def _of_store(counters: Said, tokens: int, kv_bytes_per_token: int) -> Primed:
    started = value(counters, "process_start_time_ms")
    return Primed(
        tokens,
        None if started is None else int(started),
        held_tokens(counters, kv_bytes_per_token),
        witness(counters),
    )


def tokens_of(bench: Bench, cell: Cell, prompts: PromptRange) -> int:
    """Tokens that a store is to acknowledge of these prompts. A shared beginning may end in
    mid-chunk, and a store holds whole chunks."""
    length, chunk = _prompt_only(bench, cell).prompt_tokens, bench.contract.model.chunk_tokens
    shares = bench.contract.workloads[cell.workload].kind in SHARED_KINDS
    return prompts.count * (length // chunk * chunk if shares else length)


def send(
    bench: Bench, cell: Cell, prompts: PromptRange, level: int, what: str, *, prime: bool = False
) -> None:
    """Send prompts of a cell that are not measured, to ``prime`` with one output token; every one
    must be answered.

    Raises CannotMeasure naming ``what`` otherwise.
    """
    workload = _prompt_only(bench, cell) if prime else bench.contract.workloads[cell.workload]
    job = block_job(bench, workload, prompts, level, "prime", bench.urls(cell))
    result = run_load(
        job,
        bench.work_dir / "prime",
        on_progress=partial(_tell, bench, prompts.count),
        deadline_s=job.block_deadline_s + CLIENT_GRACE_S,
    )
    failed = None if result.report is None else result.report.requests_failed
    if not result.complete or failed != 0:
        raise CannotMeasure(
            f"{what} failed: {failed} requests, {result.state}",
            where=bench.inventory.engine_url,
            remedy="see the engine's log in the campaign's run folder",
        )


def _tell(bench: Bench, total: int, counts: Counts) -> None:
    bench.progress.requests(counts.done, total)


def _prompt_only(bench: Bench, cell: Cell) -> Workload:
    """What a store is primed with: the cell's prompts, or what they share, with one output token,
    since only the prompt's KV is wanted."""
    workload = bench.contract.workloads[cell.workload]
    shared = shared_parts(workload, bench.contract.model.chunk_tokens)
    length = workload.prompt_tokens if shared is None else shared.prefix_tokens
    return workload.model_copy(
        update={"output_tokens": 1, "kind": "cold_restore", "prompt_tokens": length}
    )


def acknowledged(
    then: Said, now: Said, tokens: int, share: float, kv_bytes_per_token: int
) -> bool | None:
    """Whether a store says that it has taken what was sent to it between two looks; None where it
    says nothing about it.

    It took, or had already, at least ``share`` of the tokens, and nothing waits; where it says what
    it holds, it holds as much.
    """
    taken = taken_tokens(then, now, kv_bytes_per_token)
    if taken is None:
        return None
    held = lies_behind(then, now, kv_bytes_per_token)
    enough = share * tokens
    return taken >= enough and (held is None or held >= enough) and not is_busy(now)


def _first_look(bench: Bench, store: str) -> Said:
    """What the store says before it is primed: only what it takes from here on is acknowledged."""
    deadline = time.monotonic() + min(FIRST_LOOK_S, bench.inventory.waits_s)
    while True:
        counters = _said_by(bench, store)
        if counters is not None:
            return counters
        if time.monotonic() >= deadline:
            raise CannotMeasure(
                f"the store {store} does not answer",
                where=f"{bench.inventory.store_url(store)}/metrics",
                remedy="check that it runs, and its port in kvgate_store_ports",
            )
        time.sleep(POLL_S)


def _wait_for_store(bench: Bench, store: str, tokens: int, then: Said) -> Primed:
    inventory, kv_bytes = bench.inventory, bench.contract.model.kv_bytes_per_token
    share = bench.contract.validity.acknowledged_share_at_least
    deadline = time.monotonic() + inventory.waits_s
    bench.progress.doing(f"waiting until the store {store} has acknowledged {tokens:,} tokens")
    last: bool | None = None
    while time.monotonic() < deadline:
        now = _said_by(bench, store)
        if now is not None:
            last = acknowledged(then, now, tokens, share, kv_bytes)
            if last:
                return _of_store(now, tokens, kv_bytes)
        time.sleep(POLL_S)
    said = "never says what it holds" if last is None else "does not hold what was primed"
    raise CannotMeasure(
        f"the store {store} {said} after {inventory.waits_s:g} s",
        where=f"{inventory.store_url(store)}/metrics",
        remedy="check its capacity, its connector and its metrics; kvgate_waits_s sets the limit",
    )
