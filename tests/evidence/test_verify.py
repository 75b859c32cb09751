"""Any change to a sealed bundle is found and named."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.canonical import canonical_json
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.manifest import chained, parse_manifest
from kvgate.evidence.verify import KINDS, Problem, verify

from .conftest import MakeBundle

MUTATIONS = 2_100


def _put(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _restore(root: Path, files: dict[str, bytes]) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        rel = path.relative_to(root).as_posix()
        if path.is_symlink() or (path.is_file() and rel not in files):
            path.unlink()
        elif path.is_dir() and (rel in files or not any(path.iterdir())):
            path.rmdir()
    for rel, data in files.items():
        path = root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            _put(path, data)


class Mutator:
    """Makes one random change to a bundle; returns its name and the path that must be named."""

    def __init__(self, root: Path, other: Path, chance: random.Random) -> None:
        self.root = root
        self.other = other
        self.chance = chance
        self.names = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())

    def mutate(self) -> tuple[str, str]:
        kinds: list[Callable[[str], str | None]] = [
            self.flip, self.truncate, self.append, self.remove, self.rename, self.swap, self.link,
            self.folder, self.foreign, self.add_file, self.add_folder, self.manifest_field,
            self.manifest_order, self.manifest_drop, self.manifest_twice, self.whitespace,
        ]  # fmt: skip
        while True:
            kind = self.chance.choice(kinds)
            name = kind(self.chance.choice(self.names))
            if name is not None:
                return kind.__name__, name

    def flip(self, name: str) -> str | None:
        data = bytearray((self.root / name).read_bytes())
        data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        _put(self.root / name, bytes(data))
        return name

    def truncate(self, name: str) -> str | None:
        data = (self.root / name).read_bytes()
        _put(self.root / name, data[: self.chance.randrange(len(data))])
        return name

    def append(self, name: str) -> str | None:
        _put(self.root / name, (self.root / name).read_bytes() + self.chance.randbytes(3))
        return name

    def remove(self, name: str) -> str | None:
        (self.root / name).unlink()
        return name

    def rename(self, name: str) -> str | None:
        (self.root / name).rename(self.root / f"{name}.bak")
        return name

    def swap(self, name: str) -> str | None:
        mate = self.chance.choice(self.names)
        one, two = (self.root / name).read_bytes(), (self.root / mate).read_bytes()
        if one == two:
            return None
        _put(self.root / name, two)
        _put(self.root / mate, one)
        return name

    def link(self, name: str) -> str | None:
        away = self.other.parent / "away"
        _put(away, (self.root / name).read_bytes())
        (self.root / name).unlink()
        (self.root / name).symlink_to(away)
        return name

    def folder(self, name: str) -> str | None:
        (self.root / name).unlink()
        (self.root / name).mkdir()
        return name

    def foreign(self, name: str) -> str | None:
        data = (self.other / name).read_bytes()
        if data == (self.root / name).read_bytes():
            return None
        _put(self.root / name, data)
        return name

    def add_file(self, name: str) -> str | None:
        path = (self.root / name).with_name(f"extra{self.chance.randrange(9)}.json")
        path.write_bytes(b"{}")
        return path.relative_to(self.root).as_posix()

    def add_folder(self, name: str) -> str | None:
        path = (self.root / name).with_name("empty")
        path.mkdir()
        return path.relative_to(self.root).as_posix()

    def _edit(self, change: Callable[[dict[str, object]], bool]) -> str | None:
        value = json.loads((self.root / "manifest.json").read_bytes())
        if not change(value):
            return None
        _put(self.root / "manifest.json", canonical_json(value))
        return "manifest.json"

    def manifest_field(self, _: str) -> str | None:
        new = {"rehearsal": False, "kvgate_version": "9", "partial_reason": "x", "chain": "0" * 64,
               "previous_manifest_sha256": "1" * 64, "interruptions": ["x"], "format": "y",
               "contract_sha256": "2" * 64}  # fmt: skip
        key = self.chance.choice(sorted(new))

        def change(value: dict[str, object]) -> bool:
            value[key] = new[key]
            return True

        return self._edit(change)

    def manifest_order(self, _: str) -> str | None:
        def change(value: dict[str, object]) -> bool:
            entries = value["files"]
            assert isinstance(entries, list)
            one, two = self.chance.sample(range(len(entries)), 2)
            entries[one], entries[two] = entries[two], entries[one]
            return True

        return self._edit(change)

    def manifest_drop(self, _: str) -> str | None:
        def change(value: dict[str, object]) -> bool:
            entries = value["files"]
            assert isinstance(entries, list)
            dropped = entries.pop(self.chance.randrange(len(entries)))
            (self.root / dropped["path"]).unlink()
            return True

        return self._edit(change)

    def manifest_twice(self, _: str) -> str | None:
        def change(value: dict[str, object]) -> bool:
            entries = value["files"]
            assert isinstance(entries, list)
            entries.append(self.chance.choice(entries))
            return True

        return self._edit(change)

    def whitespace(self, _: str) -> str | None:
        name = self.chance.choice(["manifest.json", "state.json"])
        data = (self.root / name).read_bytes()
        _put(self.root / name, data.replace(b"  ", b" ", 1))
        return name


def test_thousands_of_random_mutations_are_all_found_and_named(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    root, other = tmp_path / "b", tmp_path / "other"
    make_bundle(root, blocks=1)
    make_bundle(other, blocks=1, salt=1)
    assert verify(root) == []
    before = {
        p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()
    }
    mutator = Mutator(root, other, random.Random(20))
    done: Counter[str] = Counter()
    for _ in range(MUTATIONS):
        kind, name = mutator.mutate()
        problems = verify(root)
        assert problems, (kind, name)
        # Without a readable manifest there is nothing to compare the others with.
        assert any(p.path in (name, "manifest.json") for p in problems), (kind, name, problems)
        assert name in {p.path for p in problems} or name == "manifest.json" or kind == "swap"
        assert all(p.kind in KINDS for p in problems)
        done[kind] += 1
        _restore(root, before)
    assert verify(root) == []
    assert len(done) == 16 and min(done.values()) > 20, done


def _kinds(problems: list[Problem], path: str) -> set[str]:
    return {p.kind for p in problems if p.path == path}


def test_each_kind_of_change_has_its_name(tmp_path: Path, make_bundle: MakeBundle) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    facts = (root / "facts/node1.json").read_bytes()
    _put(root / "facts/node2.json", facts)
    _put(root / "plan.json", (root / "plan.json").read_bytes()[:-5])
    (root / "verdict.json").unlink()
    (root / "ansible/stdout.txt").unlink()
    (root / "ansible/stdout.txt").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    (root / "notes.txt").write_text("hello")
    problems = verify(root)
    assert _kinds(problems, "facts/node2.json") == {"swapped"}
    assert _kinds(problems, "plan.json") == {"truncated"}
    assert _kinds(problems, "verdict.json") == {"removed"}
    assert "link" in _kinds(problems, "ansible/stdout.txt")
    assert "special" in _kinds(problems, "pipe")
    assert _kinds(problems, "notes.txt") == {"added"}


def test_a_terabyte_of_holes_is_refused_without_reading_it(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    path = root / "blocks/0/host.parquet"
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.truncate(1 << 40)
    assert _kinds(verify(root), "blocks/0/host.parquet") == {"too_large"}


@pytest.mark.parametrize("evil", ["../outside", "/etc/passwd", "a/../../outside", "facts\\x"])
def test_a_manifest_that_points_outside_is_refused(
    tmp_path: Path, make_bundle: MakeBundle, evil: str
) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    value = json.loads((root / "manifest.json").read_bytes())
    value["files"][0]["path"] = evil
    data = chained(parse_manifest(canonical_json(value), "test")).to_bytes()
    _put(root / "manifest.json", data)
    assert _kinds(verify(root), evil) == {"unsafe_path"}


def test_a_consistent_forgery_needs_the_digest_from_outside(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    true = make_bundle(tmp_path / "true")
    make_bundle(tmp_path / "forged", salt=9)
    assert verify(tmp_path / "forged") == []
    problems = verify(tmp_path / "forged", expected_manifest_sha256=true.sha256)
    assert _kinds(problems, "manifest.json") == {"swapped"}


def test_the_next_gate_holds_the_digest_of_the_one_before(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    first = make_bundle(tmp_path / "g1")
    second = make_bundle(tmp_path / "g2", previous=first.sha256)
    bundle = load_bundle(tmp_path / "g2")
    assert bundle.manifest is not None
    assert bundle.manifest.previous_manifest_sha256 == load_bundle(tmp_path / "g1").manifest_sha256
    assert second.chain != make_bundle(tmp_path / "g2-alone").chain


def test_an_unsealed_bundle_never_verifies(tmp_path: Path, make_bundle: MakeBundle) -> None:
    root = tmp_path / "b"
    make_bundle(root)
    (root / "state.json").unlink()
    assert _kinds(verify(root), "state.json") == {"removed"}
    _put(root / "state.json", b'{"format": "kvgate-bundle/1", "state": "open"}')
    assert _kinds(verify(root), "state.json") == {"not_sealed"}
    (root / "manifest.json").unlink()
    assert _kinds(verify(root), "manifest.json") == {"removed"}
    assert verify(tmp_path / "nowhere")


def test_a_rehearsal_cannot_become_acceptance_evidence(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    root = tmp_path / "b"
    make_bundle(root, rehearsal=True)
    campaign = json.loads((root / "campaign.json").read_bytes()) | {"rehearsal": False}
    _put(root / "campaign.json", canonical_json(campaign))
    assert "rehearsal" in _kinds(verify(root), "campaign.json")
    assert load_bundle(root).rehearsal is True


def test_a_copied_bundle_still_verifies(tmp_path: Path, make_bundle: MakeBundle) -> None:
    make_bundle(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    assert verify(tmp_path / "copy") == []
