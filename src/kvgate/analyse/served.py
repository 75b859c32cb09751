"""Conditions on what served a block: its requests, where their tokens came from, the store.

Pure. These are the conditions that may speak about the appliance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pandas as pd

from kvgate.analyse.acknowledged import asked_tokens, had_acknowledged, was_acknowledged
from kvgate.analyse.checks import Block, at_least, at_most, coverage_of, ratio
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
from kvgate.analyse.foreign import lacks_of
from kvgate.analyse.hits import growth_of, read_external_hits
from kvgate.contract import Contract
from kvgate.record import Lack, Outcome
from kvgate.reuse import FRESH_KINDS, RESTORED_KINDS, prompt_lengths, reuse_of
from kvgate.verdict import About, Condition


def served_conditions(
    contract: Contract, block: Block, requests: pd.DataFrame
) -> Iterator[Condition]:
    limits, arm = contract.validity, contract.arms[str(block["arm"])]
    restores = block["kind"] in RESTORED_KINDS and arm.store != "none"
    speaks_of = About.APPLIANCE if restores and block.get("role") == "test" else About.ENVIRONMENT
    done = requests[requests["outcome"] == Outcome.OK.value] if len(requests) else None
    failed = None if done is None else 1.0 - len(done) / len(requests)
    if done is not None and Lack.WHOLE_ANSWERS not in (lacks_of(block) or ()):
        # Who says that an answer is whole must say how it ended.
        failed = None if bool(done["finish_reason"].isna().any()) else failed
    yield at_most(
        "requests_finished",
        speaks_of,
        failed,
        limits.failed_share_at_most,
        "1",
        "see the outcome column of requests.parquet and the engine's log",
    )
    for column, planned in (
        ("prompt_tokens", _prompt_lengths(contract, block)),
        ("output_tokens", None),
    ):
        each = {int(block[f"{column}_each"]): None} if planned is None else planned
        yield at_most(
            f"{column}_as_planned",
            About.ENVIRONMENT,
            None if done is None else float(_unplanned(done[column], each)),
            0,
            "1",
            "both arms must see the same lengths: check truncation and ignore_eos",
        )
    if arm.store != "none":
        mine = About.APPLIANCE if block.get("role") == "test" else About.ENVIRONMENT
        yield from _prepared(contract, block, STORE_PREFIX + arm.store, mine, restores=restores)
        yield from _store(contract, block, STORE_PREFIX + arm.store, mine)
    yield from _sources(contract, block, speaks_of if restores else About.ENVIRONMENT)
    # A conversation that outgrows the engine's memory comes back from the store too.
    reads = restores or (block["kind"] == "multi_turn" and arm.store != "none")
    yield from _bytes(contract, block, restores=reads)


def _prompt_lengths(contract: Contract, block: Block) -> Mapping[int, int] | None:
    """How many prompts of which length; None where all have one."""
    if block["kind"] != "multi_turn":
        return None
    workload = contract.workloads[str(block["cell"]["workload"])]
    return prompt_lengths(workload, int(block["requests_planned"]))


def _unplanned(lengths: pd.Series, planned: Mapping[int, int | None]) -> int:
    """Requests of another length, or more of one length than planned (None: any number)."""
    # A length that nobody told is not a planned one.
    counted = Counter(lengths.fillna(-1).astype(int).tolist())
    return sum(
        max(0, count - most) if (most := planned.get(length, 0)) is not None else 0
        for length, count in counted.items()
    )


def _prepared(
    contract: Contract, block: Block, store: str, mine: About, *, restores: bool
) -> Iterator[Condition]:
    """How the store stood before the block: what it had acknowledged, and how full it was.

    Both speak of how the block was set up, but a silent store's silence is ``mine``. What a store
    says that it holds and then does not give is the affair of the declared source.
    """
    limits = contract.validity
    about = About.ENVIRONMENT if seen(block, store) else mine
    # A file of another tool says nothing of priming; its own conditions say what that leaves open.
    if restores and block.get("imported") is None:
        had = was_acknowledged(
            block, store, limits.acknowledged_share_at_least, contract.model.kv_bytes_per_token
        )
        known = seen(block, store) and value(block, "primed_tokens") is not None
        yield Condition(
            "acknowledged",
            about,
            had if known else None,
            ("by its own word" if had else "not by its own word") if known else None,
            "by its own word",
            "text",
            "the store must say that it holds what it was primed with: prime it again",
        )
    least, most = limits.fill_share_at_least, limits.fill_share_at_most
    if least is None and most is None:
        return
    capacity = before(block, store, "capacity_bytes")
    if capacity is None:
        capacity = contract.arms[str(block["arm"])].capacity_bytes
    share = ratio(before(block, store, "used_bytes"), capacity)
    low = least is not None and (most is None or (share is not None and share < least))
    check, limit = (at_least, least) if low else (at_most, most)
    yield check(
        "fill_level",
        about,
        share,
        0.0 if limit is None else limit,
        "1",
        "fill or empty the store to the planned level first: a store that is nearly full is another"
        " store",
    )


def _store(contract: Contract, block: Block, store: str, about: About) -> Iterator[Condition]:
    """The arm's own store: it answered, lived, and counted no error.

    Its silence is its own: were it the instrument's, whoever owns the store could choose the blocks
    that drop out. Where the engine's page was silent too, the network or we are at fault.
    """
    coverage = (block.get("observation") or {}).get("coverage") or {}
    limit = contract.validity.telemetry_coverage_at_least
    rest = coverage_of(block)
    ours = rest is None or rest < limit
    yield at_least(
        "store_telemetry",
        About.INSTRUMENT if ours else about,
        value(coverage, store),
        limit,
        "1",
        "the store's metrics must answer during the whole block",
    )
    again = restarts(block, store)
    yield Condition(
        "store_alive",
        About.INSTRUMENT if again is None and ours else about,
        None if again is None else again == 0,
        None if again is None else f"{again} restarts",
        "0 restarts",
        "text",
        "the store died or restarted in the block: see its log",
    )
    hits = read_external_hits(growth_of(block, ENGINE), growth_of(block, store))
    yield Condition(
        "counters_agree",
        About.ENVIRONMENT,
        None if hits.basis == "missing" else hits.trusted,
        None if hits.basis == "missing" else "; ".join(hits.doubts) or "agree",
        "agree",
        "text",
        "engine and store contradict each other: see which counter of which version is wrong",
    )
    # A store without such a counter has said nothing of errors; its requests and bytes tell.
    if before(block, store, "errors") is not None:
        yield at_most(
            "store_errors",
            about,
            grown(block, store, "errors"),
            0,
            "1",
            "the store counted errors of its own: see its log",
        )


def _sources(contract: Contract, block: Block, speaks_of: About) -> Iterator[Condition]:
    """Prompt tokens by source against what the workload declares."""
    limits, arm = contract.validity, contract.arms[str(block["arm"])]
    total = grown(block, ENGINE, "prompt_tokens")
    if block["kind"] in FRESH_KINDS:
        yield from _mixed_sources(contract, block, speaks_of, total)
        return
    source = declared_source(str(block["kind"]), arm.store)
    share = ratio(grown(block, ENGINE, source), total)
    yield at_least(
        "declared_source",
        _who_missed(contract, block, arm.store, total)
        if speaks_of is About.APPLIANCE
        else speaks_of,
        share,
        _declared_limit(contract, block, source),
        "1",
        f"the workload expects {source}: check connector, hash seed and what the store holds",
    )
    if source != "prompt_tokens_engine_cache":
        yield at_most(
            "engine_cache_cold",
            About.ENVIRONMENT,
            ratio(grown(block, ENGINE, "prompt_tokens_engine_cache"), total),
            limits.engine_cache_share_at_most,
            "1",
            "the engine's own cache was warm: reset it and use prompts it has not seen",
        )


def _mixed_sources(
    contract: Contract, block: Block, speaks_of: About, total: float | None
) -> Iterator[Condition]:
    """Sources of a workload that repeats a part and brings another that is new.

    What was stored before and is asked for the first time comes from the store; what comes again
    may come from the engine's own cache as well; what is new is computed.
    """
    limits, store = contract.validity, contract.arms[str(block["arm"])].store
    workload = contract.workloads[str(block["cell"]["workload"])]
    planned = reuse_of(workload, int(block["requests_planned"]), contract.model.chunk_tokens)
    if planned is None:
        return
    least, slack = limits.declared_source_share_at_least, limits.engine_cache_share_at_most
    computed, cached, external = (
        ratio(grown(block, ENGINE, f"prompt_tokens_{source}"), total)
        for source in ("computed", "engine_cache", "external")
    )
    again = None if cached is None or external is None else cached + external
    if store != "none":
        from_store = planned.stored > 0
        asked = None if total is None or cached is None else total * (1.0 - cached)
        yield at_least(
            "declared_source",
            _who_missed(contract, block, store, asked)
            if from_store and speaks_of is About.APPLIANCE
            else About.ENVIRONMENT,
            external if from_store else again,
            least * (planned.stored if from_store else planned.reused),
            "1",
            "the workload expects what was stored from the store: check connector, hash seed and "
            "what the store holds"
            if from_store
            else "a turn repeats what was said before: check that the engine keeps its cache",
        )
        if from_store:
            yield at_least(
                "repeats_reused", About.ENVIRONMENT, again, least * planned.reused, "1",
                "what prompts share was computed again: check the engine's cache and the connector",
            )  # fmt: skip
    yield at_least(
        "declared_source" if store == "none" else "rest_computed",
        About.ENVIRONMENT,
        computed,
        least * planned.new,
        "1",
        "more came from caches than the workload repeats: what is new in its prompts was not new",
    )
    yield at_most(
        "engine_cache_cold",
        About.ENVIRONMENT,
        cached,
        min(1.0, planned.again + slack),
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


def _who_missed(contract: Contract, block: Block, store: str, prompt_tokens: float | None) -> About:
    """Whose fault it is that nothing was restored.

    The store is at fault only where its own counters show that it was asked and did not have what
    it had acknowledged; otherwise the cause cannot be told and nothing is held against it.
    """
    limits, target = contract.validity, STORE_PREFIX + store
    asked = asked_tokens(block, target)
    if asked is None or not prompt_tokens:
        return About.ENVIRONMENT
    was_asked = asked >= limits.asked_share_at_least * prompt_tokens
    had = had_acknowledged(
        block, target, limits.acknowledged_share_at_least, contract.model.kv_bytes_per_token
    )
    return About.APPLIANCE if was_asked and had else About.ENVIRONMENT


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
        share = ratio(moved, payload)
        remedy = "what was restored must have been read from the store, not from a page cache"
        # Nothing restored needs no bytes; that it was not is the declared source's affair.
        if tokens != 0.0:
            for name, check, limit in (
                ("bytes_read", at_least, limits.bytes_read_share_at_least),
                ("bytes_not_too_many", at_most, limits.bytes_read_share_at_most),
            ):
                yield check(name, About.ENVIRONMENT, share, limit, "1", remedy)
        if tokens != 0.0 or moved is not None:
            yield at_most(
                "store_rate_possible",
                About.INSTRUMENT,
                ratio(moved, value(block, "duration_s")),
                contract.store_rate_at_most(str(block["arm"])),
                "B/s",
                "more bytes a second than link or devices carry: the counters or the coldness are "
                "wrong",
            )
    for target in _others(contract, block):
        found, unit = _touched(block, target)
        yield at_most(
            f"untouched_{target.removeprefix(STORE_PREFIX)}",
            About.ENVIRONMENT,
            found,
            0,
            unit,
            f"the {block['arm']} arm must not touch that store: check its connector",
        )


def _others(contract: Contract, block: Block) -> list[str]:
    """The stores that the arm must leave alone.

    Where stores stay up, those of every arm of the contract: one that is silent, or was not looked
    at, is not known to be untouched. Elsewhere silence means that it was not running.
    """
    used = STORE_PREFIX + contract.arms[str(block["arm"])].store
    watched = {t for t in targets(block) if t.startswith(STORE_PREFIX)}
    if block.get("stores_stay_up") is True:
        watched |= {STORE_PREFIX + a.store for a in contract.arms.values() if a.store != "none"}
        return sorted(watched - {used})
    return sorted(t for t in watched - {used} if seen(block, t))


def _touched(block: Block, target: str) -> tuple[float | None, str]:
    """What was read from a store, by the counters that its kind has: bytes, loads, calls."""
    counted = [
        (found, unit)
        for name, unit in (
            ("bytes_read", "B"),
            ("loads", "1"),
            ("hit_tokens", "1"),
            ("lookups", "1"),
        )
        if (found := grown(block, target, name)) is not None
    ]
    return max(counted, key=lambda pair: pair[0], default=(None, "B"))
