"""How many prompt tokens came through the KV connector, and whether the counters can be believed.

A hit rate is a quotient of two increases over the window, never a gauge. Where two witnesses
contradict each other the answer is "not trusted", which is neither "hits" nor "no hits".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kvgate.analyse.counters import grown, restarts

TOLERANCE: Final = 0.01
"""Of the prompt tokens: an engine always recomputes the last token, and counts whole blocks."""
DOUBTFUL_SPEED_UP: Final = 2.0
"""Cold over warm TTFT from which on "no hits" needs another explanation."""


class Growth(Protocol):
    """What counters grew by over a window (None: missing), and how often their process began
    again."""

    @property
    def delta(self) -> Mapping[str, float | None]: ...

    @property
    def restarts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OfBlock:
    """The growth of one target over a block."""

    delta: Mapping[str, float | None]
    restarts: int


def growth_of(block: Mapping[str, Any], target: str) -> OfBlock | None:
    """What a target's counters grew by over a block; None where a snapshot is missing.

    A restart is a condition of its own, so it is no doubt here.
    """
    if restarts(block, target) is None:
        return None
    names = (*_ENGINE_COUNTS, *_STORE_COUNTS)
    return OfBlock({name: grown(block, target, name) for name in names}, 0)


_ENGINE_COUNTS: Final = (
    "prompt_tokens", "prompt_tokens_external", "prompt_tokens_engine_cache", "external_hits",
    "external_queries", "prefix_queries",
)  # fmt: skip
_STORE_COUNTS: Final = ("lookup_tokens", "hit_tokens", "hit_tokens_backend", "loads", "bytes_read")


@dataclass(frozen=True, slots=True)
class HitReading:
    """``share`` = ``hit_tokens`` / ``prompt_tokens`` over the window, None where either is missing
    or ``trusted`` is False. ``basis`` names the counters, ``notes`` say what was found odd, and
    ``doubts`` those of them that forbid trust."""

    share: float | None
    hit_tokens: float | None
    prompt_tokens: float | None
    basis: str
    trusted: bool
    notes: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Every field by name."""
        return {
            "share": self.share,
            "hit_tokens": self.hit_tokens,
            "prompt_tokens": self.prompt_tokens,
            "basis": self.basis,
            "trusted": self.trusted,
            "notes": list(self.notes),
        }


def read_external_hits(
    engine: Growth | None, store: Growth | None, *, ttft_ratio: float | None = None
) -> HitReading:
    """The share of prompt tokens that came through the connector, from the increases of an engine
    and, as a second witness, of its store over the same window.

    The divisor is the engine's prompt tokens. Queries of the external cache are no divisor:
    retries of the scheduler count one lookup many times, and asynchronous connectors record it
    twice. ``ttft_ratio`` is TTFT without over TTFT with the store for the same prompts (a third
    witness against "no hits"), None where it was not measured.
    """
    if engine is None:
        return HitReading(None, None, None, "missing", False, ("the engine has no increase",))
    counts = engine.delta
    by_source = counts.get("prompt_tokens_external")
    by_connector = counts.get("external_hits")
    hits = by_source if by_source is not None else by_connector
    prompts = counts.get("prompt_tokens")
    name = "prompt_tokens_external" if by_source is not None else "external_hits"
    basis = "missing" if hits is None or prompts is None else f"{name} / prompt_tokens"
    other = dict(store.delta) if store is not None else {}
    notes = list(_odd_queries(counts))
    looked_up = other.get("lookup_tokens")
    if looked_up is not None and prompts and looked_up > prompts * (1 + TOLERANCE):
        notes.append("the store counts lookups more than once: its hits are no witness")
        other["hit_tokens"] = other["hit_tokens_backend"] = None
    doubts = [] if hits is None else _contradictions(hits, counts, other, ttft_ratio)
    if engine.restarts or (store is not None and store.restarts):
        doubts.append("engine or store restarted inside the window")
    if hits is not None and prompts is not None and hits > prompts * (1 + TOLERANCE):
        doubts.append(f"{hits:.0f} hit tokens of {prompts:.0f} prompt tokens")
    if by_source is not None and by_connector is not None:
        difference = abs(by_source - by_connector)
        if difference > TOLERANCE * max(by_source, by_connector, 1.0):
            notes.append(
                f"the engine counts {by_source:.0f} external tokens by source "
                f"and {by_connector:.0f} by connector; the first is used"
            )
    trusted = hits is not None and prompts is not None and not doubts
    share = hits / prompts if trusted and hits is not None and prompts else None
    return HitReading(share, hits, prompts, basis, trusted, (*notes, *doubts), tuple(doubts))


def _odd_queries(counts: Mapping[str, float | None]) -> list[str]:
    prompts = counts.get("prompt_tokens")
    notes = []
    for kind in ("external_queries", "prefix_queries"):
        queries = counts.get(kind)
        if queries is None or not prompts or queries <= prompts * (1 + TOLERANCE):
            continue
        notes.append(
            f"{kind} grew by {queries / prompts:.3g} times the prompt tokens: lookups are counted "
            "more than once, so prompt_tokens is the divisor"
        )
    return notes


def _contradictions(
    hits: float,
    counts: Mapping[str, float | None],
    other: Mapping[str, float | None],
    ttft_ratio: float | None,
) -> list[str]:
    doubts: list[str] = []
    stored_hits = other.get("hit_tokens_backend")
    if stored_hits is None:
        stored_hits = other.get("hit_tokens")
    # The store also counts as hits what the engine then took from its own cache.
    warm = counts.get("prompt_tokens_engine_cache") or 0.0
    slack = TOLERANCE * max(counts.get("prompt_tokens") or 0.0, 1.0)
    if stored_hits is not None and stored_hits - warm > 2 * hits + slack:
        doubts.append(
            f"the store found {stored_hits:.0f} tokens, the engine counts {hits:.0f} from it and "
            f"{warm:.0f} from its own cache: a connector may be recorded twice or not at all"
        )
    if stored_hits is not None and hits > stored_hits * (1 + TOLERANCE) + slack:
        doubts.append(
            f"the engine counts {hits:.0f} external tokens, the store found {stored_hits:.0f}"
        )
    if hits == 0:
        moved = [name for name in ("loads", "bytes_read") if (other.get(name) or 0.0) > 0]
        if moved:
            doubts.append(f"counter not trusted: no hits, but the store's {moved[0]} grew")
        if ttft_ratio is not None and ttft_ratio >= DOUBTFUL_SPEED_UP:
            doubts.append(f"counter not trusted: no hits, but TTFT fell {ttft_ratio:.3g} times")
    return doubts
