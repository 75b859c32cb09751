"""Blocks of a plan share prompts only where one restores or repeats what the other left."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from kvgate.contract import Contract, load_contract
from kvgate.load.prompts import prompt_tokens
from kvgate.plan import (
    Cell,
    PromptRange,
    Session,
    cells_of,
    pair_order,
    prompts_of,
    seed_of,
    warmup_prompts,
)

CONTRACTS = sorted((Path(__file__).parents[2] / "gates" / "contracts").glob("*.toml"))


def planned(contract: Contract, gate: int) -> list[tuple[Session, Cell, PromptRange]]:
    """Every block of the gate's first pairs: one more than it has pools."""
    plan = contract.gate(gate).pairs
    if plan is None:
        return []
    return [
        (session, cell, prompts_of(contract, gate, session, cell))
        for pair in range(plan.pools + 1)
        for session in pair_order(contract, gate, plan, pair, 0).sessions
        for cell in session.cells
    ]


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda p: str(p.stem))
def test_one_pool_belongs_to_one_cell_or_to_those_that_repeat_it(path: Path) -> None:
    contract = load_contract(path)
    for gate in contract.gates:
        for (one, cell, a), (other, second, b) in combinations(planned(contract, gate), 2):
            if a.pool != b.pool:
                continue
            kinds = {contract.workloads[c.workload].kind for c in (cell, second)}
            lengths = {contract.workloads[c.workload].prompt_tokens for c in (cell, second)}
            assert cell.level == second.level
            # A prompt of another length shares nothing, so a repeat has the same.
            assert len(lengths) == 1
            if kinds == {"miss"}:
                assert one.pair == other.pair
            else:
                assert kinds <= {"cold_restore", "warm"} or kinds == {"probe"}


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda p: str(p.stem))
def test_a_warm_up_is_seen_by_no_block_and_by_no_other_warm_up(path: Path) -> None:
    contract = load_contract(path)
    for gate in contract.gates:
        pools = {prompts.pool for _, _, prompts in planned(contract, gate)}
        plan = contract.gate(gate).pairs
        cells = () if plan is None else cells_of(plan.cells)
        warm = [
            warmup_prompts(gate, run, number, cell).pool
            for run in (0, 1)
            for number in (0, 1)
            for cell in dict.fromkeys(cells)
        ]
        assert len(set(warm)) == len(warm)
        assert not pools & set(warm)


def test_both_arms_of_a_pair_meet_the_same_prompts() -> None:
    contract = load_contract(CONTRACTS[0])
    seed = seed_of(contract, "prompts")
    assert seed == seed_of(load_contract(CONTRACTS[0]), "prompts")
    ids = [prompt_tokens(seed, "g3/x@8/pool0", 5, 64, 1000, 30000) for _ in range(2)]
    assert ids[0] == ids[1]
    for gate in contract.gates:
        plan = contract.gate(gate).pairs
        if plan is None or plan.compare[0] == plan.compare[1]:
            continue
        first, second = pair_order(contract, gate, plan, 0, 0).sessions
        for cell in first.cells:
            a = prompts_of(contract, gate, first, cell)
            assert a == prompts_of(contract, gate, second, cell)


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda p: str(p.stem))
def test_a_rerun_asks_for_nothing_that_a_store_may_still_hold(path: Path) -> None:
    contract = load_contract(path)
    for gate in contract.gates:
        plan = contract.gate(gate).pairs
        if plan is None:
            continue
        pools: list[set[str]] = []
        for run in (1, 2):
            sessions = pair_order(contract, gate, plan, 0, run).sessions
            pools.append({
                prompts_of(contract, gate, session, cell).pool
                for session in sessions
                for cell in session.cells
                if contract.workloads[cell.workload].kind == "miss"
            })  # fmt: skip
        assert not pools[0] & pools[1]
