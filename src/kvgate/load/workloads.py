"""The workloads of ``kvgate load`` by name: what a person asks for, turned into prompts.

Prompts of two pools, of a pool and its warm-up, and of two lengths share no beginning, since seed,
pool and length are in the key from which they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from kvgate.errors import UsageError
from kvgate.load.job import Conversation, Prompts, Shared, Trace
from kvgate.load.shapes import Expected, Part, expected_reuse, rows_of, shared_for_ratio
from kvgate.load.trace import read_trace, trace_parts


class Workload(StrEnum):
    """What the requests have in common, and what was done before them."""

    MISS_ONLY = "miss-only"
    COLD_RESTORE = "cold-restore"
    MULTI_TURN = "multi-turn"
    SHARED_PREFIX = "shared-prefix"
    LONG_DOCUMENTS = "long-documents"
    TRACE = "trace"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload is made of, in tokens and numbers; each workload reads only its own.

    ``block_tokens``: the smallest piece that the engine's prefix cache keeps. Every prompt has
    ``prompt_tokens``; in a conversation the first one.
    """

    prompt_tokens: int
    requests: int
    hit_ratio: float = 0.5
    prefixes: int = 1
    order: str = "round"
    block_tokens: int = 16
    turns: int = 4
    user_tokens: int = 64
    think_s: float = 0.0
    documents: int = 8
    question_tokens: int = 64


def prompts_for(workload: Workload, base: Prompts, sizes: Sizes) -> Prompts:
    """The prompts of a workload, a trace's apart; seed, pool, first and vocabulary from ``base``.

    Raises :class:`UsageError` where the sizes do not fit together.
    """
    if workload is Workload.MULTI_TURN:
        if sizes.requests % sizes.turns:
            raise UsageError(
                f"{sizes.requests} requests are no whole conversations of {sizes.turns} turns",
                remedy="make --requests a multiple of --turns",
            )
        shape: Shared | Conversation | None = Conversation(
            sizes.turns, sizes.user_tokens, sizes.think_s
        )
    elif workload is Workload.SHARED_PREFIX:
        if not 0 < sizes.hit_ratio < 1:
            raise UsageError("--hit-ratio must be above 0 and below 1")
        prefix = shared_for_ratio(
            sizes.prompt_tokens,
            sizes.requests,
            sizes.prefixes,
            sizes.hit_ratio,
            sizes.block_tokens,
        )
        shape = _shared(prefix, sizes.prefixes, sizes.order)
    elif workload is Workload.LONG_DOCUMENTS:
        document = sizes.prompt_tokens - sizes.question_tokens
        if document < sizes.block_tokens:
            raise UsageError(
                f"a document of {document} tokens is shorter than one block of "
                f"{sizes.block_tokens}: nothing would ever hit",
                remedy="give longer prompts or a shorter --question-tokens",
            )
        shape = _shared(document, min(sizes.documents, sizes.requests), sizes.order)
    else:
        shape = None
    return msgspec.structs.replace(
        base, count=sizes.requests, tokens=sizes.prompt_tokens, shape=shape
    )


def _shared(prefix: int, groups: int, order: str) -> Shared:
    if order not in ("round", "runs", "shuffled"):
        raise UsageError(f"--prefix-order {order!r} is none of round, runs, shuffled")
    return msgspec.convert({"kind": "shared", "prefix_tokens": prefix, "groups": groups,
                            "order": order}, Shared)  # fmt: skip


def expectation(prompts: Prompts, block_tokens: int) -> Expected:
    """What the plan says about reuse (see :func:`kvgate.load.shapes.expected_reuse`)."""
    rows: Iterator[tuple[Part, ...]] = rows_of(prompts)
    if isinstance(prompts.shape, Trace):
        shape = prompts.shape
        rows = (trace_parts(prompts, shape, n, line) for n, line in read_trace(shape.path))
    return expected_reuse(rows, block_tokens)


def warm_up_of(prompts: Prompts, count: int) -> Prompts:
    """Prompts that share nothing with ``prompts`` and have its length: a pool of their own."""
    return msgspec.structs.replace(
        prompts, pool=f"{prompts.pool}/warm-up", first=0, count=count, shape=None, cycle=None
    )


def findings(
    workload: Workload,
    expected: Expected,
    *,
    requests: int,
    planned: int,
    unique_prompts: int,
    prompt_tokens: int | None,
    cached_tokens: int | None,
    most_cached_share: float = 0.01,
) -> tuple[str, ...]:
    """What makes a run say something else than its workload promises, each one sentence.

    Fewer distinct prompts than planned, and hits where nothing may hit. ``cached_tokens`` is
    ``None`` where the server does not tell: then nothing is found and nothing is proved.
    """
    found = []
    if requests == planned and unique_prompts < expected.unique:
        found.append(
            f"only {unique_prompts} distinct prompts of {expected.unique} planned: "
            "the cache may have answered"
        )
    if workload is Workload.MISS_ONLY and prompt_tokens and cached_tokens is not None:
        share = cached_tokens / prompt_tokens
        if share > most_cached_share:
            found.append(
                f"the cache was warm: {share:.1%} of the prompt tokens were cached, "
                f"{most_cached_share:.0%} at most are possible in a run of misses "
                "-- reset the cache or give another --pool"
            )
    return tuple(found)
