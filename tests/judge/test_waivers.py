"""A waiver lets a clause go, is shown, and never turns anything into a PASS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvgate.analyse.results import Analysis
from kvgate.decide import judge
from kvgate.verdict import Decision, GateVerdict, Verdict
from kvgate.waiver import Signed, SignedWaiver, Standing, Waiver

from .builders import GOOD, clause, contract, facts, history, with_wrong_answers

SLOW_TAIL = history(replace(GOOD, p99_rise=0.3))


def waiver(name: str = "G3.3", signed: Signed = Signed.VALID, **changed: Any) -> SignedWaiver:
    given = {
        "campaign": "made-up", "contract_digest": contract().digest, "clause": name,
        "reason": "the tail is of no use to us", "party": "buyer",
        "granted": "2026-03-01T00:00:00+00:00", "expires": "2026-04-01T00:00:00+00:00",
    } | changed  # fmt: skip
    return SignedWaiver(Waiver(**given), "armoured", signed)


def both(name: str = "G3.3", **changed: Any) -> tuple[SignedWaiver, SignedWaiver]:
    """The same waiver, signed by the buyer and by the vendor."""
    return waiver(name, party="buyer", **changed), waiver(name, party="vendor", **changed)


def judged(analysis: Analysis, *waivers: SignedWaiver, **changed: Any) -> GateVerdict:
    return judge(contract(), analysis, facts(waivers=waivers, **changed))


def test_without_a_waiver_the_tail_stops_the_campaign() -> None:
    verdict = judged(SLOW_TAIL)
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)


def test_a_waived_clause_lets_the_gate_proceed_under_waiver_and_stays_a_fail() -> None:
    verdict = judged(SLOW_TAIL, *both())
    tail = clause(verdict, "G3.3")
    assert (tail.verdict, tail.waived_by, tail.waived, tail.accepted) == (
        Verdict.FAIL, ("buyer", "vendor"), True, False,
    )  # fmt: skip
    assert verdict.verdict is Verdict.FAIL
    assert verdict.exit_code == 1
    assert verdict.decision is Decision.PROCEED
    assert verdict.decision_reason.code == "proceed_under_waiver"
    assert str(verdict.decision_reason).startswith("PROCEED under waiver: G3.3")
    assert "豁免" in verdict.decision_reason.text("zh")
    assert [(w.party, w.standing, w.used, w.reason) for w in verdict.waivers] == [
        (party, "in force", True, "the tail is of no use to us") for party in ("buyer", "vendor")
    ]


@pytest.mark.parametrize("party", ["buyer", "vendor"])
def test_one_party_alone_lets_nothing_go(party: str) -> None:
    verdict = judged(SLOW_TAIL, waiver(party=party))
    assert verdict.decision is Decision.STOP_LOSS
    assert [(w.standing, w.used) for w in verdict.waivers] == [(Standing.ALONE.value, False)]


def test_what_was_not_measured_cannot_be_waived() -> None:
    verdict = judged(history(pairs=3), *both("G3.1"))
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.RERUN)
    assert {w.standing for w in verdict.waivers} == {Standing.NOT_MEASURED.value}


@pytest.mark.parametrize("changed, standing", [
    ({"expires": "2026-03-04T09:59:59+00:00"}, Standing.EXPIRED),
    ({"granted": "2026-03-05T00:00:00+00:00"}, Standing.NOT_YET),
    ({"campaign": "another"}, Standing.FOREIGN),
    ({"contract_digest": "0" * 64}, Standing.FOREIGN),
    ({"clause": "G3.99"}, Standing.FOREIGN),
    ({"signed": Signed.UNSIGNED}, Standing.UNSIGNED),
    ({"signed": Signed.UNTRUSTED}, Standing.UNTRUSTED),
    ({"signed": Signed.INVALID}, Standing.INVALID),
])  # fmt: skip
def test_a_waiver_that_does_not_count_has_no_effect_and_is_named(
    changed: dict[str, Any], standing: Standing
) -> None:
    name = changed.pop("clause", "G3.3")
    verdict = judged(SLOW_TAIL, *both(name, **changed))
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)
    assert clause(verdict, "G3.3").waived_by == ()
    assert {(w.standing, w.used) for w in verdict.waivers} == {(standing.value, False)}
    assert "waiver_without_effect" in [f.code for f in verdict.findings]


def test_a_wrong_answer_cannot_be_waived() -> None:
    verdict = judged(with_wrong_answers(history(), "appliance"), *both("G3.5"))
    assert (verdict.verdict, verdict.decision) == (Verdict.FAIL, Decision.STOP_LOSS)
    assert verdict.waivers[0].standing == Standing.NOT_WAIVABLE.value


def test_answers_that_were_not_compared_cannot_be_waived_either() -> None:
    verdict = judged(replace(history(), answers=()), *both("G3.5"))
    assert (verdict.verdict, verdict.decision) == (Verdict.INVALID, Decision.RERUN)


def test_a_waiver_lets_go_only_what_it_names() -> None:
    slow = history(replace(GOOD, p99_rise=0.3, itl_rise=0.5))
    verdict = judged(slow, *both("G3.3"))
    assert (verdict.decision, clause(verdict, "G3.4").waived) == (Decision.STOP_LOSS, False)
    assert verdict.stop is not None
    assert {s.clause for s in verdict.stop.shortfalls} == {"G3.4"}
    two = judged(slow, *both("G3.3"), *both("G3.4"))
    assert two.decision is Decision.PROCEED
    assert two.decision_reason.params["clauses"] == "G3.3, G3.4"


def test_a_waiver_of_what_was_met_is_shown_and_unused() -> None:
    verdict = judged(history(), *both())
    assert (verdict.verdict, verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    assert verdict.decision_reason.code == "next_gate"
    assert [w.used for w in verdict.waivers] == [False, False]
    assert all(c.waived_by == () for c in verdict.clauses)


def test_waivers_of_other_gates_say_nothing_here() -> None:
    assert judged(SLOW_TAIL, *both("G2.1")).waivers == ()


def test_a_waiver_that_expires_is_no_proof_of_anything_later() -> None:
    later = judged(SLOW_TAIL, *both(), as_of="2026-04-02T00:00:00+00:00",
                   began="2026-03-20T00:00:00+00:00")  # fmt: skip
    assert later.decision is Decision.STOP_LOSS
