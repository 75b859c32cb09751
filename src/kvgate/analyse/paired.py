"""What both blocks of a pair must share, beyond what each shows alone. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from kvgate.analyse.results import BlockResult
from kvgate.reuse import FRESH_KINDS
from kvgate.verdict import About, Condition

OWN_PROMPTS = frozenset({"miss"})
"""Workloads whose prompts must differ between arms: nobody may have seen them before."""


def prompts_digest(requests: pd.DataFrame, length: int | None = None) -> str:
    """One digest for the set of prompts of a block, whatever their order.

    ``length``: of those of so many tokens alone. The later turns of a conversation hold answers,
    which two arms may round differently; the first ones must be the same.
    """
    if length is not None:
        requests = requests[requests["prompt_tokens"] == length]
    prompts = requests["prompt_digest"].astype(str).unique().tolist()
    return hashlib.sha256("".join(f"{p}\n" for p in sorted(prompts)).encode()).hexdigest()


def with_same_prompts(results: Sequence[BlockResult]) -> list[BlockResult]:
    """The blocks, each that has a partner with the condition that both sent the same prompts.

    Prompts of one arm that are shorter to restore, or known to a cache, are a gain of the prompts.
    """
    by_place: dict[tuple[int, str], list[BlockResult]] = {}
    for block in results:
        if block.pair is not None and block.kind not in OWN_PROMPTS and not block.interrupted:
            by_place.setdefault((block.pair, block.cell.label), []).append(block)
    found: dict[int, Condition] = {}
    for together in by_place.values():
        if {b.role for b in together} != {"reference", "test"}:
            continue
        arms = {b.arm for b in together}
        if len(arms) == 1 and all(b.kind in FRESH_KINDS for b in together):
            continue  # an arm against itself must not find what its first block left in the store
        alike = len({b.prompts for b in together}) == 1
        for block in together:
            found[block.n] = Condition(
                "prompts_alike",
                About.INSTRUMENT,
                alike,
                "the same" if alike else "others",
                "the same",
                "text",
                "both blocks of a pair must send the same prompts: check seed and pool",
            )
    return [
        replace(b, conditions=(*b.conditions, found[b.n])) if b.n in found else b for b in results
    ]
