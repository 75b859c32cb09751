"""Every prompt of a long run is cold when its turn comes again, by construction."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.analyse.soak.windows import bounds
from kvgate.conduct.soak import BEYOND, pool_size
from kvgate.contract import load_contract
from kvgate.rehearsal.profile import load_scenario

CONTRACTS = Path(__file__).parents[2] / "gates" / "contracts"
SOAKS = [p for p in sorted(CONTRACTS.glob("*.toml")) if load_contract(p).gate4 is not None]


@pytest.mark.parametrize("path", SOAKS, ids=lambda p: p.stem)
def test_the_pool_is_larger_than_the_engines_own_tiers(path: Path) -> None:
    terms = load_contract(path)
    soak = terms.gate(4).soak
    assert soak is not None
    tokens = pool_size(terms, soak) * terms.workloads[soak.workload].prompt_tokens
    assert tokens >= BEYOND * soak.upper_tiers_tokens
    assert soak.canaries is not None


def test_the_rehearsal_names_the_cache_of_its_engine() -> None:
    soak = load_contract(CONTRACTS / "rehearsal.toml").gate(4).soak
    engine = load_scenario("healthy").engine
    assert soak is not None
    assert soak.upper_tiers_tokens == engine.gpu_cache_tokens + engine.dram_tokens


def test_windows_reach_to_the_very_end() -> None:
    assert bounds(100.0, 50.0) == ((0.0, 50.0), (50.0, 100.0))
    assert bounds(130.0, 50.0) == ((0.0, 50.0), (50.0, 100.0), (100.0, 130.0))
    assert bounds(110.0, 50.0) == ((0.0, 50.0), (50.0, 110.0))
    assert bounds(20.0, 50.0) == ((0.0, 20.0),)
    assert bounds(0.0, 50.0) == ()
