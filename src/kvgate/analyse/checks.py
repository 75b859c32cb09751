"""Conditions against a limit, and the shares that they are made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvgate.analyse.counters import engines_of, value
from kvgate.verdict import About, Condition

Block = Mapping[str, Any]
HOST: Final = "host"
NS: Final = 1e-9


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


def ratio(part: float | None, whole: float | None) -> float | None:
    if part is None or whole is None or whole <= 0:
        return None
    return part / whole


def scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


def coverage_of(block: Block) -> float | None:
    """Smallest share of the block that the looks at every engine and the hosts covered; None where
    one of them, or a host that was to be observed elsewhere, is not known to the end."""
    coverage = (block.get("observation") or {}).get("coverage")
    if not isinstance(coverage, Mapping):
        return None
    shares = [value(coverage, name) for name in (*engines_of(block), HOST)]
    elsewhere: Mapping[str, Mapping[str, Any]] = block.get("hosts") or {}
    shares += [None if h.get("fault") else value(h, "coverage") for h in elsewhere.values()]
    known = [share for share in shares if share is not None]
    return min(known) if len(known) == len(shares) else None
