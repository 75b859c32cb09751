"""Was this block a measurement at all? Every condition by name, with value, limit and remedy.

Pure: it looks at ``block.json`` and the request table only. No condition looks at latency: leaving
out slow pairs would turn a 5 % risk into 9-17 %. A value that is missing breaks its condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.counters import (
    ENGINE,
    STORE_PREFIX,
    before,
    grown,
    restarts,
    seen,
    targets,
    value,
)
from kvgate.analyse.foreign import foreign_conditions, lacks_of
from kvgate.contract import Contract
from kvgate.contract_tables import Validity
from kvgate.record import Lack, Outcome
from kvgate.verdict import About, Condition

Block = Mapping[str, Any]
NS = 1e-9


def conditions(
    contract: Contract, block: Block, requests: pd.DataFrame, statistics: BlockStatistics
) -> tuple[Condition, ...]:
    """All conditions of one block, in a fixed order.

    ``block`` is the content of block.json; ``requests`` the table of requests.parquet and
    ``statistics`` what they give.
    """
    lacks = lacks_of(block)
    return (
        *(
            _instrument(contract.validity, block, requests)
            if lacks is None
            else _foreign(contract.validity, block, requests, statistics, lacks)
        ),
        at_most(
            "responses_possible",
            About.INSTRUMENT,
            float(statistics.n_impossible) if len(requests) else None,
            0,
            "1",
            "a finished request without token or with times out of order cannot be true",
        ),
        *_environment(contract.validity, block),
        *_simulation(contract, block),
        *_appliance(contract, block, requests),
    )


def at_most(
    name: str, about: About, found: float | None, limit: float, unit: str, remedy: str
) -> Condition:
    ok = None if found is None else found <= limit
    return Condition(name, about, ok, found, limit, unit, remedy)


def at_least(
    name: str, about: About, found: float | None, limit: float, unit: str, remedy: str
) -> Condition:
    ok = None if found is None else found >= limit
    return Condition(name, about, ok, found, limit, unit, remedy)


def _foreign(
    limits: Validity,
    block: Block,
    requests: pd.DataFrame,
    statistics: BlockStatistics,
    lacks: frozenset[Lack],
) -> Iterator[Condition]:
    """In place of what only our own client can say of itself."""
    yield from foreign_conditions(block, lacks)
    yield from _recorded(block, requests, known=len(requests) > 0)
    yield at_least(
        "in_flight",
        About.INSTRUMENT,
        _ratio(statistics.mean_in_flight_in_window, float(block["cell"]["level"])),
        limits.in_flight_share_at_least,
        "1",
        "the planned concurrency was not held: check connection limits and the client's CPU",
    )


def _instrument(limits: Validity, block: Block, requests: pd.DataFrame) -> Iterator[Condition]:
    client: Mapping[str, Any] = block.get("client") or {}
    level = int(block["cell"]["level"])
    state = client.get("state")
    yield Condition(
        "client_ran",
        About.INSTRUMENT,
        None if state is None else state == "done",
        state,
        "done",
        "text",
        "see the client's message in block.json; nothing of the appliance was measured",
    )
    yield from _recorded(block, requests, known=bool(client))
    yield at_most(
        "client_stall",
        About.INSTRUMENT,
        _scaled(value(client, "loop_stall_p99_ns"), NS),
        limits.client_stall_s_at_most,
        "s",
        "the load host is too busy: use a faster one or fewer streams",
    )
    yield at_most(
        "client_cpu",
        About.INSTRUMENT,
        _ratio(value(client, "cpu_s"), value(client, "wall_s")),
        limits.client_cpu_share_at_most,
        "1",
        "the load host is the bottleneck: use more load hosts",
    )
    yield at_least(
        "in_flight",
        About.INSTRUMENT,
        _ratio(value(client, "mean_in_flight"), float(level)),
        limits.in_flight_share_at_least,
        "1",
        "the planned concurrency was not held: check connection limits and the client's CPU",
    )
    offsets = (value(client, "clock_offset_start_ns"), value(client, "clock_offset_end_ns"))
    step = (
        None if None in offsets else abs((offsets[1] or 0.0) - (offsets[0] or 0.0)) * NS
    )  # fmt: skip
    yield at_most(
        "clock_step",
        About.INSTRUMENT,
        step,
        limits.clock_step_s_at_most,
        "s",
        "stop whatever steps the clock (chronyd makestep, VM time sync) during a block",
    )
    yield at_least(
        "telemetry_coverage",
        About.INSTRUMENT,
        value(block.get("observation"), "coverage_share"),
        limits.telemetry_coverage_at_least,
        "1",
        "the engine's metrics must answer during the whole block",
    )


def _recorded(block: Block, requests: pd.DataFrame, *, known: bool) -> Iterator[Condition]:
    planned = int(block["requests_planned"])
    yield Condition(
        "requests_recorded",
        About.INSTRUMENT,
        len(requests) == planned if known else None,
        float(len(requests)) if known else None,
        planned,
        "1",
        "the client must record every planned request, and each once",
    )
    unique = float(requests["prompt_digest"].nunique()) if len(requests) else None
    yield at_least(
        "prompts_unique",
        About.INSTRUMENT,
        unique,
        min(planned, int(block["prompts"]["count"])),
        "1",
        "prompts must not repeat inside a block: repeats are answered from caches",
    )
    outcomes = requests["outcome"] if len(requests) else pd.Series(dtype=str)
    ours = sum(
        int((outcomes == outcome.value).sum()) for outcome in Outcome if outcome.of_instrument
    )
    yield at_most(
        "client_faults",
        About.INSTRUMENT,
        float(ours) if known else None,
        0,
        "1",
        "raise the open-file limit of the load host and check its memory",
    )


def _environment(limits: Validity, block: Block) -> Iterator[Condition]:
    again = restarts(block, ENGINE)
    yield Condition(
        "engine_alive",
        About.ENVIRONMENT,
        None if again is None else again == 0,
        None if again is None else f"{again} restarts",
        "0 restarts",
        "text",
        "the engine died or restarted in the block: see its log, then run again",
    )
    yield at_most(
        "preemptions",
        About.ENVIRONMENT,
        grown(block, ENGINE, "preemptions"),
        limits.preemptions_at_most,
        "1",
        "the engine ran out of KV memory: lower the level or the prompt length",
    )


def _simulation(contract: Contract, block: Block) -> Iterator[Condition]:
    """A rehearsal's engine and store must have kept their own schedule."""
    limit = contract.validity.simulator_late_s_at_most
    if limit is None:
        return
    store = contract.arms[str(block["arm"])].store
    names = [ENGINE] if store == "none" else [ENGINE, STORE_PREFIX + store]
    late = [grown(block, name, "late_s") for name in names]
    yield at_most(
        "simulator_on_time",
        About.INSTRUMENT,
        None if None in late else max(s for s in late if s is not None),
        limit,
        "s",
        "the machine was too busy to simulate: close other programs, or lower kvgate_time_scale",
    )


def _appliance(contract: Contract, block: Block, requests: pd.DataFrame) -> Iterator[Condition]:
    limits, arm = contract.validity, contract.arms[str(block["arm"])]
    restores = block["kind"] in {"cold_restore", "probe"} and arm.store != "none"
    speaks_of = About.APPLIANCE if restores and block.get("role") == "test" else About.ENVIRONMENT
    failed = (
        float((requests["outcome"] != Outcome.OK.value).sum()) / len(requests)
        if len(requests)
        else None
    )
    yield at_most(
        "requests_finished",
        speaks_of,
        failed,
        limits.failed_share_at_most,
        "1",
        "see the outcome column of requests.parquet and the engine's log",
    )
    done = requests[requests["outcome"] == Outcome.OK.value] if len(requests) else None
    for column in ("prompt_tokens", "output_tokens"):
        planned = int(block[f"{column}_each"])
        wrong = None if done is None else float((done[column] != planned).sum())
        yield at_most(
            f"{column}_as_planned",
            About.ENVIRONMENT,
            wrong,
            0,
            "1",
            "both arms must see the same lengths: check truncation and ignore_eos",
        )
    yield from _sources(contract, block, speaks_of if restores else About.ENVIRONMENT)
    yield from _bytes(contract, block, restores=restores)


def _sources(contract: Contract, block: Block, speaks_of: About) -> Iterator[Condition]:
    """Prompt tokens by source against what the workload declares."""
    limits, arm = contract.validity, contract.arms[str(block["arm"])]
    total = grown(block, ENGINE, "prompt_tokens")
    source = declared_source(str(block["kind"]), arm.store)
    share = _ratio(grown(block, ENGINE, source), total)
    yield at_least(
        "declared_source",
        _who_missed(block, arm.store, total) if speaks_of is About.APPLIANCE else speaks_of,
        share,
        _declared_limit(contract, block, source),
        "1",
        f"the workload expects {source}: check connector, hash seed and what the store holds",
    )
    if source != "prompt_tokens_engine_cache":
        yield at_most(
            "engine_cache_cold",
            About.ENVIRONMENT,
            _ratio(grown(block, ENGINE, "prompt_tokens_engine_cache"), total),
            limits.engine_cache_share_at_most,
            "1",
            "the engine's own cache was warm: reset it and use prompts it has not seen",
        )


def _declared_limit(contract: Contract, block: Block, source: str) -> float:
    """The contract's share; an engine's own cache keeps whole chunks and never the last token, so a
    short prompt cannot reach more than that."""
    limit = contract.validity.declared_source_share_at_least
    if source != "prompt_tokens_engine_cache":
        return limit
    tokens, chunk = int(block["prompt_tokens_each"]), contract.model.chunk_tokens
    return min(limit, (tokens - 1) // chunk * chunk / tokens)


def _who_missed(block: Block, store: str, prompt_tokens: float | None) -> About:
    """Whose fault it is that nothing was restored.

    The store is at fault only where its own counters show that it was asked and did not have what
    it had acknowledged; otherwise the cause cannot be told and nothing is held against it.
    """
    asked = grown(block, STORE_PREFIX + store, "lookup_tokens")
    acknowledged = value(block, "primed_tokens")
    stored = before(block, STORE_PREFIX + store, "stored_tokens")
    if asked is None or not prompt_tokens or not acknowledged or stored is None:
        return About.ENVIRONMENT
    was_asked = asked >= 0.9 * prompt_tokens
    had_acknowledged = stored >= 0.9 * acknowledged
    return About.APPLIANCE if was_asked and had_acknowledged else About.ENVIRONMENT


def declared_source(kind: str, store: str) -> str:
    """Where the prompt tokens of a workload must come from, as a counter's name."""
    if kind == "warm":
        return "prompt_tokens_engine_cache"
    if kind == "miss" or store == "none":
        return "prompt_tokens_computed"
    return "prompt_tokens_external"


def _bytes(contract: Contract, block: Block, *, restores: bool) -> Iterator[Condition]:
    limits = contract.validity
    moved = value(block.get("moved"), "bytes")
    if restores:
        tokens = grown(block, ENGINE, "prompt_tokens_external")
        payload = None if tokens is None else tokens * contract.model.kv_bytes_per_token
        share = _ratio(moved, payload)
        remedy = "what was restored must have been read from the store, not from a page cache"
        # Nothing restored needs no bytes; that it was not is the declared source's affair.
        if tokens != 0.0:
            for name, check, limit in (
                ("bytes_read", at_least, limits.bytes_read_share_at_least),
                ("bytes_not_too_many", at_most, limits.bytes_read_share_at_most),
            ):
                yield check(name, About.ENVIRONMENT, share, limit, "1", remedy)
        rate = _ratio(moved, value(block, "duration_s"))
        yield at_most(
            "store_rate_possible",
            About.INSTRUMENT,
            rate,
            limits.store_bytes_per_s_at_most,
            "B/s",
            "more bytes a second than the link carries: the counters or the coldness are wrong",
        )
    used = contract.arms[str(block["arm"])].store
    for target in sorted(t for t in targets(block) if t.startswith(STORE_PREFIX)):
        # A store that did not answer was not running, so nothing can have touched it.
        if target == STORE_PREFIX + used or not seen(block, target):
            continue
        yield at_most(
            f"untouched_{target.removeprefix(STORE_PREFIX)}",
            About.ENVIRONMENT,
            grown(block, target, "bytes_read"),
            0,
            "B",
            f"the {block['arm']} arm must not touch that store: check its connector",
        )


def _ratio(part: float | None, whole: float | None) -> float | None:
    if part is None or whole is None or whole <= 0:
        return None
    return part / whole


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
