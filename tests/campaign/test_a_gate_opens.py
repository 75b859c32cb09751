"""A gate opens only on a sealed, unexpired PASS of the gate before it, of the same campaign."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvgate.campaign import Mode, PastRun, open_gate, utc_text
from kvgate.contract import Contract, load_contract
from kvgate.errors import GateClosed
from kvgate.verdict import Decision, Verdict

CONTRACT = load_contract(Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml")
NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
SERIALS, FIRMWARE = CONTRACT.appliance.serials, CONTRACT.appliance.firmware
FOLLOWS = {
    Verdict.PASS: Decision.PROCEED,
    Verdict.FAIL: Decision.STOP_LOSS,
    Verdict.INCONCLUSIVE: Decision.EXTEND,
    Verdict.INVALID: Decision.RERUN,
}


def past(gate: int = 2, verdict: Verdict | None = Verdict.PASS, **changed: Any) -> PastRun:
    given: dict[str, Any] = {
        "gate": gate, "run": 1, "mode": Mode.COUNTED, "verdict": verdict,
        "decision": None if verdict is None else FOLLOWS[verdict],
        "as_of": utc_text(NOW - timedelta(days=1)), "contract_digest": CONTRACT.digest,
        "serials": SERIALS, "firmware": FIRMWARE, "manifest_sha256": "ab" * 32,
        "rehearsal": True, "path": f"campaign/g{gate}-001",
    }  # fmt: skip
    return PastRun(**(given | changed))


def opened(*history: PastRun, gate: int = 3, contract: Contract = CONTRACT, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "as_of": NOW, "rehearsal": True, "serials": SERIALS, "firmware": FIRMWARE,
    }  # fmt: skip
    return open_gate(contract, gate, history, **(given | changed))


def closed(*history: PastRun, **given: Any) -> GateClosed:
    with pytest.raises(GateClosed) as caught:
        opened(*history, **given)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return caught.value


def test_the_first_gate_needs_no_predecessor() -> None:
    opening = opened(gate=1)
    assert (opening.mode, opening.run, opening.predecessor) == (Mode.COUNTED, 1, None)


def test_a_gate_opens_on_the_pass_before_it_and_names_its_seal() -> None:
    opening = opened(past())
    assert (opening.mode, opening.run) == (Mode.COUNTED, 1)
    assert opening.predecessor is not None
    assert (opening.predecessor.gate, opening.predecessor.manifest_sha256) == (2, "ab" * 32)


def test_without_a_predecessor_it_stays_closed() -> None:
    assert "G2 has no sealed PASS" in str(closed())
    assert "pytest -m gate2" in closed().remedy


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in {Verdict.PASS, Verdict.FAIL}])
def test_another_verdict_than_pass_opens_nothing(verdict: Verdict) -> None:
    assert f"its last verdict is {verdict}" in str(closed(past(verdict=verdict)))


@pytest.mark.parametrize("changed, says", [
    ({"manifest_sha256": None}, "no sealed PASS"),
    ({"mode": Mode.ENGINEERING, "decision": None}, "no sealed PASS"),
    ({"gate": 1}, "G2 has no sealed PASS"),
    ({"contract_digest": "0" * 64}, "the contract changed"),
    ({"serials": ("OTHER",)}, "serial numbers changed"),
    ({"firmware": "sim-2.0"}, "firmware changed"),
    ({"rehearsal": False}, "rehearsal's PASS"),
    ({"as_of": "2026-01-01T00:00:00+00:00"}, "expired on 2026-01-31"),
    ({"as_of": ""}, "no usable date"),
    ({"as_of": "2026-03-03T10:00:00"}, "no usable date"),
], ids=lambda value: str(value)[:40])  # fmt: skip
def test_a_pass_that_does_not_speak_for_this_appliance_opens_nothing(
    changed: dict[str, Any], says: str
) -> None:
    assert says in str(closed(past(**changed)))


def test_a_rehearsal_never_opens_a_real_gate() -> None:
    assert "rehearsal" in str(closed(past(rehearsal=True), rehearsal=False))


def test_a_pass_is_good_until_its_last_day() -> None:
    days = CONTRACT.gate(2).pass_valid_days
    assert opened(past(as_of=utc_text(NOW - timedelta(days=days)))).mode is Mode.COUNTED
    late = past(as_of=utc_text(NOW - timedelta(days=days, seconds=1)))
    assert "expired" in str(closed(late))


def test_a_gate_that_was_passed_is_only_repeated() -> None:
    opening = opened(past(), past(gate=3, path="g3"))
    assert (opening.mode, opening.run) == (Mode.REPEAT, 2)


@pytest.mark.parametrize("changed", [
    {"as_of": "2025-11-01T00:00:00+00:00"},
    {"contract_digest": "0" * 64},
    {"serials": ("OTHER",)},
], ids=str)  # fmt: skip
def test_a_pass_that_no_longer_speaks_is_measured_anew_and_counts(changed: dict[str, Any]) -> None:
    opening = opened(past(gate=1, **changed), gate=1)
    assert (opening.mode, opening.run) == (Mode.COUNTED, 2)


def test_a_stop_loss_ends_the_campaign_for_every_gate() -> None:
    stopped = past(gate=2, verdict=Verdict.FAIL)
    for gate in CONTRACT.gates:
        assert "STOP-LOSS" in str(closed(past(gate=1), stopped, gate=gate))


def test_a_granted_retest_is_open_and_counted() -> None:
    failed = past(gate=3, verdict=Verdict.FAIL, decision=Decision.HOLD)
    opening = opened(past(), failed)
    assert (opening.mode, opening.run, opening.retests_used) == (Mode.COUNTED, 2, 1)


def test_invalid_runs_are_counted_as_reruns_up_to_the_limit() -> None:
    limit = CONTRACT.gate(3).reruns
    invalid = [past(gate=3, verdict=Verdict.INVALID, run=n) for n in range(1, limit + 2)]
    opening = opened(past(), *invalid[:limit])
    assert (opening.run, opening.reruns_used) == (limit + 1, limit)
    assert "HOLD" in str(closed(past(), *invalid))


def test_a_gate_that_was_inconclusive_at_the_limit_is_not_measured_until_it_passes() -> None:
    held = past(gate=3, verdict=Verdict.INCONCLUSIVE, decision=Decision.HOLD)
    assert "on HOLD" in str(closed(past(), held))
    extended = replace(held, decision=Decision.EXTEND)
    assert opened(past(), extended).mode is Mode.COUNTED


def test_an_engineering_run_is_always_open_and_never_counts() -> None:
    for history in ([], [past(verdict=Verdict.FAIL)], [past(as_of="")]):
        opening = opened(*history, engineering=True)
        assert (opening.mode, opening.predecessor) == (Mode.ENGINEERING, None)


def test_runs_that_do_not_count_use_up_nothing() -> None:
    for verdict in (Verdict.FAIL, Verdict.INVALID):
        for changed in ({"manifest_sha256": None}, {"mode": Mode.ENGINEERING}):
            opening = opened(past(), past(gate=3, verdict=verdict, decision=None, **changed))
            assert (opening.run, opening.retests_used, opening.reruns_used) == (2, 0, 0)


def test_a_gate_that_the_contract_lacks_is_skipped_over() -> None:
    without_g2 = CONTRACT.model_copy(update={"gate2": None})
    opening = opened(past(gate=1, contract_digest=without_g2.digest), contract=without_g2)
    assert opening.predecessor is not None
    assert opening.predecessor.gate == 1


def test_an_inconclusive_run_is_gone_on_with_never_begun_afresh() -> None:
    inconclusive = past(gate=3, verdict=Verdict.INCONCLUSIVE)
    assert opened(past(), inconclusive).extends is inconclusive
    spoilt = past(gate=3, run=2, verdict=Verdict.INVALID)
    opening = opened(past(), inconclusive, spoilt)
    assert (opening.extends, opening.reruns_used, opening.run) == (inconclusive, 1, 3)


def test_an_inconclusive_run_is_not_gone_on_with_under_another_contract() -> None:
    other = past(gate=3, verdict=Verdict.INCONCLUSIVE, contract_digest="0" * 64)
    assert "under another contract" in str(closed(past(), other))


def test_a_retest_begins_afresh() -> None:
    inconclusive = past(gate=3, verdict=Verdict.INCONCLUSIVE)
    failed = past(gate=3, run=2, verdict=Verdict.FAIL, decision=Decision.HOLD)
    assert opened(past(), inconclusive, failed).extends is None


def test_what_a_later_run_saw_must_be_there_as_it_was() -> None:
    """The newest run of a gate leaves no gap in the numbers; the next gate's run speaks of it."""
    first, second = past(gate=2), past(gate=2, run=2, verdict=Verdict.FAIL)
    later = past(gate=3, earlier=(first.spent, second.spent))
    assert "G2 run 2 is missing: G3 run 1 saw it" in str(closed(first, later))
    other = replace(second, verdict=Verdict.INVALID)
    assert "G3 run 1 saw it say FAIL" in str(closed(first, other, later))
