"""Was a long run a measurement? Where its tokens came from in every window, and who ran it.

Times are campaign seconds. Windows in the recovery from a proved planned fault are left out, and
the warm-up, in which the load itself starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from kvgate.analyse.acknowledged import had_acknowledged
from kvgate.analyse.calibration import client_holds_level
from kvgate.analyse.checks import NS, at_least, at_most
from kvgate.analyse.counters import ENGINE, STORE_PREFIX, grown, value
from kvgate.analyse.results import SoakWindow
from kvgate.analyse.served import declared_source
from kvgate.analyse.setup import setup_conditions
from kvgate.analyse.soak.series import Counted
from kvgate.contract import Contract, SoakPlan
from kvgate.record import Outcome
from kvgate.verdict import About, Condition


def share_in(counted: Counted, name: str, window: tuple[float, float]) -> float | None:
    """Share of the engine's prompt tokens of a window that a counter counted; None: not told."""
    total = counted.grown(ENGINE, "prompt_tokens", *window)
    part = counted.grown(ENGINE, name, *window)
    return None if part is None or not total else part / total


def bytes_in(
    contract: Contract, counted: Counted, store: str, window: tuple[float, float]
) -> float | None:
    """Bytes that the store read in a window over those that the restored tokens need."""
    read = counted.grown(STORE_PREFIX + store, "bytes_read", *window)
    tokens = counted.grown(ENGINE, "prompt_tokens_external", *window)
    if read is None or not tokens:
        return None
    return read / (tokens * contract.model.kv_bytes_per_token)


def conditions_of_soak(
    contract: Contract,
    plan: SoakPlan,
    block: Mapping[str, Any],
    requests: pd.DataFrame,
    windows: Sequence[SoakWindow],
    counted: Counted,
    *,
    broke: bool,
) -> tuple[Condition, ...]:
    """All conditions of a long run, in a fixed order; ``windows`` are those that count.

    ``broke``: the breaker ended it, so its client has no report.
    """
    return (
        *_client(contract, plan, block, requests, broke=broke),
        *_sources(contract, plan, block, windows, counted),
        *_bytes(contract, plan, block, windows, counted),
        *setup_conditions(contract, block),
        *_simulation(contract, plan, block, len(windows)),
    )


def _client(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], requests: pd.DataFrame,
    *, broke: bool,
) -> Iterator[Condition]:  # fmt: skip
    limits, state = contract.validity, block.get("load_state")
    yield Condition(
        "client_ran", About.INSTRUMENT,
        None if state is None else state == "done" or broke, None if state is None else str(state),
        "done", "text", "see the client's message in block.json; the load must run to its end",
    )  # fmt: skip
    ours = float((requests["outcome"] == Outcome.CLIENT_FAULT.value).sum())
    yield at_most("client_faults", About.INSTRUMENT, ours, 0, "1",
                  "raise the open-file limit of the load host and check its memory")  # fmt: skip
    if broke:
        return
    client: Mapping[str, Any] = block.get("client") or {}

    def told(name: str, factor: float = 1.0, over: float | None = 1.0) -> float | None:
        found = value(client, name)
        return None if found is None or not over else found * factor / over

    yield client_holds_level(limits, block.get("calibration"), plan.level)
    yield at_most("client_stall", About.INSTRUMENT, told("loop_stall_p99_ns", NS),
                  limits.client_stall_s_at_most, "s",
                  "the load host is too busy: use a faster one or fewer streams")  # fmt: skip
    yield at_most("client_cpu", About.INSTRUMENT, told("cpu_s", over=value(client, "wall_s")),
                  limits.client_cpu_share_at_most, "1",
                  "the load host is the bottleneck: use more load hosts")  # fmt: skip
    yield at_least("in_flight", About.INSTRUMENT, told("mean_in_flight", over=float(plan.level)),
                   limits.in_flight_share_at_least, "1",
                   "the planned concurrency was not held: check the client's limits")  # fmt: skip
    offsets = (value(client, "clock_offset_start_ns"), value(client, "clock_offset_end_ns"))
    step = None if offsets[0] is None or offsets[1] is None else abs(offsets[1] - offsets[0]) * NS
    yield at_most("clock_step", About.INSTRUMENT, step, limits.clock_step_s_at_most, "s",
                  "stop whatever steps the clock (chronyd makestep, VM time sync)")  # fmt: skip


def _sources(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], windows: Sequence[SoakWindow],
    counted: Counted,
) -> Iterator[Condition]:  # fmt: skip
    limits, store = contract.validity, contract.arms[plan.arm].store
    workload = contract.workloads[plan.workload]
    prompts: Mapping[str, Any] = block.get("prompts") or {}
    pool = value(prompts, "count")
    yield Condition(
        "pool_beyond_tiers", About.INSTRUMENT,
        None if pool is None else pool * workload.prompt_tokens > plan.upper_tiers_tokens,
        None if pool is None else pool * workload.prompt_tokens, plan.upper_tiers_tokens, "1",
        "the pool of prompts must be larger than what the engine's own tiers hold",
    )  # fmt: skip
    window, share, about = least_restored(contract, plan, block, windows, counted)
    source = declared_source(workload.kind, store)
    at = "" if window is None else f" (lowest {window.start_s:,.0f} to {window.end_s:,.0f} s)"
    yield at_least(
        "declared_source", about, share, limits.declared_source_share_at_least, "1",
        f"the workload expects {source}{at}: check connector, hash seed and what the store holds",
    )  # fmt: skip
    warm = [share_in(counted, "prompt_tokens_engine_cache", (w.start_s, w.end_s)) for w in windows]
    yield at_most("engine_cache_cold", About.ENVIRONMENT, _worst(warm),
                  limits.engine_cache_share_at_most, "1",
                  "the engine's own cache answered: make upper_tiers_tokens larger")  # fmt: skip
    dram = [_dram(counted, store, (w.start_s, w.end_s)) for w in windows]
    if any(share is not None for share in dram):
        yield at_most("dram_tier_cold", About.ENVIRONMENT, _worst(dram),
                      limits.engine_cache_share_at_most, "1",
                      "a DRAM tier answered: make upper_tiers_tokens larger")  # fmt: skip


def _dram(counted: Counted, store: str, window: tuple[float, float]) -> float | None:
    """Share of the prompt tokens that host memory before the store answered; None: nobody says."""
    own = share_in(counted, "prompt_tokens_dram", window)
    total = counted.grown(ENGINE, "prompt_tokens", *window)
    tier = counted.grown(STORE_PREFIX + store, "hit_tokens_dram", *window)
    if tier is None or not total:
        return own
    return max(own or 0.0, tier / total)


def least_restored(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], windows: Sequence[SoakWindow],
    counted: Counted,
) -> tuple[SoakWindow | None, float | None, About]:  # fmt: skip
    """The window with the lowest share from the declared source, that share, and whom it speaks
    about: the appliance only where the store's own counters show that it was asked in that window
    and did not have what it had acknowledged."""
    told = [(w.restored_share, w) for w in windows if w.restored_share is not None]
    if not told:
        return None, None, About.ENVIRONMENT
    limit = contract.validity.declared_source_share_at_least
    short = [(s, w) for s, w in told if s < limit] or told
    store = contract.arms[plan.arm].store
    blamed = [_who_missed(contract, block, store, w, counted) for _, w in short]
    # One window in which the store was not even asked makes the whole cause doubtful.
    about = About.ENVIRONMENT if About.ENVIRONMENT in blamed else About.APPLIANCE
    share, window = min(told, key=lambda pair: pair[0])
    return window, share, about


def _who_missed(
    contract: Contract, block: Mapping[str, Any], store: str, window: SoakWindow, counted: Counted
) -> About:
    limits, span = contract.validity, (window.start_s, window.end_s)
    prompts = counted.grown(ENGINE, "prompt_tokens", *span)
    asked = counted.grown(STORE_PREFIX + store, "lookup_tokens", *span)
    if asked is None or not prompts:
        return About.ENVIRONMENT
    had = had_acknowledged(
        block, STORE_PREFIX + store, limits.acknowledged_share_at_least,
        contract.model.kv_bytes_per_token,
    )  # fmt: skip
    was_asked = asked >= limits.asked_share_at_least * prompts
    return About.APPLIANCE if was_asked and had else About.ENVIRONMENT


def _bytes(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], windows: Sequence[SoakWindow],
    counted: Counted,
) -> Iterator[Condition]:  # fmt: skip
    limits, store = contract.validity, contract.arms[plan.arm].store
    tokens = grown(block, ENGINE, "prompt_tokens_external")
    moved = value(block.get("moved"), "bytes")
    payload = None if not tokens else tokens * contract.model.kv_bytes_per_token
    over_run = None if moved is None or payload is None else moved / payload
    remedy = "what was restored must have been read from the store, not from a page cache"
    shares = [over_run, *(w.bytes_share for w in windows if w.bytes_share is not None)]
    known = [s for s in shares if s is not None] if over_run is not None else []
    # Nothing restored needs no bytes; that it was not is the declared source's affair.
    if tokens != 0.0:
        for name, check, share, limit in (
            ("bytes_read", at_least, min(known, default=None), limits.bytes_read_share_at_least),
            ("bytes_not_too_many", at_most, max(known, default=None),
             limits.bytes_read_share_at_most),
        ):  # fmt: skip
            yield check(name, About.ENVIRONMENT, share, limit, "1", remedy)
    rates = [
        read / (w.end_s - w.start_s)
        for w in windows
        if (read := counted.grown(STORE_PREFIX + store, "bytes_read", w.start_s, w.end_s))
        is not None
    ]
    lasted_s = value(block, "duration_s")
    rate = max(rates) if rates else None if moved is None or not lasted_s else moved / lasted_s
    possible = contract.store_rate_at_most(plan.arm)
    yield at_most("store_rate_possible", About.INSTRUMENT, rate, possible,
                  "B/s", "more bytes a second than link or devices carry: the counters or the "
                  "coldness are wrong")  # fmt: skip


def _simulation(
    contract: Contract, plan: SoakPlan, block: Mapping[str, Any], windows: int
) -> Iterator[Condition]:
    """The limit is that of a block; a long run is as many blocks as it has windows."""
    limit = contract.validity.simulator_late_s_at_most
    if limit is None:
        return
    names = [ENGINE, STORE_PREFIX + contract.arms[plan.arm].store]
    late = [grown(block, name, "late_s") for name in names]
    known = [s for s in late if s is not None]
    yield at_most("simulator_on_time", About.INSTRUMENT,
                  max(known) if len(known) == len(late) else None, limit * max(1, windows), "s",
                  "the machine was too busy to simulate: close other programs")  # fmt: skip


def _worst(shares: Sequence[float | None]) -> float | None:
    known = [s for s in shares if s is not None]
    return max(known) if known else None
