"""Canaries of a long run, what its injected faults prove and explain, and when all is as before.

Each test changes one thing of a quiet run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgate.verdict import Decision, Verdict

from .builders import clause, contract, judged
from .soak_story import (
    END,
    EXTERNAL,
    FAULT,
    LATE,
    READ,
    STORE,
    TTFT_S,
    Story,
    W,
    answered,
    canaries,
    plan,
    table,
)

PASS, FAIL, INVALID = Verdict.PASS, Verdict.FAIL, Verdict.INVALID

# --- canaries ------------------------------------------------------------------------------------


def canary(story: Story, at_s: float) -> int:
    """The row of the first canary asked after a moment."""
    assert story.canary is not None
    return int(np.flatnonzero(story.canary["sent_ns"] >= at_s * 1e9)[0])


def spoil(story: Story, row: int, **changed: Any) -> Story:
    assert story.canary is not None
    for column, found in changed.items():
        story.canary.at[row, column] = found
    return story


def test_a_wrong_answer_after_a_restore_fails() -> None:
    story = Story()
    spoil(story, canary(story, LATE), tokens=["z", "x", "y"])
    found = judged(story.analysis(), gate=4)
    assert (clause(found, "G4.9").verdict, found.decision) == (FAIL, Decision.STOP_LOSS)
    assert set(story.verdicts().values()) == {FAIL, PASS}


def test_an_answer_without_log_probabilities_is_wrong() -> None:
    story = Story()
    spoil(story, canary(story, LATE), token_logprobs=[None, None, None])
    assert story.verdicts()["soak_wrong_answers"] is FAIL


def test_the_answer_of_another_prompt_is_wrong_even_where_the_engine_was_undecided() -> None:
    story = Story()
    for frame in story.references:
        frame["top2_margin"] = [[0.0, 0.0, 0.0]] * len(frame)
    row = canary(story, LATE)
    assert story.canary is not None
    right = story.canary["tokens"].tolist()[row]
    other = next(t for t in story.references[0]["tokens"].tolist() if t != right)
    assert spoil(story, row, tokens=["z", "x", "y"]).verdicts()["soak_wrong_answers"] is PASS
    assert spoil(story, row, tokens=other).verdicts()["soak_wrong_answers"] is FAIL


def test_a_wrong_answer_that_was_not_restored_speaks_of_nobody() -> None:
    story = Story().lost(LATE, LATE + W, EXTERNAL, READ, *STORE)
    spoil(story, canary(story, LATE + 5), tokens=["z", "x", "y"])
    assert story.verdicts()["soak_wrong_answers"] is INVALID


def test_a_wrong_answer_while_a_fault_heals_counts() -> None:
    story = Story()
    spoil(story, canary(story, FAULT + 5), tokens=["z", "x", "y"])
    assert story.verdicts()["soak_wrong_answers"] is FAIL


def test_an_engine_that_disagrees_with_itself_proves_nothing() -> None:
    story = Story()
    after = story.references[1]
    said: list[Any] = [["z", "x", "y"], *after["tokens"].tolist()[1:]]
    story.references[1] = after.assign(tokens=said)
    spoil(story, canary(story, LATE), tokens=["z", "x", "y"])
    assert story.verdicts()["soak_wrong_answers"] is INVALID


@pytest.mark.parametrize("kept", [0, 1])
def test_a_reference_that_was_not_asked_before_and_after_proves_nothing(kept: int) -> None:
    story = Story()
    story.references = story.references[:kept]
    assert story.verdicts()["soak_wrong_answers"] is INVALID


def test_a_reference_that_did_not_recompute_is_none() -> None:
    story = Story()
    rows = story.analysis().blocks
    assert all(b.arm == canaries().reference_arm and b.valid for b in rows)


def test_every_window_has_a_canary_that_was_restored() -> None:
    story = Story()
    assert story.canary is not None
    asked = story.canary["sent_ns"]
    gone = (asked >= LATE * 1e9) & (asked < (LATE + 2 * W) * 1e9)
    story.canary = story.canary[~gone].reset_index(drop=True)
    assert story.verdicts()["soak_wrong_answers"] is INVALID
    story.canary = None
    assert story.verdicts()["soak_wrong_answers"] is INVALID


def test_a_canary_that_the_engine_still_holds_proves_no_restore() -> None:
    """The same prompt every time: since its last use the engine has seen too few tokens."""
    story = Story()
    assert story.canary is not None
    story.canary = answered(story.canary, [0] * len(story.canary))
    assert story.verdicts()["soak_wrong_answers"] is INVALID


def test_a_canary_that_nobody_recomputed_has_no_verdict() -> None:
    story = Story()
    spoil(story, canary(story, LATE), prompt_digest="another")
    assert story.verdicts()["soak_wrong_answers"] is INVALID


# --- faults, restarts, recovery ------------------------------------------------------------------


def test_a_fault_that_was_not_proved_is_invalid_and_explains_no_restart() -> None:
    story = Story()
    story.block["events"][0]["proved"] = False
    found = story.verdicts()
    assert (found["fault_proved"], found["soak_restarts"]) == (INVALID, FAIL)
    story.told(events=[])
    assert story.verdicts()["fault_proved"] is INVALID
    assert story.verdicts()["fault_recovery_time"] is INVALID


def test_the_breaker_proves_no_fault() -> None:
    story = Story()
    breaker = {"at_s": FAULT + 1, "kind": "breaker", "detail": "lost", "proved": True}
    story.told(events=[story.block["events"][0] | {"proved": False}, breaker])
    assert story.verdicts()["fault_proved"] is INVALID


@pytest.mark.parametrize(
    "change", [{"kind": "engine-cache-reset"}, {"at_s": FAULT - 60}, {"at_s": FAULT + 2 * W}]
)
def test_proofs_are_matched_to_their_faults_one_by_one(change: dict[str, Any]) -> None:
    story = Story()
    story.told(events=[story.block["events"][0] | change])
    assert story.verdicts()["fault_proved"] is INVALID


def test_one_event_proves_one_fault() -> None:
    soak = plan().model_copy(update={"faults": plan().faults * 2})
    gate4 = contract().gate(4).model_copy(update={"soak": soak})
    terms = contract().model_copy(update={"gate4": gate4})
    story = Story(terms)
    story.told(events=story.block["events"][:1])
    story.restarted, story.restarts = {"store-appliance": [FAULT + 20]}, story.restarts
    observed = {o.metric: o.value for o in story.analysis().observed}
    assert observed["fault_proved"] == 0.5
    assert observed["fault_recovery_time"] is None


def test_a_restart_that_the_stores_own_counter_does_not_show_is_no_proof() -> None:
    story = Story()
    story.restarted["store-appliance"] = []
    story.restarts["store-appliance"] = 0
    assert story.verdicts()["fault_proved"] is INVALID


def test_a_store_that_restarts_by_itself_fails() -> None:
    story = Story()
    story.restarted["store-appliance"].append(LATE)
    story.restarts["store-appliance"] = 2
    assert story.verdicts()["soak_restarts"] is FAIL


def test_an_engine_crash_is_explained_by_no_store_and_is_not_the_appliances() -> None:
    """The planned restart of the store did happen; the engine's own crash stays unexplained."""
    story = Story()
    story.restarted["engine"] = [FAULT + 20]
    story.restarts["engine"] = 1
    found = story.slow(LATE, END, 10.0).verdicts()
    assert found["soak_restarts"] is INVALID
    assert FAIL not in found.values()
    assert "the engine restarted" in story.reasons()["soak_restarts"]


def test_a_host_that_reboots_takes_both_down_and_is_not_the_appliance() -> None:
    story = Story()
    story.restarted["engine"] = [LATE + 30]
    story.restarted["store-appliance"].append(LATE)
    story.restarts |= {"engine": 1, "store-appliance": 2}
    assert story.verdicts()["soak_restarts"] is INVALID
    assert "together" in story.reasons()["soak_restarts"]


def test_an_engine_crash_long_before_does_not_hide_a_store_that_restarts_alone() -> None:
    story = Story()
    story.restarted["engine"] = [W]
    story.restarted["store-appliance"].append(LATE)
    story.restarts |= {"engine": 1, "store-appliance": 2}
    assert story.verdicts()["soak_restarts"] is FAIL


def test_a_store_of_another_arm_says_nothing_of_the_appliance() -> None:
    story = Story()
    story.restarts["store-baseline"] = 1
    assert story.verdicts()["soak_restarts"] is INVALID


def test_a_restart_that_nobody_could_see_is_invalid() -> None:
    story = Story()
    story.block["observation"]["targets"] = {}
    assert story.verdicts()["soak_restarts"] is INVALID
    story = Story()
    story.restarts["engine"] = None
    assert story.verdicts()["soak_restarts"] is INVALID


def recovery_s(story: Story) -> float:
    found = next(o.value for o in story.analysis().observed if o.metric == "fault_recovery_time")
    assert isinstance(found, float)
    return found


def test_recovery_lasts_until_ttft_is_normal_again() -> None:
    story = Story().slow(FAULT, FAULT + 300, 4.0)
    assert 300 <= recovery_s(story) <= 330
    found = story.verdicts()
    assert (found["fault_recovery_time"], found["soak_worst_window"]) == (PASS, PASS)


def test_a_service_that_never_recovers_fails() -> None:
    story = Story().slow(FAULT, END, 4.0)
    assert recovery_s(story) == pytest.approx(END - FAULT)
    assert story.verdicts()["fault_recovery_time"] is FAIL


def test_no_more_than_the_granted_recovery_is_excused() -> None:
    story = Story().slow(FAULT, FAULT + 1080, 4.0)
    found = story.verdicts()
    assert (found["fault_recovery_time"], found["soak_worst_window"]) == (FAIL, FAIL)


def test_requests_that_fail_after_a_fault_are_not_recovered() -> None:
    story = Story().fail(FAULT, FAULT + 200)
    assert recovery_s(story) >= 200
    assert story.verdicts()["soak_error_share"] is FAIL


def test_requests_that_found_no_connection_are_not_recovered() -> None:
    story = Story().fail(FAULT, FAULT + 200, kind="connect_failed")
    lost = story.frame["outcome"] == "connect_failed"
    for column in ("sent_ns", "first_token_ns", "last_token_ns"):
        story.frame.loc[lost, column] = None
    assert recovery_s(story) >= 200


def test_one_lucky_request_is_no_recovery() -> None:
    story = Story().slow(FAULT, FAULT + 300, 4.0)
    lucky = int(np.flatnonzero(story.within(FAULT + 100, FAULT + 102))[0])
    ttft = np.where(story.within(FAULT, FAULT + 300), TTFT_S * 4, TTFT_S)
    ttft[lucky] = TTFT_S
    story.frame = table(story.sent_s, ttft)
    assert recovery_s(story) >= 290
