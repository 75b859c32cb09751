"""plan: what a contract's own rule decides, from a spread whose origin is always said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvgate.analyse.pairs import log_ratios
from kvgate.cells import Cell
from kvgate.commands import spread
from kvgate.contract import CellPlan, CompareClause, PairPlan, load_contract
from kvgate.decide.compare import look_plan
from kvgate.errors import CannotMeasure, UsageError
from kvgate.planning import (
    benefit_of,
    cells_of_clause,
    comparing,
    grid,
    implied,
    noise_floors,
    plan_floor,
    plan_gate,
)
from kvgate.planning_cost import Durations, cost

from .conftest import CONTRACT, Run

TERMS = load_contract(CONTRACT)
CLAUSES = comparing(TERMS, 3)
CELLS = {c.id: cells_of_clause(TERMS, 3, c) for c in CLAUSES}
PAIRS = cast(PairPlan, TERMS.gate(3).pairs)
COSTS = Durations(start_s=780.0, prime_s=16.0, request_s=1.0)


def at(level: int, workload: str = "cold_restore") -> Cell:
    return Cell(workload, level)


def planned(sd: float, **more: Any) -> Any:
    looks = look_plan(TERMS, 3, PAIRS)
    return plan_gate(TERMS, 3, looks, lambda *_: sd, COSTS, campaigns=1000, **more)


def test_a_quiet_platform_is_accepted_and_a_noisy_one_refused() -> None:
    assert planned(0.01).accepted
    assert not planned(0.2).accepted


def test_the_same_input_gives_the_same_answer() -> None:
    assert planned(0.03) == planned(0.03)


def test_more_of_the_effect_never_lowers_the_chance_to_pass() -> None:
    for clause in planned(0.05).clauses:
        chances = [p.characteristic.p_pass for p in clause.curve]
        if clause.clause.rise_at_most is not None:
            chances.reverse()
        assert chances == sorted(chances), clause.clause.id


def test_the_consumers_risk_is_kept_at_the_edge_of_indifference() -> None:
    for clause in planned(0.05).clauses:
        assert clause.at_zone.p_pass <= 0.05 + 3 * clause.at_zone.standard_error


def test_a_gate_passes_no_more_often_than_its_hardest_clause() -> None:
    plan = planned(0.06)
    assert plan.at_design.p_pass <= min(c.at_design.p_pass for c in plan.clauses) + 1e-9


def test_true_effects_may_be_one_for_all_levels_or_one_each() -> None:
    one = planned(0.02, truth={"G3.1": (0.26,)})
    each = planned(0.02, truth={"G3.1": (0.26, 0.26, 0.26)})
    assert one.at_truth == each.at_truth
    with pytest.raises(UsageError, match="3 levels"):
        planned(0.02, truth={"G3.1": (0.26, 0.26)})


def test_a_fall_of_ttft_implies_the_gain_of_a_closed_loop() -> None:
    effects = implied(CLAUSES, CELLS, CLAUSES[0], 0.25)
    assert effects["G3.1"] == (0.25,) * 3
    assert effects["G3.2"] == pytest.approx((1 / 3,) * 2)
    assert set(effects) == {"G3.1", "G3.2"}


def test_every_grid_holds_the_threshold_and_the_point_of_the_sentence() -> None:
    for clause in CLAUSES:
        step = -0.01 if clause.rise_at_most is not None else 0.01
        for point in (clause.threshold, clause.threshold + step):
            assert any(abs(e - point) < 1e-9 for e in grid(clause)), clause.id


def test_an_impossible_effect_is_wrong_usage() -> None:
    with pytest.raises(UsageError):
        benefit_of(CLAUSES[0].effect, 1.5)


def test_hours_follow_from_sessions_priming_and_requests() -> None:
    """Counted by hand: cells 8 + 16 + 32 and probe 4, six requests a level of a second each, and a
    miss with six computed prompts, in both arms' sessions; 336 + 24 primed prompts an arm; a
    reference session that computes the probe twice."""
    found = cost(TERMS, 3, COSTS)
    block_s = 360 + 6 * 16
    assert found.pair_h == pytest.approx(2 * (780 + block_s) / 3600)
    assert found.blockwise_pair_h == pytest.approx(2 * (5 * 780 + block_s) / 3600)
    primed = PAIRS.pools * 336 + 24
    reference_s = 780 + 48 * 16
    assert found.fixed_h == pytest.approx((2 * (780 + 16 * primed) + reference_s) / 3600)
    assert found.fresh_fixed_h == pytest.approx(reference_s / 3600)
    fresh_s = 2 * (5 * 780 + block_s + 360 * 16)
    assert found.fresh_pair_h == pytest.approx(fresh_s / 3600)


def test_a_480b_campaign_of_12_pairs_costs_what_the_design_says() -> None:
    """Three levels, one pool: sessions about 11 h, every block restarted and primed about 52 h."""
    cells = (CellPlan(workload="cold_restore", levels=(8, 16, 32)),)
    changed = {"cells": cells, "pools": 1, "reference_arm": None, "reference_cells": ()}
    gate3 = TERMS.gate(3).model_copy(update={"pairs": PAIRS.model_copy(update=changed)})
    terms = TERMS.model_copy(update={"gate3": gate3})
    found = cost(terms, 3, Durations(13 * 60, 16.0, 1.15))
    assert found.hours(12) == pytest.approx(11, abs=1)
    assert found.fresh_hours(12) == pytest.approx(53, abs=2)
    assert found.hours(12) < found.blockwise_hours(12) < found.fresh_hours(12)


def test_a_noise_floor_with_too_few_pairs_is_seen_before_it_is_run() -> None:
    clause = noise_floors(TERMS, 2)[0]
    assert plan_floor(clause, [Cell("cold_restore", 16)], 3, lambda *_: 0.06).p_pass < 0.5
    assert plan_floor(clause, [Cell("cold_restore", 16)], 12, lambda *_: 0.06).p_pass > 0.95


def test_the_plan_is_printed_with_its_sentence_and_the_origin_of_the_spread(kvgate: Run) -> None:
    ended = kvgate(
        "plan", "--contract", CONTRACT, "--pair-sd", "0.02", "--truth", "G3.1=0.26", "--all"
    )
    assert (ended.code, ended.err) == (0, "")
    assert "log ratio: --pair-sd" in ended.out
    assert "An appliance that truly lowers TTFT p50 by 26 % at every level would be" in ended.out
    assert "(and so raises throughput by 35 %)" in ended.out
    assert "With the true effects named (G3.1 26 %)" in ended.out
    for clause in CLAUSES:
        assert f"{clause.id} {clause.text.en}" in ended.out


def test_the_plan_of_a_contract_fits_on_one_page(kvgate: Run) -> None:
    """What stands on it word for word: the golden file is the page of the shipped contract."""
    ended = kvgate("plan", "--contract", CONTRACT)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    for clause in CLAUSES:
        assert any(line.startswith(f"  {clause.id} ") for line in lines), clause.id
    golden = Path(__file__).with_name("golden") / "plan.txt"
    assert _without_digest(ended.out) == golden.read_text()


def _without_digest(page: str) -> str:
    """The second line names a digest, which changes with every number of the contract."""
    return page.replace(TERMS.digest[:12], "DIGEST")


def test_a_spread_that_g2_measured_elsewhere_is_marked_as_borrowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _measured(monkeypatch, [0.01, -0.01, 0.02, -0.02])
    other = _p50().model_copy(update={"workload": "miss"})
    found = spread.spreads((), Path("g2"), [other])
    assert found.of(other, at(1, "miss")).borrowed
    assert "nothing in miss" in found.of(other, at(1, "miss")).origin
    assert found.of(other, at(1, "miss")).sd == found.of(_p50(), at(16)).sd
    assert not found.of(_p50(), at(16)).borrowed


def test_a_refused_contract_still_shows_why_and_ends_with_two(kvgate: Run) -> None:
    ended = kvgate("plan", "--contract", CONTRACT, "--json", "--pair-sd", "0.058")
    told = json.loads(ended.out)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "refused" in ended.err
    assert told["refused"]
    assert told["gates"][0]["at_design"]["pass"] < 0.95


def test_without_options_the_contract_says_what_it_assumes_and_draws_it(
    kvgate: Run, tmp_path: Path
) -> None:
    for name, begins in (("plan.svg", "<svg"), ("plan.html", "<!doctype html>")):
        ended = kvgate("plan", "--contract", CONTRACT, "--chart", tmp_path / name)
        assert (ended.code, ended.err) == (0, "")
        assert "ASSUMED by the contract" in ended.out
        drawn = (tmp_path / name).read_text()
        assert drawn.startswith(begins)
        for series in ("PASS", "FAIL", "INCONCLUSIVE"):
            assert f">{series}</text>" in drawn
        assert drawn.count("<polyline") == 3 * (1 + len(comparing(TERMS, 3)))
    wrong = kvgate("plan", "--contract", CONTRACT, "--chart", tmp_path / "plan.png")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


def test_a_gate_that_does_not_fit_between_its_deadlines_is_refused(
    kvgate: Run, tmp_path: Path
) -> None:
    path = tmp_path / "tight.toml"
    path.write_text(CONTRACT.read_text().replace("deadline_day = 49", "deadline_day = 22"))
    ended = kvgate("plan", "--contract", path, "--start-minutes", "90")
    assert ended.code == 2
    assert "G3 takes up to" in ended.err
    assert "DOES NOT FIT" in ended.out


@pytest.mark.parametrize(
    "options",
    [
        ["--pair-sd", "5"], ["--pair-sd", "nan"], ["--pair-sd", "x"], ["--pair-sd", "ttft.p75=.1"],
        ["--truth", "G3.1"], ["--truth", "G3.9=0.3"], ["--truth", "G3.1=26"], ["--truth", "G3.1=a"],
        ["--pair-sd", "0.05", "--from-g2", "x"], ["--from-g2", "/nonexistent"],
    ],
)  # fmt: skip
def test_wrong_options_of_a_plan_are_one_line(kvgate: Run, options: Sequence[str]) -> None:
    ended = kvgate("plan", "--contract", CONTRACT, *options)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_gate_that_is_no_noise_floor_gives_no_spread(kvgate: Run, bundle: Path) -> None:
    ended = kvgate("plan", "--contract", CONTRACT, "--from-g2", bundle)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "arm with itself" in ended.err


def test_a_contract_without_comparing_clauses_has_nothing_to_plan(
    kvgate: Run, tmp_path: Path
) -> None:
    text = CONTRACT.read_text()
    head, _, tail = text.partition('[[gate3.clause]]\nid = "G3.1"')
    rest = tail[tail.index('[[gate3.clause]]\nid = "G3.5"') :]
    before, _, after = rest.partition('[[gate3.clause]]\nid = "G3.8"')
    rest = before + after[after.index("# ----") :]
    path = tmp_path / "limits.toml"
    path.write_text(head + rest)
    ended = kvgate("plan", "--contract", path)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "nothing to plan" in ended.err


@dataclass
class _Block:
    """What a spread needs of a block: its statistics."""

    statistics: Any


def _measured(monkeypatch: pytest.MonkeyPatch, ratios: Sequence[float]) -> None:
    """Make ``--from-g2`` read these log ratios of TTFT p50 at level 16."""
    pairs = tuple(
        SimpleNamespace(
            reference=_Block(SimpleNamespace(ttft_p50_s=1.0)),
            test=_Block(SimpleNamespace(ttft_p50_s=2.718281828459045**r)),
        )
        for r in ratios
    )
    cells = [CellPlan(workload="cold_restore", levels=(16,))]
    plan = SimpleNamespace(compare=("appliance", "appliance"), cells=cells)
    judged = SimpleNamespace(
        contract=SimpleNamespace(gate=lambda _: SimpleNamespace(pairs=plan)),
        campaign=SimpleNamespace(gate=2),
        analysis=SimpleNamespace(samples={}),
    )
    monkeypatch.setattr(spread, "judged_bundle", lambda _: judged)
    monkeypatch.setattr(spread, "verify", lambda _: [])
    cell = SimpleNamespace(valid=pairs, cell="cold_restore@16")
    monkeypatch.setattr(spread, "cell_pairs", lambda *_: cell)
    monkeypatch.setattr(
        spread,
        "log_ratios",
        lambda p, m, s: log_ratios(p, m, s) if (m, s) == ("ttft", "p50") else (),
    )


def _p50() -> CompareClause:
    return CLAUSES[0]


def test_the_spread_of_g2_serves_every_level_and_names_its_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _measured(monkeypatch, [0.01, -0.01, 0.02, -0.02])
    found = spread.spreads((), Path("g2"), CLAUSES)
    assert found.of(_p50(), at(16)).sd == pytest.approx(0.018257, rel=1e-4)
    assert found.of(_p50(), at(8)) == found.of(_p50(), at(16))
    assert found.of(_p50(), at(16)).pairs == 4
    assert found.of(_p50(), at(16)).upper == pytest.approx(
        0.018257 * (3 / 1.00517) ** 0.5, rel=1e-3
    )
    with pytest.raises(CannotMeasure, match=r"throughput\.steady"):
        found.of(CLAUSES[1], at(8))
    named = spread.spreads(("throughput.steady=0.04",), Path("g2"), CLAUSES)
    assert named.of(CLAUSES[1], at(8)).sd == 0.04


@pytest.mark.parametrize("ratios", [[], [0.01], [0.0, 0.0, 0.0], [0.01, float("nan")]])
def test_pairs_that_show_no_spread_measure_none(
    monkeypatch: pytest.MonkeyPatch, ratios: Sequence[float]
) -> None:
    _measured(monkeypatch, ratios)
    with pytest.raises(CannotMeasure):
        spread.spreads((), Path("g2"), CLAUSES)


def test_a_changed_bundle_of_g2_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, [0.01, -0.01])
    monkeypatch.setattr(spread, "verify", lambda _: ["plan.json: changed"])
    with pytest.raises(CannotMeasure, match="not an intact bundle"):
        spread.spreads((), Path("g2"), CLAUSES)


def test_a_tail_is_assumed_to_be_noisier_and_says_so() -> None:
    found = spread.spreads((), None, CLAUSES)
    p99 = next(c for c in CLAUSES if c.statistic == "p99")
    assert found.of(p99, at(8)).sd == 2 * found.of(_p50(), at(8)).sd
    assert "p99" in found.of(p99, at(8)).origin
    assert spread.spreads(("ttft.p99=0.07",), None, CLAUSES).of(p99, at(8)).sd == 0.07
