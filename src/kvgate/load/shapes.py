"""What the prompts of a workload have in common: parts, each a pure function of its name.

A prompt is a row of parts; two prompts share tokens exactly where they share their first parts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from kvgate.errors import UsageError
from kvgate.load.job import Conversation, Prompts, Shared
from kvgate.load.prompts import prompt_tokens


class Part(NamedTuple):
    """``tokens`` tokens, number ``number`` of a pool."""

    pool: str
    number: int
    tokens: int


def parts_of(prompts: Prompts, index: int) -> tuple[Part, ...]:
    """The parts of prompt number ``index``, but for a trace, whose lines say them.

    Of a conversation: what its user says in that turn; the rest is what was said before.
    """
    shape = prompts.shape
    pool = prompts.pool
    if isinstance(shape, Shared):
        group = group_of(prompts, shape, index)
        rest = prompts.tokens - shape.prefix_tokens
        prefix = Part(f"{pool}/prefix", group, shape.prefix_tokens)
        return (prefix, Part(f"{pool}/rest", index, rest)) if rest else (prefix,)
    if isinstance(shape, Conversation) and index % shape.turns:
        return (Part(f"{pool}/user", index, shape.user_tokens),)
    return (Part(pool, index, prompts.tokens),)


def group_of(prompts: Prompts, shape: Shared, index: int) -> int:
    """Which group's prefix prompt number ``index`` begins with."""
    place = index - prompts.first
    if shape.order == "runs":
        # As even as it can be: group g has the places with place * groups // count == g.
        return place * shape.groups // prompts.count
    if shape.order == "shuffled":
        return _shuffled(prompts.seed, prompts.pool, shape.groups, prompts.count)[place]
    return place % shape.groups


@lru_cache(maxsize=4)
def _shuffled(seed: str, pool: str, groups: int, count: int) -> list[int]:
    order = [i % groups for i in range(count)]
    random.Random(f"groups:{seed}:{pool}").shuffle(order)
    return order


def token_ids(prompts: Prompts, parts: Iterable[Part]) -> list[int]:
    """The parts' ids in a row."""
    ids: list[int] = []
    for part in parts:
        ids += prompt_tokens(
            prompts.seed, part.pool, part.number, part.tokens, prompts.vocab_low, prompts.vocab_high
        )
    return ids


class Expected(NamedTuple):
    """What a workload's plan alone says about reuse: tokens of its prompts, those that an earlier
    prompt began with too (whole blocks), and distinct prompts."""

    tokens: int
    repeated_tokens: int
    unique: int


def expected_reuse(rows: Iterable[tuple[Part, ...]], block_tokens: int) -> Expected:
    """Count reuse as a cache without limit would that keeps whole blocks of ``block_tokens``.

    It is the most that can be hit: requests in flight together cannot hit each other, and a cache
    of finite size forgets.
    """
    seen: set[tuple[Part, ...]] = set()
    tokens = repeated = 0
    unique: set[tuple[Part, ...]] = set()
    for row in rows:
        tokens += sum(part.tokens for part in row)
        shared = 0
        for length in range(len(row), 0, -1):
            if row[:length] in seen:
                shared = sum(part.tokens for part in row[:length])
                break
        repeated += shared // block_tokens * block_tokens
        seen.update(row[:length] for length in range(1, len(row) + 1))
        unique.add(row)
    return Expected(tokens, repeated, len(unique))


def rows_of(prompts: Prompts) -> Iterator[tuple[Part, ...]]:
    """The parts of every prompt in the order of issue; a conversation's with its past user parts.

    The past answers are left out, for nobody knows them before.
    """
    shape = prompts.shape
    for place in range(prompts.count):
        index = prompts.first + (place if prompts.cycle is None else place % prompts.cycle)
        if isinstance(shape, Conversation):
            begin = place - place % shape.turns
            row: tuple[Part, ...] = ()
            for turn in range(begin, place + 1):
                row += parts_of(prompts, turn)
            yield row
        else:
            yield parts_of(prompts, index)


def shared_for_ratio(tokens: int, count: int, groups: int, ratio: float, block_tokens: int) -> int:
    """Prefix length, in whole blocks, with which ``ratio`` of all prompt tokens are repeated.

    The first request of each group repeats nothing, so prefix = ratio x tokens x count /
    (count - groups). Raises :class:`UsageError` where no prefix gives that ratio.
    """
    if groups >= count:
        raise UsageError(
            f"{groups} prefixes for {count} requests: none is used twice",
            remedy="give fewer --prefixes or more --requests",
        )
    wanted = ratio * tokens * count / (count - groups)
    prefix = round(wanted / block_tokens) * block_tokens
    if prefix < block_tokens:
        raise UsageError(
            f"a hit ratio of {ratio:g} needs a shared prefix of {wanted:.0f} tokens, shorter than "
            f"one block of {block_tokens}: nothing would ever hit",
            remedy="give longer prompts, a higher --hit-ratio or the engine's --block-tokens",
        )
    if prefix >= tokens:
        most = (tokens - 1) // block_tokens * block_tokens * (count - groups) / (tokens * count)
        raise UsageError(
            f"a hit ratio of {ratio:g} cannot be reached: the first request of each prefix misses "
            f"(at most {most:.3f})",
            remedy="give fewer --prefixes, more --requests or a lower --hit-ratio",
        )
    return prefix
