"""Parallelism, strategy and distance in a contract: what they mean for plan and cost, and what is
refused before anybody signs."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from kvgate.cells import Cell, Setup, cells_of, of_clause, soak_setup
from kvgate.contract import CompareClause, Contract, PairPlan, load_contract, parse_contract
from kvgate.errors import UsageError
from kvgate.plan import pair_orders, planned_setups, prompts_of, reference_sessions
from kvgate.planning_cost import Durations, cost

from .conftest import ROOT

QUICK = (ROOT / "tests/outcomes/quick.toml").read_text()
TABLES = """
[parallelism.whole]
text = { en = "one", zh = "一个" }
tensor_parallel = 8

[parallelism.halves]
text = { en = "two", zh = "两个" }
instances = 2

[strategy.early]
text = { en = "early", zh = "先确认" }
settings = { acknowledge = "write_back" }

[distance.local]
text = { en = "as it is", zh = "原样" }
delay_ms = 0.0
within_ms = 1.0
round_trip_ms_at_most = 1.0

[distance.far]
text = { en = "far", zh = "远" }
delay_ms = 10.0
within_ms = 2.0

[workloads.cold_restore]
"""
COLD = '"cold_restore", levels = [8] }'
PROBE = '"probe", levels = [2] }'
REFERENCE = '"probe", levels = [2, 2] }'
BOTH = 'parallelism = ["whole", "halves"]'
COSTS = Durations(start_s=600.0, prime_s=0.0, request_s=0.0)


def text(*changes: tuple[str, str], cold: str = BOTH, probe: str = BOTH, answered: str = "") -> str:
    found = QUICK
    for old, new in (
        ("[workloads.cold_restore]\n", TABLES),
        (COLD, f"{COLD[:-2]}, {cold} }}"),
        (PROBE, f"{PROBE[:-2]}, {probe} }}"),
        (REFERENCE, f"{REFERENCE[:-2]}, {answered or probe} }}"),
        *changes,
    ):
        assert found.count(old) == 1, old
        found = found.replace(old, new)
    return found


def contract(*changes: tuple[str, str], **lines: str) -> Contract:
    return parse_contract(text(*changes, **lines).encode(), name="axes.toml")


def plan(terms: Contract) -> PairPlan:
    return cast(PairPlan, terms.gate(3).pairs)


def test_a_clause_without_an_axis_speaks_of_every_planned_setup() -> None:
    terms = contract()
    clause = terms.gate(3).clause[0]
    planned = cells_of(plan(terms).cells)
    assert of_clause(clause, planned) == (
        Cell("cold_restore", 8, "whole"), Cell("cold_restore", 8, "halves"),
    )  # fmt: skip
    one = contract(("drop_at_least = 0.25", 'parallelism = ["halves"]\ndrop_at_least = 0.25'))
    named = cast(CompareClause, one.gate(3).clause[0])
    assert of_clause(named, planned) == (Cell("cold_restore", 8, "halves"),)


def test_a_contract_without_axes_has_one_plain_setup() -> None:
    terms = parse_contract(QUICK.encode(), name="quick")
    assert planned_setups(plan(terms).cells) == (Setup(),)
    assert Cell("cold_restore", 8).label == "cold_restore@8"


@pytest.mark.parametrize("changed, told", [
    ({"cold": 'parallelism = ["thirds"]'}, "unknown parallelism 'thirds'"),
    ({"cold": 'distance = ["moon"]'}, "unknown distance 'moon'"),
    ({"probe": 'parallelism = ["halves"]', "answered": 'parallelism = ["whole"]'},
     "recompute answers no probe of probe@2/halves"),
])  # fmt: skip
def test_cells_that_cannot_be_measured_are_refused(changed: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        contract(**changed)
    assert "\n" not in str(caught.value)
    assert "axes.toml:" in str(caught.value)


NO_LOCAL = TABLES.partition("[distance.local]")
LOCAL, FAR = NO_LOCAL[2].partition("\n[distance.far]")[0], 'distance = ["far"]'


@pytest.mark.parametrize("gone, told", [
    ("[distance.local]" + LOCAL, "distance.far: far is planned: say in .distance.local."),
    ("round_trip_ms_at_most = 1.0\n", "distance.local.round_trip_ms_at_most: missing key"),
])  # fmt: skip
def test_a_planned_distance_needs_a_plain_way_that_is_known(gone: str, told: str) -> None:
    axes = {"cold": f"{BOTH}, {FAR}"}
    assert plan(contract(**axes)).cells[0].distance == ("far",)
    with pytest.raises(UsageError, match=told) as caught:
        contract((gone, ""), **axes)
    assert "\n" not in str(caught.value)


def test_a_distance_that_nobody_plans_needs_none() -> None:
    contract(("[distance.local]" + LOCAL, ""))


def test_an_arm_without_a_store_has_none_on_its_host() -> None:
    contract(('store = "baseline"\n', 'store = "baseline"\nstore_is_local = true\n'))
    with pytest.raises(UsageError, match="store_is_local: the arm has no store"):
        contract(('store = "none"\n', 'store = "none"\nstore_is_local = true\n'))


MORE = '"cold_restore", levels = [8, 16], parallelism = ["whole"] },\n  { workload = '


@pytest.mark.parametrize("levels", ["[8, 16]", "[16]"])
def test_every_level_of_a_clause_is_planned_in_every_setup_of_which_it_speaks(
    levels: str,
) -> None:
    """One engine at 8 and 16, two at 8 alone: "at every level" would be fewer cells."""
    halves = {"cold": 'parallelism = ["halves"]'}
    line = f"{COLD[:-2]}, {halves['cold']}"
    more = (f"{{ workload = {line}", f"{{ workload = {MORE}{line}")
    asked = ("levels = [8]\ndrop_at_least", f"levels = {levels}\ndrop_at_least")
    axis = 'parallelism = ["whole"]\ndrop_at_least = 0.25'
    contract(more, **halves)
    told = "cold_restore@16/halves is not planned: plan it, or name the clause's setups"
    with pytest.raises(UsageError, match=told) as caught:
        contract(more, asked, **halves)
    assert "\n" not in str(caught.value)
    contract(more, asked, ("drop_at_least = 0.25", axis), **halves)


def test_a_limit_too_is_kept_at_every_level_in_every_setup() -> None:
    limit = """
[[gate3.clause]]
id = "G3.7"
text = { en = "x", zh = "十" }
metric = "ttft"
unit = "s"
ceiling = 9.0
arm = "appliance"
workload = "cold_restore"
levels = [8, 16]
"""
    halves = 'parallelism = ["halves"]'
    lines = f"{COLD[:-2]}, {halves}"
    more = (f"{{ workload = {lines}", f"{{ workload = {MORE}{lines}")
    head = text(more, cold=halves)
    with pytest.raises(UsageError, match="cold_restore@16/halves is not planned"):
        parse_contract((head + limit).encode(), name="x")
    parse_contract((head + limit + 'parallelism = ["whole"]\n').encode(), name="x")


@pytest.mark.parametrize("old, new, told", [
    ("levels = [8], ", "levels = [8, 9], ", "level 9 cannot be split evenly over 2 engines"),
    ("drop_at_least = 0.25", 'distance = ["far"]\ndrop_at_least = 0.25',
     "far is in no cell of the gate's plan"),
    ("[strategy.early]", "[strategy.whole]", "'whole' is a name of parallelism already"),
    ("instances = 2", "instances = 0", "greater than or equal to 1"),
    ("delay_ms = 10.0", "delay_ms = -1.0", "greater than or equal to 0"),
    ("within_ms = 2.0", "within_ms = 5.1", "at most half of delay_ms"),
    ('settings = { acknowledge = "write_back" }\n', "", "strategy.early.settings: missing key"),
    ("spare_pairs = 1", 'spare_pairs = 1\nwarmup = [{ workload = "cold_restore", levels = [1] }]',
     "level 1 cannot be split evenly over 2 engines of halves"),
])  # fmt: skip
def test_axes_that_contradict_themselves_are_refused(old: str, new: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        contract((old, new))


def test_each_setup_has_couples_of_its_own_and_its_reference() -> None:
    terms = contract()
    orders = [pair_orders(terms, 3, plan(terms), pair, 1) for pair in range(8)]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        for setup in (Setup("whole"), Setup("halves")):
            arms = [next(o for o in pair if o.setup == setup).sessions[0].arm
                    for pair in (first, second)]  # fmt: skip
            assert set(arms) == {"baseline", "appliance"}  # AB, then BA
    assert {tuple(o.setup.label for o in pair) for pair in orders} == {
        ("whole", "halves"), ("halves", "whole"),
    }  # fmt: skip
    assert [s.setup.label for s in reference_sessions(terms, 3)] == ["whole", "halves"]


def test_kv_is_written_once_for_every_distance_and_never_shared_by_parallelisms() -> None:
    axes = f'{BOTH}, distance = ["local", "far"]'
    terms = contract(("pools = 1", "pools = 2"), cold=axes)
    orders = pair_orders(terms, 3, plan(terms), 0, 1)
    read = {
        order.setup: prompts_of(terms, 3, session, cell).pool
        for order in orders
        for session in order.sessions
        for cell in session.cells
        if cell.workload == "cold_restore"
    }
    assert len(read) == 4
    # Neighbouring distances take the two pools of one setup in turn.
    assert read[Setup("whole")] == "g3/cold_restore@8/whole/pool0"
    assert read[Setup("whole", distance="far")] == "g3/cold_restore@8/whole/pool1"
    assert not {read[s] for s in read if s.parallelism == "whole"} & {
        read[s] for s in read if s.parallelism == "halves"
    }


def test_the_plan_counts_every_start_of_an_engine() -> None:
    """A start is 10 minutes here, all else is free: the hours are the starts."""

    def starts(terms: Contract) -> tuple[float, float]:
        found = cost(terms, 3, COSTS)
        return round(6 * found.fixed_h), round(6 * found.pair_h)

    plain = parse_contract(QUICK.encode(), name="quick")
    assert starts(plain) == (3, 2)  # two stores primed, one reference; two sessions a pair
    assert starts(contract()) == (6, 4)
    # Another distance needs sessions, but neither priming nor a reference of its own.
    far = contract(cold=f'{BOTH}, distance = ["local", "far"]')
    assert starts(far) == (6, 8)


def test_the_mi308x_contract_holds_tp8_and_tp4x2(tmp_path: Path) -> None:
    data = (ROOT / "gates/contracts/fx100-mi308x.toml").read_bytes()
    terms = parse_contract(data, name="fx100-mi308x.toml")
    setups = [s.label for s in planned_setups(plan(terms).cells)]
    assert setups == ["tp8", "tp4x2"]
    assert terms.instances("tp4x2") == 2
    soak = terms.gate(4).soak
    assert soak is not None
    assert soak_setup(soak).label == "tp8"
    for wrong, told in (("tp4x2", "a long run is served by one engine"), ("tp16", "unknown par")):
        with pytest.raises(UsageError, match=told):
            changed = data.replace(b'\nparallelism = "tp8"', f'\nparallelism = "{wrong}"'.encode())
            parse_contract(changed, name="changed.toml")
    clause = next(c for c in terms.gate(3).clause if c.id == "G3.9")
    assert of_clause(clause, cells_of(plan(terms).cells)) == (Cell("cold_restore", 16, "tp4x2"),)


def test_an_errors_clause_needs_its_reference_in_every_setup() -> None:
    against = (
        'compare = ["baseline", "appliance"]\nshare_at_most',
        'compare = ["recompute", "appliance"]\nshare_at_most',
    )
    contract(against)
    plain = 'parallelism = ["whole"]'
    with pytest.raises(UsageError, match=r"recompute is not measured in the setup of .*halves"):
        contract(against, cold=BOTH, probe=plain, answered=plain)


def test_the_tiers_of_the_shipped_contract_are_measured_in_the_same_setups() -> None:
    terms = load_contract(ROOT / "gates/contracts/fx100-mi308x.toml")
    for gate in (2, 3):
        pairs = cast(PairPlan, terms.gate(gate).pairs)
        compared = set(planned_setups(pairs.cells))
        assert set(planned_setups(pairs.reference_cells)) == compared
