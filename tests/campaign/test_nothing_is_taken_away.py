"""Whoever takes a run away leaves a witness: the campaign closes, with one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conduct.stage import Stage, refused
from kvgate.verdict import Decision, Verdict


def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A campaign whose G3 failed, with a retest left: whoever erases the FAIL has two."""
    stage = Stage(tmp_path, monkeypatch, retests=1)
    stage.draw = lambda pair, attempt: 24.0 + 0.1 * pair
    assert stage.run().judged.verdict.verdict is Verdict.FAIL
    return stage


def lines(stage: Stage) -> list[bytes]:
    return listed(stage).read_bytes().splitlines(keepends=True)


def listed(stage: Stage) -> Path:
    return stage.space.root / "opened.jsonl"


def without_bundle(stage: Stage) -> None:
    shutil.rmtree(stage.bundle())


def without_list(stage: Stage) -> None:
    listed(stage).unlink()


def without_lines(stage: Stage) -> None:
    without_bundle(stage)
    listed(stage).write_bytes(b"")


def cut_list(stage: Stage) -> None:
    listed(stage).write_bytes(b"")


def without_seal(stage: Stage) -> None:
    listed(stage).write_bytes(lines(stage)[0])


def edited_list(stage: Stage) -> None:
    listed(stage).write_bytes(listed(stage).read_bytes().replace(b'"run":1', b'"run":2', 1))


def emptied_bundle(stage: Stage) -> None:
    without_bundle(stage)
    stage.bundle().mkdir()
    (stage.bundle() / "state.json").write_text(json.dumps({"state": "open"}))


def no_list_at_all(stage: Stage) -> None:
    listed(stage).write_bytes(b"\xff\xfe no list\n")


TAKEN: dict[str, tuple[Callable[[Stage], None], str]] = {
    "the newest bundle": (without_bundle, "the evidence of G3 run 1, opened 20"),
    "the list": (without_list, "opened.jsonl does not know G3 run 1"),
    "lines of the list": (cut_list, "opened.jsonl does not know G3 run 1"),
    "the line of the seal": (without_seal, "does not say how G3 run 1 was sealed"),
    "a line was changed": (edited_list, "line 2 does not follow"),
    "no list": (no_list_at_all, "the list of the runs that were opened, was changed"),
    "bundle and lines": (without_lines, "a report of it is left"),
    "bundle emptied": (emptied_bundle, "is not what was sealed"),
}


@pytest.mark.parametrize("what", TAKEN)
def test_an_erased_fail_closes_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    stage = failed(tmp_path, monkeypatch)
    how, said = TAKEN[what]
    how(stage)
    line = refused(stage)
    assert said in line
    assert "put it back from a copy" in line


def test_nothing_taken_away_nothing_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = failed(tmp_path, monkeypatch)
    stage.draw = lambda pair, attempt: 0.1 * (-1) ** pair
    judged = stage.run().judged
    assert (judged.verdict.verdict, judged.verdict.decision) == (Verdict.PASS, Decision.PROCEED)
    said = [json.loads(line) for line in lines(stage)]
    assert [(s["what"], s["run"]) for s in said] == [
        ("opened", 1), ("sealed", 1), ("opened", 2), ("sealed", 2)
    ]  # fmt: skip
    assert judged.campaign.opened_sha256


def test_a_line_that_a_crash_tore_is_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = failed(tmp_path, monkeypatch)
    with listed(stage).open("ab") as stream:
        stream.write(b'{"as_of":"2026-')
    stage.draw = lambda pair, attempt: 0.1 * (-1) ** pair
    assert stage.run().judged.verdict.verdict is Verdict.PASS
    assert len(lines(stage)) == 4


def test_a_crash_before_the_line_is_written_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("kvgate.conduct.gate.note_opened", lambda *_: 1 / 0)
        stage.run()
    assert stage.bundle().is_dir()
    assert stage.run().judged.verdict.verdict is Verdict.PASS


def test_who_takes_everything_away_is_not_seen_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/campaign.md says cannot be seen: bundle, lines and reports of the newest run."""
    stage = failed(tmp_path, monkeypatch)
    without_lines(stage)
    shutil.rmtree(stage.space.reports)
    stage.draw = lambda pair, attempt: 0.1 * (-1) ** pair
    assert stage.run().judged.verdict.verdict is Verdict.PASS


def test_a_seal_that_a_crash_kept_from_being_noted_is_noted_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("kvgate.conduct.finish.note_sealed", lambda *_: 1 / 0)
        stage.run()
    assert [json.loads(line)["what"] for line in lines(stage)] == ["opened"]
    assert stage.run().judged.verdict.verdict is Verdict.PASS
    assert [json.loads(line)["what"] for line in lines(stage)] == ["opened", "sealed"]
