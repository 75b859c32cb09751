"""A missed deadline is a decision; what changed under test reopens what the contract says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvgate.campaign import Predecessor, ReliedOn
from kvgate.contract import Contract
from kvgate.decide import judge
from kvgate.verdict import Decision, GateVerdict, Verdict

from .builders import GOOD, contract, facts, history
from .test_waivers import both

PASSING = history()
FAILING = history(replace(GOOD, drop=0.10))
LATE = {"began": "2026-01-10T10:00:00+00:00"}  # day 53; G3 must be passed by day 49
SEEN = {
    "firmware": {"appliance device": "sim-1.0"},
    "serials": {"appliance device": "SIM-1"},
    "driver": {"host kernel": "6.1"},
    "engine": {f"{arm} engine_version": "0.20.1" for arm in ("appliance", "baseline", "recompute")},
    "tuning": {f"{arm} engine_args": "--a" for arm in ("appliance", "baseline", "recompute")},
}


def decided(analysis: Any, says: str = "HOLD", **changed: Any) -> GateVerdict:
    base = contract()
    campaign = base.campaign.model_copy(update={"missed_deadline": says})
    return judge(base.model_copy(update={"campaign": campaign}), analysis, facts(**changed))


# --- deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["HOLD", "STOP-LOSS"])
def test_a_run_after_the_deadline_is_followed_by_what_the_contract_says(says: str) -> None:
    verdict = decided(PASSING, says, **LATE)
    assert verdict.verdict is Verdict.PASS
    assert (verdict.decision, verdict.decision_reason.code) == (Decision(says), "deadline_missed")
    assert verdict.deadline is not None
    assert (verdict.deadline.day, verdict.deadline.deadline_day, verdict.deadline.missed_by_days) \
        == (53, 49, 4)  # fmt: skip
    assert verdict.stop is not None
    follows = contract().follows.missed_deadline
    assert follows is not None
    assert verdict.stop.follows == follows.model_dump()


def test_the_last_day_is_in_time() -> None:
    verdict = decided(PASSING, began="2026-01-14T10:00:00+00:00")
    assert verdict.deadline is not None
    assert (verdict.deadline.day, verdict.deadline.missed_by_days) == (49, 0)
    assert verdict.decision is Decision.PROCEED


def test_a_stop_stays_a_stop_after_the_deadline() -> None:
    verdict = decided(FAILING, **LATE)
    assert (verdict.decision, verdict.decision_reason.code) == (Decision.STOP_LOSS, "stop")


def test_a_signed_waiver_of_the_deadline_lifts_it() -> None:
    verdict = decided(PASSING, waivers=both("G3.deadline"), **LATE)
    assert (verdict.verdict, verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    assert [w.used for w in verdict.waivers] == [True, True]


def test_without_a_day_zero_the_run_itself_is_day_zero() -> None:
    verdict = decided(PASSING)
    assert verdict.deadline is not None
    assert verdict.deadline.day == 0


def test_the_judge_takes_the_day_from_evidence_alone() -> None:
    early = decided(PASSING, began="2026-03-01T00:00:00+00:00")
    assert early == decided(PASSING, began="2026-03-01T00:00:00+00:00")
    assert early.as_of == "2026-03-04T10:00:00+00:00"


# --- changes ----------------------------------------------------------------------------------


def changing(kind: str, terms: Contract | None = None, gate: int = 2) -> GateVerdict:
    """G3 after a G2 in which ``kind`` said something else."""
    (place, now), *_ = SEEN[kind].items()
    before = {**SEEN, kind: {place: f"{now}-before"}}
    relied = (ReliedOn(gate, 1, "ab" * 32, before),)
    analysis = replace(PASSING, configuration=SEEN)
    return judge(terms or contract(), analysis, facts(relied_on=relied))


@pytest.mark.parametrize("kind", ["serials", "firmware", "driver", "engine"])
def test_a_change_that_reopens_an_earlier_gate_lets_nothing_pass(kind: str) -> None:
    verdict = changing(kind)
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.HOLD)
    assert verdict.reason.code == verdict.decision_reason.code == "reopened"
    assert verdict.reason.params["gate"] == contract().changes.reopens(kind)
    changed = next(f for f in verdict.findings if f.code == "changed")
    assert (changed.params["kind"], changed.params["before"]) == (
        kind, f"{next(iter(SEEN[kind].values()))}-before",
    )  # fmt: skip


def test_a_change_that_reopens_only_this_gate_is_reported() -> None:
    verdict = changing("tuning")
    assert (verdict.verdict, verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    assert "changed" in [f.code for f in verdict.findings]


def test_pairs_from_before_a_change_are_not_gone_on_with() -> None:
    assert changing("tuning", gate=3).decision_reason.code == "reopened"


def test_a_contract_that_names_no_gate_only_reports() -> None:
    base = contract()
    changes = base.changes.model_copy(update={"driver": None})
    verdict = changing("driver", base.model_copy(update={"changes": changes}))
    assert verdict.decision is Decision.PROCEED
    told = next(f for f in verdict.findings if f.code == "changed")
    assert told.params["reopens"] == "-"


def test_what_only_one_run_told_is_no_change() -> None:
    relied = (ReliedOn(2, 1, "ab" * 32, {"firmware": {"other host DMI": "x"}}),)
    verdict = judge(contract(), replace(PASSING, configuration=SEEN), facts(relied_on=relied))
    assert verdict.decision is Decision.PROCEED


def test_a_fail_measured_after_such_a_change_is_held_against_nobody() -> None:
    relied = (ReliedOn(2, 1, "ab" * 32, {"firmware": {"appliance device": "old"}}),)
    verdict = judge(contract(), replace(FAILING, configuration=SEEN), facts(relied_on=relied))
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.HOLD)


def test_a_gate_that_opened_under_waiver_says_so() -> None:
    before = Predecessor(2, 1, "ab" * 32, "2026-03-03T10:00:00+00:00", ("G2.4",))
    verdict = judge(contract(), PASSING, facts(predecessor=before))
    told = next(f for f in verdict.findings if f.code == "waived_before")
    assert (told.params["gate"], told.params["clauses"]) == (2, "G2.4")
