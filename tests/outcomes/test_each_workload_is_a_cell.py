"""Workloads that repeat a part of their prompts, as cells of a gate: a pair of each through the
real path, its tokens from where the workload declares them, the same prompts in both arms."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.analyse.assemble import assemble
from kvgate.analyse.counters import ENGINE, grown
from kvgate.reuse import reuse_of
from kvgate.verdict import About

from .stage import CONTRACT, SCALE, Measured, stage

ARMS = (("baseline", "reference"), ("appliance", "test"))


def shares(measured: Measured) -> dict[str, float]:
    """Shares of the block's prompt tokens by source."""
    total = grown(measured.block, ENGINE, "prompt_tokens")
    found = {
        source: grown(measured.block, ENGINE, f"prompt_tokens_{source}")
        for source in ("computed", "engine_cache", "external")
    }
    assert total
    return {source: (tokens or 0.0) / total for source, tokens in found.items()}


@pytest.mark.parametrize("workload", ["shared_prefix", "long_document", "multi_turn"])
def test_a_pair_of_each_workload_is_a_measurement(tmp_path: Path, workload: str) -> None:
    with stage(tmp_path, level=2, workload=workload) as made:
        for arm, _ in ARMS:
            made.prime(0, arm=arm)
        pair = [made.measure(arm=arm, role=role) for arm, role in ARMS]
        for block in pair:
            assert block.told() == {}
            planned = reuse_of(
                CONTRACT.workloads[workload], len(block.requests), CONTRACT.model.chunk_tokens
            )
            assert planned is not None
            found = shares(block)
            assert found["computed"] == pytest.approx(1.0 - planned.reused, abs=0.01)
            assert found["external"] >= planned.stored - 0.01
        said = assemble(CONTRACT, 3, [b.raw() for b in pair], {}, {}, SCALE)
        alike = [c for b in said.blocks for c in b.conditions if c.name == "prompts_alike"]
        assert [c.ok for c in alike] == [True, True]
        # The next pair finds its beginnings again, and the rest of its prompts nowhere.
        again = made.measure(pair=1)
        assert again.told() == {}
        assert not set(again.requests["prompt_digest"]) & set(pair[1].requests["prompt_digest"])
        # The very same prompts once more: what should be new lies in the store by now.
        repeated = made.measure().told()
        assert repeated["rest_computed"] == (False, About.ENVIRONMENT)
        assert {about for _, about in repeated.values()} == {About.ENVIRONMENT}


@pytest.mark.parametrize("workload", ["shared_prefix", "long_document"])
def test_stored_beginnings_that_the_store_lost_are_its_own_fault(
    tmp_path: Path, workload: str
) -> None:
    with stage(tmp_path, "store-misses", level=2, workload=workload) as made:
        made.prime(0)
        found = made.measure().told()
    assert found["declared_source"] == (False, About.APPLIANCE)


def test_beginnings_that_the_engine_never_asks_for_are_computed_again(tmp_path: Path) -> None:
    with stage(tmp_path, level=2, workload="shared_prefix") as made:
        made.prime(0)
        found = made.measure("never-hits").told()
    # The store was not asked: the cause cannot be told, and what was stored did not come from it.
    assert found == {
        "declared_source": (False, About.ENVIRONMENT),
        "repeats_reused": (False, About.ENVIRONMENT),
    }
