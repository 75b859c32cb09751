"""What runs after what inside a gate: balanced, drawn from the contract's seed, never warmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.contract import load_contract
from kvgate.plan import PairOrder, pair_order, prompts_of

CONTRACT = load_contract(Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml")


def orders(gate: int, pairs: int = 40, run: int = 1) -> list[PairOrder]:
    plan = CONTRACT.gate(gate).pairs
    assert plan is not None
    return [pair_order(CONTRACT, gate, plan, pair, run) for pair in range(pairs)]


def test_couples_of_pairs_run_in_both_orders() -> None:
    first = [order.sessions[0].role for order in orders(3)]
    for couple in zip(first[::2], first[1::2], strict=True):
        assert set(couple) == {"reference", "test"}
    assert len(set(first[::2])) == 2  # and which of them comes first is drawn anew


def test_both_sessions_of_a_pair_have_the_same_cells_in_the_same_order() -> None:
    for order in orders(3):
        one, other = order.sessions
        assert one.cells == other.cells
        assert {one.role, other.role} == {"reference", "test"}
        assert (one.position, other.position) == (0, 1)


def test_the_order_of_cells_varies_and_can_be_derived_again() -> None:
    assert len({order.sessions[0].cells for order in orders(3)}) > 3
    assert orders(3) == orders(3)
    assert orders(3) != orders(3, run=2)


@pytest.mark.parametrize("pair", range(8))
def test_a_warm_block_directly_follows_the_cold_one_whose_prompts_it_repeats(pair: int) -> None:
    session = orders(2)[pair].sessions[0]
    kinds = [CONTRACT.workloads[cell.workload].kind for cell in session.cells]
    at = kinds.index("warm")
    cold, warm = session.cells[at - 1], session.cells[at]
    assert (kinds[at - 1], cold.level) == ("cold_restore", warm.level)
    assert prompts_of(CONTRACT, 2, session, cold) == prompts_of(CONTRACT, 2, session, warm)


def test_both_arms_get_the_same_prompts_and_no_two_cells_share_any() -> None:
    for order in orders(3, 4):
        one, other = order.sessions
        pools = []
        for cell in one.cells:
            mine, theirs = (prompts_of(CONTRACT, 3, s, cell) for s in (one, other))
            assert mine == theirs
            pools.append(mine.pool)
        assert len(set(pools)) == len(pools)


def test_prompts_of_a_miss_were_never_seen_in_either_session() -> None:
    for order in orders(2, 6):
        cell = next(c for c in order.sessions[0].cells if c.workload == "miss")
        one, other = (prompts_of(CONTRACT, 2, s, cell) for s in order.sessions)
        assert one.pool != other.pool
