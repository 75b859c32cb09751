"""A clause on p99 with random tails: the consumer's and the producer's risk hold."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TAILS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "decision" / "tails.py"))
CAMPAIGNS = 150


@pytest.mark.parametrize("tail", TAILS["TAILS"])
def test_at_the_zones_edge_a_worse_tail_passes_in_few_campaigns(tail: str) -> None:
    found = TAILS["outcomes"](8, tail, tail, TAILS["THRESHOLD"] + TAILS["ZONE"], CAMPAIGNS)
    assert found["pass"] <= 0.05 + 3 * (0.05 * 0.95 / CAMPAIGNS) ** 0.5


@pytest.mark.parametrize("tail", TAILS["TAILS"])
def test_an_equal_tail_is_not_stopped(tail: str) -> None:
    assert TAILS["outcomes"](8, tail, tail, 0.0, CAMPAIGNS)["fail"] <= 0.02


def test_a_tail_that_only_the_appliance_has_passes_rarely() -> None:
    assert TAILS["outcomes"](16, "none", "rare", 0.0, CAMPAIGNS)["pass"] <= 0.10


def test_a_quiet_equal_tail_passes() -> None:
    assert TAILS["outcomes"](16, "none", "none", 0.0, CAMPAIGNS)["pass"] >= 0.9
