"""What is moved between bundles is found: single files, sets of files, and whole bundles."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kvgate.evidence.chain import follow
from kvgate.evidence.manifest import Manifest
from kvgate.evidence.verify import verify

from .conftest import MakeBundle
from .judged import write_run

SWAPS = 400


@pytest.fixture
def campaigns(tmp_path: Path, make_bundle: MakeBundle) -> Path:
    """Campaigns ``one`` and ``two``, each with three chained bundles of the same shape."""
    for number, name in enumerate(("one", "two")):
        before: str | None = None
        for run in range(1, 4):
            root = tmp_path / name / f"g{run}-001"
            before = make_bundle(root, blocks=1, previous=before, salt=10 * number + run).sha256
    return tmp_path


def _files(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _put(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)


def test_files_exchanged_between_bundles_are_found_and_named(campaigns: Path) -> None:
    chance = random.Random(5)
    bundles = sorted(campaigns.glob("*/g?-001"))
    before = {root: _files(root) for root in bundles}
    done: Counter[str] = Counter()
    while sum(done.values()) < SWAPS:
        one, two = chance.sample(bundles, 2)
        # State and manifest together with some files: what remains of the old bundle disagrees.
        names = chance.sample(sorted(before[one]), chance.randint(1, 6))
        if chance.random() < 0.5:
            names = sorted({*names, "manifest.json", "state.json"})
        changed = [name for name in names if before[one][name] != before[two][name]]
        if not changed:
            continue
        _put(one, {name: before[two][name] for name in changed})
        _put(two, {name: before[one][name] for name in changed})
        for root in (one, two):
            named = {problem.path for problem in verify(root)}
            assert named, (root, changed)
            if not {"manifest.json", "state.json"} & set(changed):
                assert named == set(changed)
        same = one.parent == two.parent
        neighbours = abs(int(one.name[1]) - int(two.name[1])) == 1
        done["chained" if same and neighbours else "campaign" if same else "other campaign"] += 1
        for root in (one, two):
            _put(root, {name: before[root][name] for name in changed})
    assert all(verify(root) == [] for root in bundles)
    assert len(done) == 3 and min(done.values()) > 30, done


def test_a_bundle_replaced_as_a_whole_is_named_by_the_gate_that_follows(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a/g1-001")
    write_run(tmp_path / "a/g1-002", run=2, before=(1, first))
    write_run(tmp_path / "b/g1-001", campaign="other")
    assert follow(tmp_path / "a/g1-002").intact == ("g1-001",)
    shutil.rmtree(tmp_path / "a/g1-001")
    shutil.copytree(tmp_path / "b/g1-001", tmp_path / "a/g1-001")
    assert verify(tmp_path / "a/g1-001") == []
    found = follow(tmp_path / "a/g1-002")
    assert [(p.path, p.kind) for p in found.problems] == [("g1-001", "swapped")]


def test_a_predecessor_that_was_changed_is_named(tmp_path: Path) -> None:
    first = write_run(tmp_path / "g1-001")
    second = write_run(tmp_path / "g1-002", run=2, before=(1, first))
    write_run(tmp_path / "g1-003", run=3, before=(2, second))
    assert follow(tmp_path / "g1-003").intact == ("g1-002", "g1-001")
    path = tmp_path / "g1-001/plan.json"
    path.chmod(0o644)
    path.write_text("{}")
    found = follow(tmp_path / "g1-003")
    assert found.intact == ("g1-002",)
    assert [(p.path, p.kind) for p in found.problems] == [("g1-001", "chain")]


def test_bundles_that_changed_places_are_named(tmp_path: Path) -> None:
    first = write_run(tmp_path / "g1-001")
    write_run(tmp_path / "g1-002", run=2, before=(1, first))
    (tmp_path / "g1-001").rename(tmp_path / "aside")
    (tmp_path / "g1-002").rename(tmp_path / "g1-001")
    (tmp_path / "aside").rename(tmp_path / "g1-002")
    for name in ("g1-001", "g1-002"):
        assert "swapped" in {p.kind for p in follow(tmp_path / name).problems}


def test_a_predecessor_that_is_not_there_is_said_and_is_no_problem(tmp_path: Path) -> None:
    first: Manifest = write_run(tmp_path / "elsewhere/g1-001")
    write_run(tmp_path / "g1-002", run=2, before=(1, first))
    found = follow(tmp_path / "g1-002")
    assert (found.problems, found.intact, found.absent) == ((), (), (first.sha256,))


@pytest.mark.parametrize("campaign", [b"", b"[]", b'{"predecessor": 3}', b"\xff", b'{"gate": []}'])
def test_hostile_words_about_the_gate_before_are_no_traceback(
    tmp_path: Path, campaign: bytes
) -> None:
    write_run(tmp_path / "g1-001")
    path = tmp_path / "g1-001/campaign.json"
    path.unlink()
    path.write_bytes(campaign)
    follow(tmp_path / "g1-001")
    assert verify(tmp_path / "g1-001")
