"""Normalised counters of an engine and of a store, and what they grew by.

Tokens, bytes and requests are plain counts since the process started; a field that the source does
not offer, or offers in no readable form, is ``None``: missing is not zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:  # engine hosts may have Python 3.10, which has none
    from typing import Self

START_TOLERANCE_S: Final = 0.01
"""Start times are read from the kernel's tick counter (10 ms); closer ones are one process."""


@dataclass(frozen=True, slots=True)
class _Counters:
    """What engine and store have in common: reading from JSON and writing to it."""

    GAUGES: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, float | None]:
        """Every field by name; the start time as integer ``process_start_time_ms``, which six
        significant digits would otherwise blur to a quarter of an hour."""
        plain: dict[str, float | None] = {f.name: getattr(self, f.name) for f in fields(self)}
        start_s = plain.pop("process_start_time_s")
        plain["process_start_time_ms"] = None if start_s is None else round(start_s * 1000)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`. A key that is absent is None; raises ValueError for a
        value that is no finite number."""
        values: dict[str, float | None] = {}
        for field in fields(cls):
            name = field.name
            is_start = name == "process_start_time_s"
            value = plain.get("process_start_time_ms" if is_start else name)
            number = not isinstance(value, bool) and isinstance(value, int | float)
            if value is not None and not (number and math.isfinite(value)):
                raise ValueError(f"{name} is {value!r}, not a number")
            values[name] = value / 1000 if is_start and value is not None else value
        return cls(**values)

    @classmethod
    def counter_names(cls) -> tuple[str, ...]:
        """The fields that only grow while a process lives."""
        return tuple(f.name for f in fields(cls) if f.name not in cls.GAUGES)


@dataclass(frozen=True, slots=True)
class EngineCounters(_Counters):
    """An inference engine. Computed, engine cache and external tokens add up to ``prompt_tokens``.

    ``prompt_tokens_engine_cache``: from the engine's own prefix cache (accelerator memory);
    ``prompt_tokens_external``: through the KV connector, whatever tier was behind it;
    ``prompt_tokens_dram``: those of the external ones that were found in host memory.
    ``running`` and ``waiting`` are requests now; ``resident_bytes`` is the process' memory;
    ``late_s`` are seconds by which a simulation missed its schedule (None on real engines).
    """

    GAUGES: ClassVar[frozenset[str]] = frozenset(
        {"running", "waiting", "process_start_time_s", "resident_bytes"}
    )

    prompt_tokens: float | None = None
    prompt_tokens_computed: float | None = None
    prompt_tokens_engine_cache: float | None = None
    prompt_tokens_external: float | None = None
    prompt_tokens_dram: float | None = None
    generation_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    external_queries: float | None = None
    external_hits: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    process_start_time_s: float | None = None
    resident_bytes: float | None = None
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class StoreCounters(_Counters):
    """The store behind the KV connector.

    ``hit_tokens`` counts every tier of the store; ``hit_tokens_dram`` those found in its host
    memory, ``hit_tokens_backend`` those found on the device or appliance behind it. ``lookups`` are
    calls that ask for keys, where tokens are not counted. ``loads`` are completed reads from
    behind. ``stored_tokens`` are held now, ``accepted_tokens`` were taken since the process began,
    evicted ones included. ``pending_bytes`` and ``pending_chunks`` are accepted and not yet stored.
    """

    GAUGES: ClassVar[frozenset[str]] = frozenset(
        {"pending_bytes", "pending_chunks", "used_bytes", "capacity_bytes", "process_start_time_s"}
    )

    lookup_tokens: float | None = None
    lookups: float | None = None
    hit_tokens: float | None = None
    hit_tokens_dram: float | None = None
    hit_tokens_backend: float | None = None
    loads: float | None = None
    bytes_read: float | None = None
    bytes_written: float | None = None
    stored_tokens: float | None = None
    accepted_tokens: float | None = None
    pending_bytes: float | None = None
    pending_chunks: float | None = None
    used_bytes: float | None = None
    capacity_bytes: float | None = None
    errors: float | None = None
    process_start_time_s: float | None = None
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeterCounters(_Counters):
    """A meter of electrical energy: joules since it was started, over everything that it feeds."""

    GAUGES: ClassVar[frozenset[str]] = frozenset({"process_start_time_s"})

    energy_j: float | None = None
    process_start_time_s: float | None = None


Counters = EngineCounters | StoreCounters | MeterCounters


@dataclass(frozen=True, slots=True)
class Increase:
    """How much each counter grew. ``delta`` has every counter's name (gauges have no increase);
    None where either side is missing. After a restart a delta is what the new process counted: a
    lower bound. ``restarts`` counts them, ``fell`` names counters that went down."""

    delta: Mapping[str, float | None]
    restarts: int
    fell: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"delta": {name: number | null}, "restarts": int, "fell": [name]}``."""
        return {"delta": dict(self.delta), "restarts": self.restarts, "fell": list(self.fell)}


def increase(before: Counters | None, after: Counters | None) -> Increase | None:
    """The growth from ``before`` to ``after``; None where either whole snapshot is missing.

    A restart is seen by another start time, or by a counter that fell; then every counter began
    anew at 0. Raises TypeError when an engine is compared with a store.
    """
    if before is None or after is None:
        return None
    if type(before) is not type(after):
        raise TypeError("an engine's counters and a store's have no increase")
    names = before.counter_names()
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in names}
    fell = tuple(n for n, (b, a) in pairs.items() if b is not None and a is not None and a < b)
    old_start, new_start = before.process_start_time_s, after.process_start_time_s
    moved = (
        old_start is not None
        and new_start is not None
        and abs(new_start - old_start) > START_TOLERANCE_S
    )
    restarted = moved or bool(fell)
    delta: dict[str, float | None] = {}
    for name, (old, new) in pairs.items():
        missing = old is None or new is None
        delta[name] = None if missing else new if restarted else new - old
    return Increase(delta, int(restarted), fell)


def combine(first: Increase | None, second: Increase | None) -> Increase | None:
    """Two steps that follow each other as one; a step that is None is stepped over. A counter that
    is None in either step is None in the sum."""
    if first is None or second is None:
        return first or second
    delta: dict[str, float | None] = {}
    for name, value in first.delta.items():
        other = second.delta.get(name)
        delta[name] = None if value is None or other is None else value + other
    fell = tuple(dict.fromkeys((*first.fell, *second.fell)))
    return Increase(delta, first.restarts + second.restarts, fell)


def increase_over(snapshots: Iterable[Counters | None]) -> Increase | None:
    """The growth over a whole window, step by step, so that several restarts are all counted and
    only what a process counted between its last snapshot and its end is lost.

    Missing snapshots are stepped over; None with fewer than two that are there.
    """
    there = [snapshot for snapshot in snapshots if snapshot is not None]
    growth: Increase | None = None
    for before, after in pairwise(there):
        growth = combine(growth, increase(before, after))
    return growth
