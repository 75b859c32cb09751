"""Both blocks of a pair send the same prompts, or the pair is no pair."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from kvgate.analyse.paired import prompts_digest, with_same_prompts
from kvgate.analyse.results import BlockResult
from kvgate.verdict import About

from .builders import cell, changed, history, judged_clause, of_appliance


def broken(blocks: list[BlockResult]) -> dict[int, str]:
    return {b.n: c.name for b in blocks for c in b.conditions if c.ok is not True}


def test_the_same_prompts_in_any_order_have_one_digest() -> None:
    def digest(*prompts: str) -> str:
        return prompts_digest(pd.DataFrame({"prompt_digest": list(prompts)}))

    assert digest("a", "b") == digest("b", "a") == digest("a", "b", "a")
    assert digest("a", "b") != digest("a", "c")
    assert digest("a", "b") != digest("ab")


def test_other_prompts_in_one_arm_break_their_pair_alone() -> None:
    def chosen(block: BlockResult) -> bool:
        return of_appliance(block) and cell("cold_restore", 8)(block) and block.pair == 2

    analysis = changed(history(), chosen, lambda b: replace(b, prompts="others"))
    blocks = with_same_prompts(analysis.blocks)
    found = broken(blocks)
    assert set(found.values()) == {"prompts_alike"}
    assert {(b.pair, b.cell.level, b.role) for b in blocks if b.n in found} == {
        (2, 8, "reference"), (2, 8, "test"),
    }  # fmt: skip
    abouts = {c.about for b in blocks for c in b.conditions if c.name == "prompts_alike"}
    assert abouts == {About.INSTRUMENT}


def test_the_same_prompts_keep_every_pair() -> None:
    assert broken(with_same_prompts(history().blocks)) == {}


def test_prompts_that_nobody_may_have_seen_differ_between_arms() -> None:
    miss = [replace(b, kind="miss", prompts=f"{b.n}") for b in history().blocks]
    assert broken(with_same_prompts(miss)) == {}


def test_pairs_of_other_prompts_never_pass() -> None:
    analysis = changed(history(), of_appliance, lambda b: replace(b, prompts="others"))
    spoiled = replace(analysis, blocks=tuple(with_same_prompts(analysis.blocks)))
    assert judged_clause(spoiled, "G3.1").verdict == "INVALID"
