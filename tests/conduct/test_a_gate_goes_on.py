"""An interrupted G3 goes on at its next session: nothing is measured twice, nothing is lost, and
whoever interrupts it gains nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvgate.errors import Interrupted
from kvgate.evidence.verify import verify
from kvgate.verdict import Decision, Verdict

from .stage import Killed, Stage, looks, refused

# Two blocks of the reference session, then two a session.
REFERENCE, PER_SESSION = 2, 2


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def sessions(stage: Stage, run: int = 1) -> list[dict[str, Any]]:
    plan = json.loads((stage.bundle(run) / "plan.json").read_text())
    return list(plan["sessions"])


def measured(stage: Stage, run: int = 1) -> Counter[tuple[Any, ...]]:
    """How often each place was measured in a session that stands."""
    broken = {s["number"] for s in sessions(stage, run) if s["state"] == "interrupted"}
    blocks = [json.loads(p.read_text()) for p in stage.bundle(run).glob("blocks/*/block.json")]
    return Counter(
        (b["pair"], b["role"], b["cell"]["workload"]) for b in blocks if b["session"] not in broken
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run says that nothing interrupts."""
    with pytest.MonkeyPatch.context() as patch:
        return Stage(tmp_path_factory.mktemp("whole"), patch).run().judged


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("at", [1, 2, 5, 8, 13])
def test_a_kill_at_any_block_ends_in_the_verdict_of_an_uninterrupted_run(
    stage: Stage, whole: Any, monkeypatch: pytest.MonkeyPatch, at: int, when: str
) -> None:
    stage.killed_at(at, when, monkeypatch)
    kept = stage.bytes_of()
    judged = stage.run().judged
    assert looks(judged) == looks(whole)
    assert (judged.verdict.verdict, judged.verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    assert judged.verdict.pairs_measured == whole.verdict.pairs_measured == 3
    # Two identical blocks of the reference session ask the engine the same twice.
    assert set(measured(stage).values()) <= {1, 2}
    assert all(n == 1 for place, n in measured(stage).items() if place[0] is not None)
    assert stage.bytes_of().items() >= kept.items()
    assert verify(stage.bundle()) == []


def test_the_broken_half_is_listed_and_the_pair_measured_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the second session of pair 2: its first session ended and is broken all the same.
    at = REFERENCE + 3 * PER_SESSION + 1
    stage.killed_at(at, "before", monkeypatch)
    verdict = stage.run().judged.verdict
    assert [(e.pair, e.condition.name) for e in verdict.exclusions] == [(1, "interrupted")] * 3
    (note,) = verdict.interruptions
    assert (note.broken_sessions, note.unfinished_blocks, note.next_block) == ((3, 4), (), at)
    assert [s["attempt"] for s in sessions(stage) if s["pair"] == 1] == [0, 0, 1, 1]
    (line,) = stage.told.notes
    assert line == (
        "continuing g3-001 at session 4 of 7: 1 pair kept, 2 broken sessions to be measured anew "
        "(the run that wrote this bundle ended without closing it)"
    )


def test_between_two_pairs_nothing_is_broken(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.killed_at(REFERENCE + 2 * PER_SESSION, "before", monkeypatch)
    verdict = stage.run().judged.verdict
    assert verdict.exclusions == ()
    assert stage.blocks == REFERENCE + 6 * PER_SESSION + 1


def killed_while_judging(stage: Stage, pairs: int) -> None:
    """Run until ``pairs`` pairs are there, and be killed at the look at them."""

    def kill() -> None:
        blocks = sum(1 for _ in stage.bundle().glob("blocks/*/block.json"))
        if blocks == REFERENCE + 2 * PER_SESSION * pairs:
            raise Killed

    stage.on_judge = kill
    with pytest.raises(Killed):
        stage.run()
    stage.on_judge = lambda: None


def test_a_kill_while_the_last_pair_is_judged_measures_nothing_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_while_judging(stage, pairs=3)
    blocks, primed = stage.blocks, list(stage.primed)
    assert stage.run().judged.verdict.verdict is Verdict.PASS
    assert (stage.blocks, stage.primed) == (blocks, primed)


def test_a_signal_leaves_the_stores_primed_and_a_finished_run_does_not(stage: Stage) -> None:
    def stop(n: int, when: str) -> None:
        if n == 4:
            raise Interrupted("stopped by SIGINT")

    stage.on_block = stop
    with pytest.raises(Interrupted):
        stage.run()
    stage.on_block = lambda n, when: None
    stage.run()
    assert stage.stopped == [False, True]


# --- nothing is gained ---------------------------------------------------------------------------


def test_looks_that_were_taken_stay_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad-looking run is interrupted at each look; a fresh draw would look better, yet all that
    was seen is still in the estimate."""
    many = {"planned_pairs": 6, "max_pairs": 6, "interruptions": 9}
    bad = Stage(tmp_path / "bad", monkeypatch, **many)
    bad.draw = lambda pair, attempt: 8.0 * (-1) ** pair if attempt == 0 else -5.0
    whole = bad.run().judged
    assert whole.verdict.verdict is Verdict.INCONCLUSIVE
    again = Stage(tmp_path / "again", monkeypatch, **many)
    again.draw = bad.draw
    for look in (3, 4, 5):
        killed_while_judging(again, look)
    judged = again.run().judged
    assert looks(judged) == looks(whole)
    # Every time that so many pairs were looked at, in either history, the same was seen.
    for pairs in (3, 4, 5, 6):
        seen = [j["looks"] for j in (*bad.judged, *again.judged) if j["pairs"] == pairs]
        assert len(seen) >= 2
        assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_a_bad_half_that_was_seen_is_not_drawn_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    """The second pair looks bad and is broken off after so many of its four blocks: whatever is
    drawn in its place, the verdict needs both histories."""
    stage = Stage(tmp_path, monkeypatch)
    stage.draw = lambda pair, attempt: 20.0 if (pair, attempt) == (1, 0) else 0.1 * pair
    at = REFERENCE + 2 * PER_SESSION + blocks - 1
    stage.killed_at(at, "after", monkeypatch)
    seen = [json.loads(p.read_text()) for p in stage.bundle().glob("blocks/*/block.json")]
    of_appliance = [b for b in seen if b["pair"] == 1 and b["role"] == "test"]
    known = any(b["cell"]["workload"] == "cold_restore" for b in of_appliance)
    verdict = stage.run().judged.verdict
    clause = next(c for c in verdict.clauses if c.clause == "G3.1")
    if known:
        assert clause.verdict is Verdict.INCONCLUSIVE
        assert (clause.reason.code, verdict.verdict) == ("interruption_matters", clause.verdict)
    else:
        assert verdict.verdict is Verdict.PASS


def test_a_wrong_answer_in_a_broken_session_still_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = stage._measure

    def lying(bench: Any, arm: Any, place: Any, cell: Any) -> dict[str, Any]:
        if place.session.role == "test" and place.session.attempt == 0:
            monkeypatch.setattr(bench.journal, "finish_block", _with_word(bench.journal))
        return honest(bench, arm, place, cell)

    monkeypatch.setattr("kvgate.conduct.sessions.measure_block", lying)
    first = next(s for s in range(1, 3) if _role(stage, s) == "test")
    at = REFERENCE + PER_SESSION * first
    stage.killed_at(at - 1, "after", monkeypatch)
    monkeypatch.setattr("kvgate.conduct.sessions.measure_block", honest)
    verdict = stage.run().judged.verdict
    assert verdict.verdict is Verdict.FAIL
    assert next(c for c in verdict.clauses if c.clause == "G3.5").verdict is Verdict.FAIL


def _role(stage: Stage, number: int) -> str:
    from kvgate.plan import pair_order

    plan = stage.contract.gate(3).pairs
    assert plan is not None
    return pair_order(stage.contract, 3, plan, 0, 1).sessions[number - 1].role


def _with_word(journal: Any) -> Any:
    plain = type(journal).finish_block

    def finish(n: int, block: Any) -> Any:
        return plain(journal, n, {**block, "word": "z"})

    return finish


def test_the_contract_limits_interruptions_whatever_was_measured(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = stage.contract.gate(3).interruptions
    for _ in range(granted + 1):
        stage.killed_at(_next(stage) + 1, "before", monkeypatch)
    line = refused(stage)
    assert f"interrupted 3 times, the contract grants {granted}: it is on HOLD" in line
    assert not (stage.bundle(2)).exists()


def _next(stage: Stage) -> int:
    numbers = [int(p.parent.name) for p in stage.bundle().glob("blocks/*/block.json")]
    return max(numbers, default=-1) + 1


def test_a_break_before_anything_was_measured_is_not_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        stage.killed_at(0, "before", monkeypatch)
    assert stage.run().judged.verdict.interruptions == ()


def test_no_rerun_and_no_retest_is_used(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.killed_at(5, "before", monkeypatch)
    facts = stage.run().judged.campaign
    assert (facts.run, facts.reruns_used, facts.retests_used) == (1, 0, 0)


# --- an extension is gone on with as well --------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2])
def test_an_extension_that_is_interrupted_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    def play(name: str, *, killed: bool) -> Any:
        with monkeypatch.context() as patch:
            stage = Stage(tmp_path / name, patch)
            stage.draw = lambda pair, attempt: 8.0 * (-1) ** pair if pair < 4 else 0.0
            first = stage.run().judged.verdict
            assert (first.verdict, first.decision) == (Verdict.INCONCLUSIVE, Decision.EXTEND)
            if killed:
                stage.killed_at(REFERENCE + 6 * PER_SESSION + at, "inside", patch)
            judged = stage.run().judged
            assert judged.campaign.run == 2
            return judged

    whole, again = play("whole", killed=False), play("again", killed=True)
    assert looks(again) == looks(whole)
    assert len(again.verdict.interruptions) == 1


def test_an_extension_cut_short_while_copying_copies_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.draw = lambda pair, attempt: 8.0 * (-1) ** pair if pair < 4 else 0.0
    stage.run()
    from kvgate.evidence.journal import Journal

    plain = Journal.finish_block

    def cut(journal: Journal, n: int, block: object) -> Path:
        if n == 5:
            raise Killed
        return plain(journal, n, block)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Journal, "finish_block", cut)
        patch.setattr(Journal, "mark_partial", lambda *_: None)
        stage.run()
    judged = stage.run().judged
    assert (judged.campaign.run, judged.verdict.interruptions) == (2, ())
    assert judged.verdict.exclusions == ()
