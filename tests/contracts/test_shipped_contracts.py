"""What every contract in gates/contracts promises its reader, and the lab's in particular."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from kvgate.commands.spread import spreads
from kvgate.conduct.gate import Order, check_order
from kvgate.conduct.workspace import Workspace
from kvgate.contract import (
    CompareClause,
    Contract,
    LimitClause,
    PairPlan,
    load_contract,
    parse_contract,
)
from kvgate.decide.compare import look_plan
from kvgate.drive.playbooks import list_inventory
from kvgate.errors import UsageError
from kvgate.inventory import inventory_from
from kvgate.planning import cells_of_clause, comparing, noise_floors, plan_floor, plan_gate
from kvgate.planning_cost import Durations

from .conftest import CONTRACTS, LAB, ROOT

SHIPPED = sorted(p.stem for p in CONTRACTS.glob("*.toml"))
KEY = re.compile(r"^([a-z_]+) *=")


def contract(name: str) -> Contract:
    return load_contract(CONTRACTS / f"{name}.toml")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_clause_has_a_test_of_its_gate(name: str) -> None:
    """A clause without a test is never selected, so it could never pass."""
    terms = contract(name)
    for number in terms.gates:
        suites = "".join(p.read_text() for p in (ROOT / "gates").glob(f"gate{number}_*/test_*.py"))
        for clause in terms.gate(number).clause:
            assert f'@clause("{clause.id}")' in suites, clause.id


@pytest.mark.parametrize("name", SHIPPED)
def test_every_text_is_there_in_both_languages(name: str) -> None:
    terms = contract(name)
    for number in terms.gates:
        for clause in terms.gate(number).clause:
            assert clause.text.en
            assert re.search(r"[\u4e00-\u9fff]", clause.text.zh), clause.id


@pytest.mark.parametrize("name", LAB)
def test_every_key_is_explained_where_it_first_stands(name: str) -> None:
    lines = (CONTRACTS / f"{name}.toml").read_text().splitlines()
    explained, seen = set(), set()
    for before, line in zip(["", *lines], lines, strict=False):
        key = KEY.match(line)
        if key is None:
            continue
        seen.add(key.group(1))
        if "#" in line or before.startswith("#") or before.startswith("["):
            explained.add(key.group(1))
    assert seen - explained == set()


@pytest.mark.parametrize("name", LAB)
def test_a_lab_contract_is_no_rehearsal_and_holds_the_main_thresholds(name: str) -> None:
    terms = contract(name)
    assert not terms.rehearsal
    drop = next(c for c in terms.gate(3).clause if c.id == "G3.1")
    assert isinstance(drop, CompareClause)
    assert (drop.drop_at_least, drop.indifference, drop.design_effect) == (0.25, 0.03, 0.30)
    gain = next(c for c in terms.gate(3).clause if c.id == "G3.2")
    assert isinstance(gain, CompareClause)
    assert gain.gain_at_least == 0.29
    soak = terms.gate(4).soak
    assert soak is not None
    assert soak.duration_s == 72 * 3600
    assert soak.faults
    assert all(f.at_s < soak.duration_s for f in soak.faults)


def test_the_main_gate_of_the_mi308x_has_its_levels_and_its_band() -> None:
    drop, gain = contract("fx100-mi308x").gate(3).clause[:2]
    assert isinstance(drop, CompareClause)
    assert isinstance(gain, CompareClause)
    assert drop.levels == (8, 16, 32)
    assert (gain.levels, gain.band_top) == ((8, 16), 0.40)


def test_the_load_of_the_model_on_ascend_is_asked_for_though_nothing_measures_it() -> None:
    clause = next(c for c in contract("fx100-ascend910b").gate(2).clause if c.id == "G2.6")
    assert isinstance(clause, LimitClause)
    assert clause.metric == "model_load_time"
    text = (CONTRACTS / "fx100-ascend910b.toml").read_text()
    assert 'INVALID, "not measured"' in text


@pytest.mark.parametrize("name", LAB)
def test_the_plan_accepts_a_lab_contract_at_the_stated_spread(name: str) -> None:
    """The figures in the contract's comment are those of `kvgate plan` with its assumed spread."""
    terms = contract(name)
    noise = spreads((), None, comparing(terms, 3))
    pairs = cast(PairPlan, terms.gate(3).pairs)
    plan = plan_gate(
        terms, 3, look_plan(terms, 3, pairs), noise.sd, Durations(780.0, 16.0, 1.15),
        truth={"G3.1": (0.26, 0.32, 0.26), "G3.2": (0.35, 0.47)}, campaigns=4000,
    )  # fmt: skip
    assert plan is not None
    assert plan.accepted
    assert plan.at_truth is not None
    if name == "fx100-mi308x":
        assert plan.at_design.p_pass == pytest.approx(0.996, abs=0.01)
        assert plan.at_truth.p_pass == pytest.approx(0.82, abs=0.03)
    edge = plan.clauses[0].at(0.22)
    assert edge is not None
    assert edge.p_pass < 0.01


@pytest.mark.parametrize("clause", ["G3.9", "G3.10", "G3.11", "G3.12"])
def test_two_engines_that_are_worse_stop_the_main_gate_of_the_mi308x(clause: str) -> None:
    """Everything else at its design effect: tails twice as long, a miss twice as dear, no gain."""
    terms = contract("fx100-mi308x")
    worse = next(c for c in terms.gate(3).clause if c.id == clause)
    assert isinstance(worse, CompareClause)
    cells = cells_of_clause(terms, 3, worse)
    assert "tp4x2" in {cell.parallelism for cell in cells}
    effects = tuple(0.0 if cell.parallelism == "tp8" or clause == "G3.9" else 1.0 for cell in cells)
    noise = spreads((), None, comparing(terms, 3))
    plan = plan_gate(
        terms, 3, look_plan(terms, 3, cast(PairPlan, terms.gate(3).pairs)), noise.sd,
        Durations(780.0, 16.0, 1.15), truth={clause: effects}, campaigns=200,
    )  # fmt: skip
    assert plan is not None
    assert plan.at_truth is not None
    assert plan.at_truth.p_fail > 0.95


@pytest.mark.parametrize("name", LAB)
def test_the_noise_floor_of_a_lab_can_be_passed(name: str) -> None:
    terms = contract(name)
    pairs = cast(PairPlan, terms.gate(2).pairs)
    for clause in noise_floors(terms, 2):
        cells = cells_of_clause(terms, 2, clause)
        floor = plan_floor(clause, cells, pairs.planned_pairs, lambda *_: 0.058)
        assert floor.p_pass >= 0.95


@pytest.mark.parametrize(
    ("inventory", "name"), [("fx100-lab", LAB[0]), ("ascend-lab", LAB[1])], ids=["fx100", "ascend"]
)
def test_a_lab_inventory_fits_its_contract(inventory: str, name: str) -> None:
    path = ROOT / "inventories" / inventory
    listing = list_inventory(path)
    found = inventory_from(listing, path=str(path))
    assert found.contract == name
    assert (found.engine_role, found.rehearsal, found.time_scale) == ("vllm", False, 1.0)
    data = (CONTRACTS / f"{name}.toml").read_bytes()
    space = Workspace(Path("x"))
    with pytest.raises(UsageError, match="placeholder"):
        check_order(Order(contract(name), data, found, Path("playbooks"), space, (), False))
    # As the parties would fill it in, nothing else is in the way.
    data = data.replace(b"EXAMPLE", b"agreed").replace(b"to be named", b"named")
    terms = parse_contract(data, name=name)
    check_order(Order(terms, data, found, Path("playbooks"), space, (), False))
    for host, values in listing["_meta"]["hostvars"].items():
        # An arm in a parallelism may have units of its own.
        assert {unit.partition("/")[0] for unit in values["vllm_units"]} == set(contract(name).arms)
        if values.get("ansible_connection") != "local":
            assert values["ansible_host"].startswith(("198.18.", "198.19.")), host
            assert "StrictHostKeyChecking=yes" in values["ansible_ssh_common_args"]
