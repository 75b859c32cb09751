"""report: every form of a sealed bundle, and never one of a bundle that was changed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvgate.adjudicate import TIMES
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


def test_a_run_that_was_broken_off_behind_its_measurement_is_sealed_first(
    kvgate: Run, campaign: Path
) -> None:
    root = write_g1(campaign, seal=False)
    ended = kvgate("report", root, "--format", "junit")
    assert "counts for nothing" in ended.err
    assert verify(root)  # its measurement had not ended
    with Journal.open_existing(root) as journal:
        journal.write_json(TIMES, {"ended_at": "2026-03-01T09:00:00+00:00"})
    ended = kvgate("report", root, "--format", "junit")
    assert (ended.code, "judged and sealed now" in ended.err) == (0, True)
    assert verify(root) == []
    assert kvgate("judge", root).code == 0
