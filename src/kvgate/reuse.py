"""What a workload repeats, in tokens: which beginnings of its prompts lie in the store before a
block, which come again within it, and how long each prompt is. Pure.

Caches keep whole chunks, and never the last token of an answer, which nobody computed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kvgate.contract_tables import Workload

SHARED_KINDS: Final = frozenset({"shared_prefix", "long_document"})
"""Workloads whose prompts begin with what was stored before, and go on with what nobody saw."""
RESTORED_KINDS: Final = frozenset({"cold_restore", "probe"}) | SHARED_KINDS
"""Workloads that read from a store what it was primed with."""
FRESH_KINDS: Final = SHARED_KINDS | {"multi_turn"}
"""Workloads that repeat a part and bring another that must be new in every block."""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """``groups`` beginnings of ``prefix_tokens``, each of which several prompts share."""

    prefix_tokens: int
    groups: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """Shares of the tokens of all prompts of a block.

    ``repeated`` were said before, ``reused`` of them in whole chunks, which any cache keeps;
    ``stored`` are asked for the first time in the block, so that only a primed store can have them.
    """

    repeated: float
    reused: float
    stored: float

    @property
    def new(self) -> float:
        """What nobody said before: it must be computed."""
        return 1.0 - self.repeated

    @property
    def again(self) -> float:
        """What the engine's own cache may serve."""
        return self.repeated - self.stored


def shared_parts(workload: Workload, chunk_tokens: int) -> SharedParts | None:
    """What the prompts of a workload share; None where they share nothing.

    A hit ratio becomes the nearest number of whole chunks.
    """
    if workload.kind == "shared_prefix":
        chunks = round((workload.hit_ratio or 0.0) * workload.prompt_tokens / chunk_tokens)
        return SharedParts(chunks * chunk_tokens, workload.prefixes or 1)
    if workload.kind == "long_document":
        document = workload.prompt_tokens - (workload.question_tokens or 0)
        return SharedParts(document, workload.documents or 1)
    return None


def prompt_lengths(workload: Workload, requests: int) -> Mapping[int, int]:
    """How many prompts of a block have which length, in tokens."""
    if workload.kind != "multi_turn":
        return {workload.prompt_tokens: requests}
    turns = workload.turns or 1
    grows = workload.output_tokens + (workload.user_tokens or 0)
    return {workload.prompt_tokens + n * grows: requests // turns for n in range(turns)}


def reuse_of(workload: Workload, requests: int, chunk_tokens: int) -> Reuse | None:
    """What a block of so many requests repeats; None for workloads that have one source alone."""
    lengths = prompt_lengths(workload, requests)
    tokens = sum(length * count for length, count in lengths.items())

    def whole(said: int) -> int:
        return said // chunk_tokens * chunk_tokens

    shared = shared_parts(workload, chunk_tokens)
    if shared is not None:
        prefix, first = shared.prefix_tokens, min(shared.groups, requests)
        return Reuse(
            requests * prefix / tokens, requests * whole(prefix) / tokens,
            first * whole(prefix) / tokens,
        )  # fmt: skip
    if workload.kind == "multi_turn":
        # What a turn repeats is the prompt before it with its answer.
        said = [(n + workload.output_tokens - 1, count) for n, count in sorted(lengths.items())]
        again = said[:-1]
        return Reuse(
            sum(n * count for n, count in again) / tokens,
            sum(whole(n) * count for n, count in again) / tokens,
            0.0,
        )
    return None


def unfit_workloads(
    workloads: Mapping[str, Workload], chunk_tokens: int
) -> Iterator[tuple[str, str]]:
    """(key path, message) of each workload whose sizes do not fit together or the chunks."""
    for name, workload in workloads.items():
        at, kind = f"workloads.{name}", workload.kind
        shared = shared_parts(workload, chunk_tokens)
        if shared is not None:
            key = "hit_ratio" if kind == "shared_prefix" else "question_tokens"
            if shared.prefix_tokens < chunk_tokens:
                yield (
                    f"{at}.{key}",
                    (
                        f"what is shared is shorter than a chunk of {chunk_tokens} tokens: "
                        "nothing would ever hit"
                    ),
                )
            elif shared.prefix_tokens >= workload.prompt_tokens:
                yield f"{at}.{key}", "nothing of the prompt is left that is not shared"
        if kind == "multi_turn" and workload.requests_per_level % (workload.turns or 1):
            yield (
                f"{at}.requests_per_level",
                (
                    f"{workload.requests_per_level} requests of each stream are no whole "
                    f"conversations of {workload.turns} turns"
                ),
            )
