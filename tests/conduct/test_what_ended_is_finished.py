"""What was measured to its end is judged, sealed and reported, however often that is broken off;
nothing is measured for it again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.conduct import finish as finish_module
from kvgate.conduct import gate as gate_module
from kvgate.errors import Interrupted
from kvgate.evidence import files
from kvgate.evidence.journal import Journal
from kvgate.evidence.verify import verify
from kvgate.verdict import Decision, Verdict

from .stage import Killed, Stage, looks, refused

Break = Callable[[], None]


def at_the_judging(stage: Stage, patch: pytest.MonkeyPatch, cut: Break) -> None:
    patch.setattr(finish_module, "adjudicate", lambda _root: cut())


def at_the_verdict(stage: Stage, patch: pytest.MonkeyPatch, cut: Break) -> None:
    patch.setattr(Journal, "seal", lambda *_, **__: cut())


def at_a_file(name: str) -> Callable[[Stage, pytest.MonkeyPatch, Break], None]:
    """Just before the seal writes this file."""

    def at(stage: Stage, patch: pytest.MonkeyPatch, cut: Break) -> None:
        def write(path: Path, data: bytes, **more: Any) -> None:
            if path.name == name and (name != "state.json" or b'"sealed"' in data):
                cut()
            honest(path, data, **more)

        honest = files.write_whole
        patch.setattr(files, "write_whole", write)

    return at


def at_the_note(stage: Stage, patch: pytest.MonkeyPatch, cut: Break) -> None:
    patch.setattr(finish_module, "note_sealed", lambda *_: cut())


def at_the_report(stage: Stage, patch: pytest.MonkeyPatch, cut: Break) -> None:
    patch.setattr(stage, "on_publish", cut)


POINTS = {
    "judging": at_the_judging,
    "verdict": at_a_file("verdict.json"),
    "seal": at_the_verdict,
    "manifest": at_a_file("manifest.json"),
    "state": at_a_file("state.json"),
    "note": at_the_note,
    "report": at_the_report,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run says that nothing interrupts."""
    with pytest.MonkeyPatch.context() as patch:
        return Stage(tmp_path_factory.mktemp("whole"), patch).run().judged


def broken_off(stage: Stage, point: str, how: type[BaseException]) -> None:
    """Run up to ``point``; a kill says nothing on its way out, a signal is written down."""

    def cut() -> None:
        raise how("broken off")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(how):
        POINTS[point](stage, patch, cut)
        if how is Killed:
            patch.setattr(Journal, "mark_partial", lambda *_: None)
        stage.run()


@pytest.mark.parametrize("how", [Killed, Interrupted])
@pytest.mark.parametrize("point", POINTS)
def test_broken_off_behind_the_measurement_the_same_command_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Any, point: str, how: Any
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    broken_off(stage, point, how)
    blocks, kept, primed = stage.blocks, stage.bytes_of(), list(stage.primed)
    ended = stage.run()
    assert ended.judged.verdict.verdict is Verdict.PASS
    assert looks(ended.judged) == looks(whole)
    assert ended.judged.verdict.interruptions == ()
    assert ended.published is not None
    assert (stage.blocks, stage.bytes_of(), stage.primed) == (blocks, kept, primed)
    assert verify(stage.bundle()) == []
    assert stage.space.bundles(3) == ((1, stage.bundle()),)
    (line,) = stage.told.notes
    assert line.startswith("g3-001 was ")
    # Only then is the gate passed, and another run is a repeat.
    assert stage.run().judged.campaign.mode == "repeat"


def test_broken_off_twice_it_is_finished_the_third_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    for point in ("judging", "manifest", "report"):
        broken_off(stage, point, Killed)
    assert stage.run().judged.verdict.verdict is Verdict.PASS


def test_a_changed_block_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    broken_off(stage, "judging", Killed)
    block = stage.bundle() / "blocks/3/block.json"
    block.write_text(json.dumps(json.loads(block.read_text()) | {"ttft_s": 0.1}))
    assert "block 3 is not what was measured" in refused(stage)


def test_another_contract_does_not_finish_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    broken_off(stage, "judging", Killed)
    stage.bytes = stage.bytes.replace(b"weeks = ", b"weeks = 1")
    assert "under another contract and is not sealed" in refused(stage)


def test_a_seal_that_was_broken_up_is_not_sealed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    stage.run()
    state = stage.bundle() / "state.json"
    state.chmod(0o644)
    state.write_text(json.dumps(json.loads(state.read_text()) | {"state": "open"}))
    assert "g3-001 was sealed and is not any more" in refused(stage)


def test_a_report_that_cannot_be_written_is_no_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)

    def broken() -> None:
        raise RuntimeError("no fonts")

    stage.on_publish = broken
    ended = stage.run()
    assert (ended.published, ended.report_fault) == (None, "RuntimeError: no fonts")
    stage.on_publish = lambda: None
    blocks = stage.blocks
    assert stage.run().published is not None
    assert stage.blocks == blocks


def test_the_gate_takes_a_signal_while_it_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real signal, not its exception: one line that says that nothing is lost."""
    stage = Stage(tmp_path, monkeypatch)
    honest = finish_module.conclude

    def slow(journal: Journal) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return honest(journal)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
        patch.setattr(gate_module, "conclude", slow)
        stage.run()
    assert "stopped by SIGTERM -- what was measured is complete and kept" in str(caught.value)
    assert stage.run().judged.verdict.verdict is Verdict.PASS


def test_a_report_that_can_never_be_written_does_not_keep_a_gate_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, max_pairs=6)
    stage.draw = lambda pair, attempt: 9.0 * (-1) ** pair

    def broken() -> None:
        raise RuntimeError("no fonts")

    stage.on_publish = broken
    first = stage.run()
    assert first.judged.verdict.decision is Decision.EXTEND
    blocks = stage.blocks
    second = stage.run()
    assert second.bundle != first.bundle
    assert stage.blocks > blocks
    assert any("cannot be written: RuntimeError: no fonts" in note for note in stage.told.notes)
