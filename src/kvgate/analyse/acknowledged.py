"""What a store has acknowledged and what it was asked for, from the counters that its kind has.

Stores differ: one says how many tokens or bytes it holds now, another only counts the bytes that
were written to it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvgate.analyse.counters import ENGINE, before, grown, seen, value

HOLDS: Final = ("stored_tokens", "used_bytes")
"""What a store says that it holds now, best witness first."""
COUNTS: Final = ("bytes_written", "accepted_tokens")
"""What was written to it since its process began, whatever became of it."""
TAKES: Final = (*HOLDS, *COUNTS)
"""What tells that it took something."""

Said = Mapping[str, float | None]


def witness(counters: Said | None) -> str | None:
    """The counter by which this store acknowledges; None where its page has none."""
    return next((name for name in TAKES if value(counters, name) is not None), None)


def in_tokens(counters: Said | None, name: str, kv_bytes_per_token: int) -> float | None:
    """A counter of tokens or of bytes, in tokens."""
    found = value(counters, name)
    return found / kv_bytes_per_token if found is not None and "bytes" in name else found


def held_tokens(counters: Said | None, kv_bytes_per_token: int) -> float | None:
    """The tokens that a store says it holds now; None where it never says that."""
    told = (in_tokens(counters, name, kv_bytes_per_token) for name in HOLDS)
    return next((tokens for tokens in told if tokens is not None), None)


def taken_tokens(then: Said, now: Said, kv_bytes_per_token: int) -> float | None:
    """Tokens that a store took between two looks, or gave because it had them already; None where
    its page tells nothing of it.

    What it held before proves nothing about new prompts, so growth alone counts. A counter that was
    not there before stood at 0: pages name a counter when it first moves.
    """
    name = witness(now)
    if name is None:
        return None

    return _growth(then, now, name, kv_bytes_per_token) + given_tokens(
        then, now, kv_bytes_per_token
    )


def given_tokens(then: Said, now: Said, kv_bytes_per_token: int) -> float:
    """Tokens that a store gave between two looks; 0 where its page does not say."""
    return max(
        _growth(then, now, name, kv_bytes_per_token) for name in ("hit_tokens", "bytes_read")
    )


def lies_behind(then: Said, now: Said, kv_bytes_per_token: int) -> float | None:
    """The tokens that are known to lie in a store after prompts that differ were sent to it, each
    once; None where it never says what it holds.

    A store inside an engine begins anew with it and tells only of what it took since. It gives
    itself away by giving more than it said to hold: what it gave then lies there as well.
    """
    held, given = held_tokens(now, kv_bytes_per_token), given_tokens(then, now, kv_bytes_per_token)
    if held is None:
        return None
    return held + given if given > (held_tokens(then, kv_bytes_per_token) or 0.0) else held


def _growth(then: Said, now: Said, name: str, kv_bytes_per_token: int) -> float:
    """How far a counter of tokens or bytes rose, in tokens."""
    end = in_tokens(now, name, kv_bytes_per_token) or 0.0
    return max(0.0, end - (in_tokens(then, name, kv_bytes_per_token) or 0.0))


def is_busy(counters: Said) -> bool:
    """Whether a store has accepted something that it has not stored yet, as far as it says."""
    return bool(value(counters, "pending_bytes") or value(counters, "pending_chunks"))


def had_acknowledged(
    block: Mapping[str, Any], store: str, share: float, kv_bytes_per_token: int
) -> bool:
    """Whether the store of a block held what it was primed with, by its own words.

    A store that says what it holds must have said it before the block. One that only counts what
    is written (``primed_by`` in the block) has said so when it was primed, and no more than that.
    """
    tokens = value(block, "primed_tokens")
    if not tokens or not seen(block, store):
        return False
    counters = {name: before(block, store, name) for name in HOLDS}
    held = held_tokens(counters, kv_bytes_per_token)
    if held is not None:
        return held >= share * tokens
    return block.get("primed_by") in COUNTS


def was_acknowledged(
    block: Mapping[str, Any], store: str, share: float, kv_bytes_per_token: int
) -> bool:
    """Whether a store that was primed has said so: before the block, or when it was primed.

    A store inside an engine begins anew with it and then tells only of what it took since; what it
    says is less than what lies behind it. That takes nothing back where another process said that
    it has the prompts. It is not enough to blame a store for what it then does not give
    (:func:`had_acknowledged`): who lost it cannot be told.
    """
    if had_acknowledged(block, store, share, kv_bytes_per_token):
        return True
    then = value(block, "primed_started_ms")
    now = before(block, store, "process_start_time_ms")
    told = bool(value(block, "primed_tokens")) and block.get("primed_by") in TAKES
    return told and seen(block, store) and None not in (then, now) and then != now


def asked_tokens(block: Mapping[str, Any], store: str) -> float | None:
    """The tokens for which a store was asked in a block.

    A store that counts calls and no tokens was asked for what the engine's connector looked up, as
    soon as it counts any call.
    """
    tokens = grown(block, store, "lookup_tokens")
    if tokens is not None:
        return tokens
    calls = grown(block, store, "lookups")
    if calls is None or calls <= 0:
        return calls
    return grown(block, ENGINE, "external_queries")
