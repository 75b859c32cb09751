"""A missed deadline closes, a change reopens, and what both parties sign lifts what it names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kvgate.campaign import Mode, PastRun, utc_text
from kvgate.verdict import Decision, Verdict
from kvgate.waiver import Signed, SignedWaiver, Waiver

from .test_a_gate_opens import CONTRACT, NOW, closed, opened, past

NAME = "made-up"
OLD = {"firmware": {"appliance device": "1.0"}, "driver": {"host kernel": "6.1"},
       "tuning": {"appliance engine_args": "--a"}}  # fmt: skip


def signed(clause: str, *, days: int = 5, **changed: Any) -> list[SignedWaiver]:
    """The waiver as both parties sign it."""
    given = {
        "campaign": NAME, "contract_digest": CONTRACT.digest, "clause": clause,
        "reason": "agreed", "granted": utc_text(NOW - timedelta(days=1)),
        "expires": utc_text(NOW + timedelta(days=days)),
    } | changed  # fmt: skip
    return [
        SignedWaiver(Waiver(party=party, **given), "armoured", Signed.VALID)
        for party in ("buyer", "vendor")
    ]


def failed(**changed: Any) -> PastRun:
    return past(gate=2, verdict=Verdict.FAIL, unmet=("G2.2",), **changed)


# --- waivers of runs that ended already -------------------------------------------------------


def test_what_both_parties_sign_lifts_a_stop_loss_and_opens_the_next_gate() -> None:
    assert "STOP-LOSS" in str(closed(failed(), campaign=NAME))
    opening = opened(failed(), campaign=NAME, waivers=signed("G2.2"))
    assert opening.mode is Mode.COUNTED
    assert opening.predecessor is not None
    assert (opening.predecessor.gate, opening.predecessor.waived) == (2, ("G2.2",))
    assert len(opening.waivers) == 2


@pytest.mark.parametrize("waivers", [
    signed("G2.1"),
    signed("G2.2")[:1],
    signed("G2.2", days=-1, granted="2026-03-01T00:00:00+00:00"),
    signed("G2.2", campaign="another"),
    signed("G2.2", contract_digest="0" * 64),
], ids=["clause", "one party", "expired", "campaign", "contract"])  # fmt: skip
def test_what_does_not_fit_lifts_nothing(waivers: list[SignedWaiver]) -> None:
    assert "STOP-LOSS" in str(closed(failed(), campaign=NAME, waivers=waivers))


def test_a_wrong_answer_is_never_lifted() -> None:
    wrong = failed(unwaivable=("G2.2",))
    assert "STOP-LOSS" in str(closed(wrong, campaign=NAME, waivers=signed("G2.2")))


def test_a_gate_that_proceeded_under_a_waiver_is_closed_when_that_expires() -> None:
    until = utc_text(NOW - timedelta(hours=1))
    under = past(verdict=Verdict.FAIL, decision=Decision.PROCEED, waived={"G2.2": until})
    assert "waiver of G2.2" in str(closed(under, campaign=NAME))
    again = opened(under, campaign=NAME, waivers=signed("G2.2"))
    assert again.mode is Mode.COUNTED


def test_a_waived_fail_uses_up_no_retest() -> None:
    under = past(gate=3, verdict=Verdict.FAIL, decision=Decision.PROCEED,
                 waived={"G3.3": utc_text(NOW + timedelta(days=1))})  # fmt: skip
    opening = opened(past(), under)
    assert (opening.mode, opening.retests_used) == (Mode.REPEAT, 0)


# --- deadlines --------------------------------------------------------------------------------


def long_ago(days: int, **changed: Any) -> PastRun:
    return past(gate=1, as_of=utc_text(NOW - timedelta(days=days)), **changed)


def test_a_gate_that_was_not_passed_by_its_deadline_stays_closed() -> None:
    text = str(closed(long_ago(50), past()))
    assert "deadline, day 49" in text
    assert "the contract says HOLD" in text
    assert "waiver of G3.deadline" in text
    assert opened(long_ago(49), past()).mode is Mode.COUNTED


def test_a_signed_waiver_of_the_deadline_opens_it() -> None:
    late = (long_ago(50), past())
    assert opened(*late, campaign=NAME, waivers=signed("G3.deadline")).mode is Mode.COUNTED
    closed(*late, campaign=NAME, waivers=signed("G2.deadline"))


def test_a_gate_passed_in_time_may_be_measured_anew_after_its_deadline() -> None:
    expired = long_ago(45)
    assert opened(expired, gate=1).mode is Mode.COUNTED


def test_the_contracts_own_day_zero_wins() -> None:
    campaign = CONTRACT.campaign.model_copy(update={"begins": "2026-01-01"})
    terms = CONTRACT.model_copy(update={"campaign": campaign})
    assert "deadline" in str(closed(past(contract_digest=terms.digest), contract=terms))


# --- changes ----------------------------------------------------------------------------------


def seen(kind: str, value: str, **changed: Any) -> PastRun:
    """A counted run of G3, measured after G2, that saw something else."""
    place = next(iter(OLD[kind]))
    return past(
        gate=3, verdict=Verdict.INVALID, decision=Decision.HOLD, as_of=utc_text(NOW),
        configuration={**OLD, kind: {place: value}}, **changed,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["firmware", "driver"])
def test_a_change_seen_later_reopens_the_gate_before(kind: str) -> None:
    text = str(closed(past(configuration=OLD), seen(kind, "new")))
    assert f"the {kind} changed since G2 passed" in text
    assert f"the contract reopens G{CONTRACT.changes.reopens(kind)}" in text
    opening = opened(past(gate=1, configuration=OLD), past(configuration=OLD),
                     seen(kind, "new"), gate=1)  # fmt: skip
    # Firmware reopens G1, a driver only G2: a gate before that is still passed.
    assert opening.mode is (Mode.COUNTED if kind == "firmware" else Mode.REPEAT)


def test_once_measured_anew_under_the_change_the_gate_opens_the_next() -> None:
    again = past(
        run=2, as_of=utc_text(NOW), configuration={**OLD, "driver": {"host kernel": "new"}}
    )
    history = (past(configuration=OLD), seen("driver", "new"), again)
    opening = opened(*history)
    assert opening.predecessor is not None
    assert opening.predecessor.run == 2
    assert [r.run for r in opening.relied_on] == [2]
    assert opening.relied_on[0].configuration["driver"] == {"host kernel": "new"}


def test_a_change_of_tuning_reopens_g3_and_forgets_its_pairs_but_not_g2() -> None:
    began = past(gate=3, verdict=Verdict.INCONCLUSIVE, configuration=OLD)
    changed = seen("tuning", "--b", run=2)
    assert opened(past(configuration=OLD), began).extends is began
    opening = opened(past(configuration=OLD), began, changed)
    assert (opening.mode, opening.extends) == (Mode.COUNTED, None)


def test_an_opening_carries_what_the_judge_needs() -> None:
    before = past(configuration=OLD, hours=2.5)
    opening = opened(before)
    assert [(r.gate, r.hours) for r in opening.earlier] == [(2, 2.5)]
    assert opening.began == utc_text(NOW - timedelta(days=1))
    assert [r.gate for r in opening.relied_on] == [2]
