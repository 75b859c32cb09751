"""Clauses with a fixed limit: every place must report, once, a value of the right kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvgate.analyse.results import Analysis, Observed
from kvgate.canonical import canonical_json
from kvgate.contract import LimitClause
from kvgate.contract_tables import Text
from kvgate.decide.judge import arms_under_test
from kvgate.decide.limits import judge_limit
from kvgate.reason import Reason
from kvgate.verdict import ClauseVerdict, Verdict

from .builders import (
    breaking,
    cell,
    contract,
    history,
    judged_clause,
    observed,
    plan,
    with_facts,
)

TWO = {"appliances": ("one", "two"), "engines": ("one", "two")}


def limit_clause(metric: str = "memory", unit: str = "B", **terms: Any) -> LimitClause:
    given: dict[str, Any] = {"hosts": "appliances"} | terms
    return LimitClause(id="G1.1", text=Text(en="t", zh="t"), metric=metric, unit=unit, **given)


def values_at(*values: float | str | None, metric: str = "memory") -> Analysis:
    named = zip(("one", "two"), values, strict=False)
    return with_facts(tuple(observed(metric, host, value) for host, value in named), TWO)


@pytest.mark.parametrize("terms, values, verdict", [
    ({"floor": 10.0}, (10.0, 11.0), Verdict.PASS),
    ({"floor": 10.0}, (10.0, 9.9), Verdict.FAIL),
    ({"ceiling": 10.0}, (10.0, 0.0), Verdict.PASS),
    ({"ceiling": 10.0}, (10.1, 0.0), Verdict.FAIL),
    ({"equals": "x"}, ("x", "x"), Verdict.PASS),
    ({"equals": "x"}, ("x", "X"), Verdict.FAIL),
    ({"equals": 2.0}, (2.0, 2.0), Verdict.PASS),
    ({"equals": 2.0}, (2.0, 3.0), Verdict.FAIL),
])  # fmt: skip
def test_floor_ceiling_and_equals(
    terms: dict[str, Any], values: tuple[float | str, ...], verdict: Verdict
) -> None:
    found = judge_limit(limit_clause(**terms), values_at(*values))
    assert found.verdict is verdict
    assert [f.where for f in found.figures] == ["one", "two"]


@pytest.mark.parametrize("terms, wrong", [
    ({"floor": 10.0}, None),
    ({"floor": 10.0}, float("nan")),
    ({"floor": 10.0}, float("inf")),
    ({"ceiling": 10.0}, float("-inf")),
    ({"floor": 10.0}, "11"),
    ({"ceiling": 10.0}, ""),
    ({"equals": 2.0}, "2"),
    ({"equals": "2"}, 2.0),
    ({"equals": "x"}, None),
])  # fmt: skip
def test_a_value_that_is_missing_or_of_another_kind_is_invalid(
    terms: dict[str, Any], wrong: float | str | None
) -> None:
    good = terms.get("equals", 10.0)
    found = judge_limit(limit_clause(**terms), values_at(good, wrong))
    assert found.verdict is Verdict.INVALID
    assert found.figures[1].where == "two"
    assert "two" in str(found.reason)
    canonical_json(found)  # nothing in it that a verdict.json cannot hold


def test_a_host_that_did_not_report_is_invalid_and_named() -> None:
    found = judge_limit(limit_clause(floor=1.0), values_at(2.0))
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "reports")
    assert "0 reports from two" in str(found.reason)


def test_a_host_with_two_reports_is_invalid_even_if_both_are_good() -> None:
    twice = (observed("memory", "one", 2.0), *values_at(2.0, 2.0).observed)
    found = judge_limit(limit_clause(floor=1.0), with_facts(twice, TWO))
    assert (found.verdict, "2 reports from one" in str(found.reason)) == (Verdict.INVALID, True)


def test_a_group_without_hosts_is_invalid() -> None:
    for hosts in ({}, {"engines": ()}):
        found = judge_limit(limit_clause(floor=1.0), with_facts((), hosts))
        assert (found.verdict, found.figures) == (Verdict.INVALID, ())


def test_a_fail_at_one_host_is_not_hidden_by_silence_at_another() -> None:
    found = judge_limit(limit_clause(floor=10.0), values_at(9.0, None))
    assert (found.verdict, found.reason.code) == (Verdict.FAIL, "out_of_limit")


@pytest.mark.parametrize("terms, value", [
    ({"floor": 10.0}, 9.0), ({"ceiling": 10.0}, 11.0), ({"equals": 2.0}, 3.0),
])  # fmt: skip
@pytest.mark.parametrize("group", ["engines", "load_clients"])
def test_a_host_of_the_buyers_stops_no_vendor(
    group: str, terms: dict[str, Any], value: float
) -> None:
    analysis = with_facts((observed("memory", "one", value),), {group: ("one",)})
    found = judge_limit(limit_clause(hosts=group, **terms), analysis)
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "not_the_appliances")
    assert found.reason.params["because"] == Reason("of_the_buyers_hosts", {"group": group})


@pytest.mark.parametrize("arm, verdict", [
    ("appliance", Verdict.FAIL), ("baseline", Verdict.INVALID), ("recompute", Verdict.INVALID),
])  # fmt: skip
def test_only_the_arm_with_the_appliance_can_fail_a_limit(arm: str, verdict: Verdict) -> None:
    clause = LimitClause(
        id="G3.9", text=Text(en="t", zh="t"), metric="ttft", unit="s", workload="cold_restore",
        levels=(8,), arm=arm, ceiling=0.001,
    )  # fmt: skip
    found = judge_limit(clause, history(), None, arms_under_test(contract()))
    assert found.verdict is verdict


def soak(*values: float | None) -> ClauseVerdict:
    clause = LimitClause(
        id="G4.1", text=Text(en="t", zh="t"), metric="soak_error_share", unit="1", ceiling=0.01
    )
    said = tuple(Observed("soak_error_share", "soak", value, "1") for value in values)
    return judge_limit(clause, with_facts(said, {}))


def test_a_long_run_is_judged_from_exactly_one_report() -> None:
    assert soak(0.0).verdict is Verdict.PASS
    assert soak(0.5).verdict is Verdict.FAIL
    assert soak().verdict is Verdict.INVALID
    assert soak(None).verdict is Verdict.INVALID
    assert soak(0.0, 0.0).verdict is Verdict.INVALID


def test_a_figure_about_our_own_measurement_never_fails_the_appliance() -> None:
    clause = LimitClause(
        id="G4.6", text=Text(en="t", zh="t"), metric="soak_coverage", unit="1", floor=0.99
    )
    said = (Observed("soak_coverage", "soak", 0.5, "1"),)
    assert judge_limit(clause, with_facts(said, {})).verdict is Verdict.INVALID


# --- values of blocks --------------------------------------------------------------------------


def test_the_mean_of_the_valid_blocks_is_compared() -> None:
    found = judged_clause(history(gate=2, pairs=3), "G2.2")
    assert (found.verdict, found.figures[0].value, found.figures[0].n) == (Verdict.PASS, 5e9, 6)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_block_without_a_value_is_invalid(value: float | None) -> None:
    analysis = history(gate=2, pairs=3)
    last = max(b.n for b in analysis.blocks if cell("cold_restore", 16)(b))
    blocks = tuple(
        replace(b, restore_bytes_per_s=value) if b.n == last else b for b in analysis.blocks
    )
    assert judged_clause(replace(analysis, blocks=blocks), "G2.2").verdict is Verdict.INVALID


def test_a_few_blocks_that_happen_to_be_valid_are_not_enough() -> None:
    analysis = breaking(history(gate=2, pairs=3), lambda b: b.pair in {1, 2}, "client_ran")
    found = judged_clause(analysis, "G2.2")
    assert (found.verdict, found.reason.code) == (Verdict.INVALID, "few_valid_blocks")
    assert f"at least {plan(2).min_pairs}" in str(found.reason)


def test_too_many_excluded_blocks_are_invalid() -> None:
    analysis = breaking(history(gate=2, pairs=5), lambda b: b.position == 0, "client_ran")
    found = judged_clause(analysis, "G2.2")
    assert found.verdict is Verdict.INVALID
    assert "excluded" in str(found.reason)


def test_a_level_without_a_block_is_invalid() -> None:
    analysis = history(gate=2, pairs=3)
    kept = tuple(b for b in analysis.blocks if not cell("cold_restore", 16)(b))
    assert judged_clause(replace(analysis, blocks=kept), "G2.2").verdict is Verdict.INVALID


def test_every_limit_clause_of_the_contract_is_invalid_without_evidence() -> None:
    nothing = Analysis((), (), (), (), (), {}, 1.0)
    terms = contract()
    for gate in terms.gates:
        for clause in terms.gate(gate).clause:
            if isinstance(clause, LimitClause):
                assert judge_limit(clause, nothing).verdict is Verdict.INVALID, clause.id
