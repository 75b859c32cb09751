"""report: every form of a sealed bundle, and never one of a bundle that was changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvgate.adjudicate import TIMES
from kvgate.campaign.complete import OPENED
from kvgate.conduct.openings import note_opened
from kvgate.evidence.journal import Journal
from kvgate.evidence.verify import verify
from kvgate.report.system import missing_system_libraries

from .conftest import Run, write_g1


def test_every_asked_form_is_written_and_named(kvgate: Run, bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = kvgate("report", bundle, "--format", "html", "--format", "junit", "--format", "csv",
                   "--lang", "zh", "--out", out)  # fmt: skip
    assert ended.code == 0
    names = ["g1-001.zh.html", "g1-001.junit.xml", "g1-001.blocks.csv"]
    assert ended.out.splitlines() == [str(out / n) for n in names]
    assert "到货验收" in (out / "g1-001.zh.html").read_text()
    suite = ElementTree.parse(out / "g1-001.junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("7", "0")
    assert (out / "g1-001.blocks.csv").read_text().startswith("block,")


@pytest.mark.skipif(bool(missing_system_libraries()), reason="Pango is not installed here")
def test_several_runs_make_one_document_beside_them(kvgate: Run, campaign: Path) -> None:
    first, second = write_g1(campaign), write_g1(campaign, run=2)
    ended = kvgate("report", first, second, "--lang", "en")
    assert ended.code == 0
    path = campaign / "reports" / "g1-001+g1-002.en.pdf"
    assert ended.out.splitlines() == [str(path)]
    assert path.read_bytes().startswith(b"%PDF")


def test_a_bundle_that_is_not_what_was_sealed_has_no_report(kvgate: Run, bundle: Path) -> None:
    facts = bundle / "facts" / "rehearsal-engines.json"
    facts.chmod(0o644)
    facts.write_text(facts.read_text().replace("16000000", "17000000"))
    ended = kvgate("report", bundle, "--format", "junit")
    assert (ended.code, ended.out, ended.err.count("\n")) == (11, "", 1)
    assert not (bundle.parent / "reports").exists()


def test_an_unsealed_run_is_reported_as_one_that_counts_for_nothing(
    kvgate: Run, campaign: Path
) -> None:
    ended = kvgate("report", write_g1(campaign, seal=False), "--format", "junit")
    assert ended.code == 0
    assert "counts for nothing" in ended.err


def test_a_folder_that_cannot_be_made_is_one_line(
    kvgate: Run, bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ended = kvgate("report", bundle, "--format", "csv", "--out", tmp_path / "file" / "below")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def ended(campaign: Path) -> Path:
    """A G1 run that was measured to its end, in its campaign's list, and not sealed."""
    root = write_g1(campaign, seal=False)
    facts = json.loads((root / "campaign.json").read_text())
    plan = json.loads((root / "plan.json").read_text())
    line = note_opened(campaign, 1, 1, facts["as_of"])
    with Journal.open_existing(root) as journal:
        journal.write_json("campaign.json", facts | {"opened_sha256": line})
        journal.write_json("plan.json", plan | {"ended": "target"})
        journal.write_json(TIMES, {"ended_at": "2026-03-01T09:00:00+00:00"})
    return root


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything in a folder; a file that came and went leaves its folder's time."""
    return {
        str(p.relative_to(folder)): (p.lstat().st_mtime_ns, p.lstat().st_size, p.lstat().st_mode)
        for p in (folder, *folder.rglob("*"))
    }


def test_a_run_that_was_broken_off_behind_its_measurement_is_sealed_first(
    kvgate: Run, campaign: Path
) -> None:
    root = ended(campaign)
    said = kvgate("report", root, "--format", "junit")
    assert (said.code, "judged and sealed now" in said.err) == (0, True)
    assert verify(root) == []
    assert '"what":"sealed"' in (campaign / OPENED).read_text()
    assert kvgate("judge", root).code == 0


@pytest.mark.parametrize("lacks", ["ended", "ended_at"])
def test_a_run_that_does_not_say_twice_that_it_ended_is_not_sealed(
    kvgate: Run, campaign: Path, lacks: str
) -> None:
    root = ended(campaign)
    path = root / ("plan.json" if lacks == "ended" else TIMES)
    said = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in said.items() if key != lacks}))
    assert "counts for nothing" in kvgate("report", root, "--format", "junit").err
    assert verify(root)


@pytest.mark.parametrize("beside", ["nothing", "another list", "another campaign's name"])
def test_a_copy_of_an_unsealed_run_is_not_sealed(
    kvgate: Run, campaign: Path, tmp_path: Path, beside: str
) -> None:
    folder = tmp_path / "copies" / ("other" if beside == "another campaign's name" else "demo")
    copy = folder / "g1-001"
    shutil.copytree(ended(campaign), copy)
    if beside == "another list":
        note_opened(folder, 1, 1, "2026-02-01T09:00:00+00:00")
    elif beside == "another campaign's name":
        shutil.copyfile(campaign / OPENED, folder / OPENED)
    before = state_of(folder)
    said = kvgate("report", copy, "--format", "junit", "--out", tmp_path / "out")
    assert (said.code, said.err.count("\n")) == (0, 1)
    assert "not sealed, and not in the campaign that opened it" in said.err
    assert "run `kvgate report` on it there" in said.err
    assert state_of(folder) == before


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("command", ["judge", "verify", "report"])
def test_a_read_only_copy_is_read_and_nothing_is_written_beside_it(
    kvgate: Run, campaign: Path, tmp_path: Path, command: str, sealed: bool
) -> None:
    folder = tmp_path / "received"
    copy = folder / "g1-001"
    shutil.copytree(write_g1(campaign) if sealed else ended(campaign), copy)
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        before = state_of(folder)
        out = ("--format", "html", "--format", "csv", "--out", tmp_path / "out")
        said = kvgate(command, copy, *(out if command == "report" else ()))
        assert state_of(folder) == before
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)
    assert said.code == (0 if sealed or command == "report" else 11)
    assert "Permission" not in said.err
