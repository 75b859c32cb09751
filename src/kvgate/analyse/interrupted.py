"""Blocks of sessions that an interruption broke off: listed, never compared, measured anew.

Pure. The sessions are those that ``plan.json`` marks; what was measured in them plays no part. Only
what speaks against the appliance whatever else happened (a wrong answer) still counts in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.analyse.results import INTERRUPTED, Analysis, BlockResult
from kvgate.verdict import About, Condition

REMEDY: Final = "the session was broken off, so its pair was measured anew; nothing is left to do"


def interrupted_sessions(plan: Mapping[str, Any] | None) -> frozenset[int]:
    """Numbers of the sessions that ``plan.json`` marks as interrupted."""
    sessions = (plan or {}).get("sessions")
    if not isinstance(sessions, list):
        return frozenset()
    return frozenset(
        int(s["number"])
        for s in sessions
        if isinstance(s, Mapping) and s.get("state") == INTERRUPTED and "number" in s
    )


def mark_interrupted(analysis: Analysis, sessions: frozenset[int]) -> Analysis:
    """``analysis`` with one more, broken condition on each block of these sessions."""
    if not sessions:
        return analysis
    return replace(analysis, blocks=tuple(_marked(b, sessions) for b in analysis.blocks))


def _marked(block: BlockResult, sessions: frozenset[int]) -> BlockResult:
    return _set_aside(block) if block.session in sessions else block


def _set_aside(block: BlockResult) -> BlockResult:
    said = f"session {block.session} was broken off"
    condition = Condition(
        INTERRUPTED, About.INSTRUMENT, False, said, "measured to its end", "text", REMEDY
    )
    return replace(block, conditions=(*block.conditions, condition))


def _place(block: BlockResult) -> tuple[object, ...]:
    return (block.pair, block.role, block.cell)


def never_repeated(analysis: Analysis) -> tuple[str, ...]:
    """Places whose interrupted block was not measured anew, in words: such evidence is missing."""
    measured = {_place(b) for b in analysis.blocks if not b.interrupted}
    lost = {_place(b): b for b in analysis.blocks if b.interrupted and _place(b) not in measured}
    return tuple(
        f"{b.cell.label} of the {b.arm} arm"
        + ("" if b.pair is None else f" in pair {b.pair + 1}")
        for _, b in sorted(lost.items(), key=lambda item: item[1].n)
    )  # fmt: skip


def as_first_measured(analysis: Analysis) -> Analysis:
    """The history in which an interruption takes nothing back: of each place the first measurement
    stays, also one of a broken-off session, and what was measured there later is set aside.

    Nobody can change this history by breaking off a session, whatever was seen of it: a verdict
    that holds in it too has no more risk than one that nothing interrupted.
    """
    if not any(b.interrupted for b in analysis.blocks):
        return analysis
    first: dict[tuple[object, ...], BlockResult] = {}
    for block in sorted(analysis.blocks, key=lambda b: b.n):
        if block.pair is not None and _measurement(block):
            first.setdefault(_place(block), block)
    return replace(analysis, blocks=tuple(_in_place(b, first) for b in analysis.blocks))


def _in_place(block: BlockResult, first: Mapping[tuple[object, ...], BlockResult]) -> BlockResult:
    kept = first.get(_place(block))
    if kept is None or not (kept.interrupted or block.interrupted):
        return block
    if block.n == kept.n:
        sound = tuple(c for c in block.conditions if c.name != INTERRUPTED)
        return replace(block, conditions=sound)
    return block if block.interrupted else _set_aside(block)


def _measurement(block: BlockResult) -> bool:
    """Neither instrument nor environment was at fault, apart from the interruption. What the
    appliance did wrong stays held against it."""
    others = [c for c in block.conditions if c.name != INTERRUPTED]
    return bool(others) and all(c.ok is True or c.about is About.APPLIANCE for c in others)
