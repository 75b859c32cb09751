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
    if block.session not in sessions:
        return block
    said = f"session {block.session} was broken off"
    condition = Condition(
        INTERRUPTED, About.INSTRUMENT, False, said, "measured to its end", "text", REMEDY
    )
    return replace(block, conditions=(*block.conditions, condition))


def never_repeated(analysis: Analysis) -> tuple[str, ...]:
    """Places whose interrupted block was not measured anew, in words: such evidence is missing."""

    def place(block: BlockResult) -> tuple[int | None, str, str]:
        return (block.pair, block.role, block.cell.label)

    measured = {place(b) for b in analysis.blocks if not b.interrupted}
    lost = {place(b): b for b in analysis.blocks if b.interrupted and place(b) not in measured}
    return tuple(
        f"{b.cell.label} of the {b.arm} arm"
        + ("" if b.pair is None else f" in pair {b.pair + 1}")
        for _, b in sorted(lost.items(), key=lambda item: item[1].n)
    )  # fmt: skip
