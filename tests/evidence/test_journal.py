"""An open bundle is whole or says that it is not."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.journal import Journal
from kvgate.evidence.seal import read_state, seal
from kvgate.evidence.verify import verify

from .conftest import MakeBundle, fill


def _write_and_seal(root: Path) -> None:
    with Journal(root) as journal:
        fill(journal, blocks=2, rehearsal=True)
        journal.seal(previous_manifest_sha256=None, kvgate_version="0.0.test")


def _in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(3)
    return pid


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _check_after_crash(root: Path) -> str:
    state = read_state(root)
    if state is None:
        return "absent"
    bundle = load_bundle(root)
    assert bundle.state == state.state
    for block in bundle.blocks:
        assert block.block is not None or block.requests_path is None
    if state.state == "sealed":
        assert verify(root) == []
        return "sealed"
    assert verify(root) != []
    with Journal.open_existing(root) as journal:
        assert set(journal.finished_blocks()) == {b.n for b in bundle.blocks if b.block is not None}
        journal.write_bytes("contract.toml", b"# again\n")
        journal.write_json("campaign.json", {"rehearsal": True})
        for n in range(2):
            if n not in journal.finished_blocks():
                journal.discard_block(n)
        journal.seal(previous_manifest_sha256=None, kvgate_version="0.0.test")
    assert verify(root) == []
    assert load_bundle(root).interruptions != ()
    return state.state


def test_a_kill_between_any_two_system_calls_leaves_no_false_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A kill takes no page from the kernel: the order of the calls counts here, not the device.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    seen: dict[str, int] = {}
    for stop_at in range(400):
        root = tmp_path / str(stop_at)
        pid = _in_child(lambda stop_at=stop_at, root=root: _until(stop_at, root))  # type: ignore[misc]
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        ending = _check_after_crash(root)
        seen[ending] = seen.get(ending, 0) + 1
    else:
        pytest.fail("the writer never came to its end")
    assert seen["open"] > 50
    assert seen["partial"] + seen.get("absent", 0) >= 1
    assert seen["sealed"] >= 1


def _until(stop_at: int, root: Path) -> None:
    left = stop_at

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    real_open, real_fsync, real_rename = os.open, os.fsync, Path.rename

    def opened(*args: object, **kwargs: object) -> int:
        step()
        return real_open(*args, **kwargs)  # type: ignore[arg-type]

    def synced(descriptor: int) -> None:
        step()
        real_fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        step()
        return real_rename(path, target)

    os.open, os.fsync = opened, synced  # type: ignore[assignment]
    Path.rename = renamed  # type: ignore[assignment,method-assign]
    with Journal(root) as journal:
        journal.write_bytes("contract.toml", b"")
        journal.write_json("campaign.json", {"rehearsal": True})
        journal.block_dir(0)
        journal.finish_block(0, {"arm": "baseline"})
        journal.write_json("verdict.json", {})
        journal.seal(previous_manifest_sha256=None, kvgate_version="0.0.test")


def test_a_kill_from_outside_at_a_random_moment_leaves_no_false_seal(tmp_path: Path) -> None:
    chance = random.Random(7)
    for attempt in range(20):
        root = tmp_path / str(attempt)
        pid = _in_child(lambda root=root: _write_and_seal(root))  # type: ignore[misc]
        try:
            wanted = chance.randrange(14)
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                if sum(1 for _ in root.rglob("*")) >= wanted:
                    break
            else:
                pid = 0
        finally:
            if pid:
                _end(pid)
        _check_after_crash(root)


def test_a_full_disk_is_cannot_measure_and_leaves_a_partial_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "b"
    journal = Journal(root)
    fill(journal, blocks=1, rehearsal=True)

    def full(descriptor: int, data: object) -> int:  # simulated: the device refuses every write
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CannotMeasure, match=r"disk is full.*free space"):
        journal.write_json("plan.json", {"more": "than fits"})
    monkeypatch.undo()
    journal.close()
    bundle = load_bundle(root)
    assert bundle.state == "partial"
    assert bundle.partial_reason is not None and "full" in bundle.partial_reason
    assert bundle.plan is not None and "more" not in bundle.plan
    manifest = seal(root, previous_manifest_sha256=None, kvgate_version="0.0.test")
    assert manifest.partial_reason == bundle.partial_reason
    assert load_bundle(root).partial_reason == bundle.partial_reason
    assert verify(root) == []


def test_too_little_space_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with Journal(tmp_path / "b") as journal:
        journal.ensure_space(1)
        with pytest.raises(CannotMeasure, match=r"/b: .*bytes are free.*another disk"):
            journal.ensure_space(1 << 62)


def test_an_exception_marks_the_bundle_partial_with_its_reason(tmp_path: Path) -> None:
    fault = CannotMeasure("engine is gone", where="node1:8000", remedy="start it")
    with pytest.raises(CannotMeasure), Journal(tmp_path / "b"):
        raise fault
    bundle = load_bundle(tmp_path / "b")
    assert bundle.state == "partial"
    assert bundle.partial_reason is not None and "engine is gone" in bundle.partial_reason


def test_a_block_without_its_block_json_is_partial_and_can_be_measured_anew(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "b") as journal:
        (journal.block_dir(0) / "requests.parquet").write_bytes(b"half a file")
        [block] = load_bundle(tmp_path / "b").blocks
        assert (block.block, block.requests_path) == (None, None)
        journal.discard_block(0)
        assert load_bundle(tmp_path / "b").blocks == ()


def test_a_finished_block_cannot_change(tmp_path: Path) -> None:
    with Journal(tmp_path / "b") as journal:
        journal.block_dir(3)
        journal.finish_block(3, {"arm": "appliance"})
        for change in (
            lambda: journal.block_dir(3),
            lambda: journal.finish_block(3, {}),
            lambda: journal.discard_block(3),
            lambda: journal.write_bytes("blocks/3/host.parquet", b""),
        ):
            with pytest.raises(UsageError, match="cannot change"):
                change()


@pytest.mark.parametrize(
    "rel",
    ["/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "", "a\\b", "a\nb", "C:x",
     "manifest.json", "state.json", "signatures/me.sig", "blocks/x/host.parquet",
     "blocks/0/block.json", "blocks/0", "x" * 2000],
)  # fmt: skip
def test_a_journal_writes_only_inside_its_folder_and_layout(tmp_path: Path, rel: str) -> None:
    with Journal(tmp_path / "b") as journal, pytest.raises(UsageError):
        journal.write_bytes(rel, b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b"]


def test_one_writer_a_bundle(tmp_path: Path) -> None:
    with Journal(tmp_path / "b"), pytest.raises(UsageError, match="another run"):
        Journal.open_existing(tmp_path / "b")


def test_a_sealed_bundle_is_never_opened_sealed_or_overwritten_again(
    tmp_path: Path, make_bundle: MakeBundle
) -> None:
    make_bundle(tmp_path / "b")
    with pytest.raises(UsageError, match="sealed"):
        Journal.open_existing(tmp_path / "b")
    with pytest.raises(UsageError, match="once"):
        seal(tmp_path / "b", previous_manifest_sha256=None, kvgate_version="1")
    with pytest.raises(UsageError, match="not empty"):
        Journal(tmp_path / "b")
    assert all(p.stat().st_mode & 0o222 == 0 for p in (tmp_path / "b").rglob("*") if p.is_file())


@pytest.mark.parametrize("campaign", [None, {}, {"rehearsal": "no"}, {"rehearsal": None}])
def test_no_seal_without_saying_whether_it_is_a_rehearsal(
    tmp_path: Path, campaign: dict[str, object] | None
) -> None:
    with Journal(tmp_path / "b") as journal:
        journal.write_bytes("contract.toml", b"")
        if campaign is not None:
            journal.write_json("campaign.json", campaign)
        with pytest.raises(CannotMeasure, match="rehearsal"):
            journal.seal(previous_manifest_sha256=None, kvgate_version="1")


def test_no_seal_over_a_link_or_without_a_contract(tmp_path: Path) -> None:
    with Journal(tmp_path / "b") as journal:
        journal.write_json("campaign.json", {"rehearsal": False})
        with pytest.raises(CannotMeasure, match=r"contract\.toml"):
            journal.seal(previous_manifest_sha256=None, kvgate_version="1")
        journal.write_bytes("contract.toml", b"")
        (journal.root / "facts").symlink_to("/etc")
        with pytest.raises(CannotMeasure, match="link"):
            journal.seal(previous_manifest_sha256=None, kvgate_version="1")


def test_a_disk_that_refused_another_tool_is_named_in_the_bundle(tmp_path: Path) -> None:
    root = tmp_path / "b"
    with pytest.raises(OSError), Journal(root):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")
    state = read_state(root)
    assert state is not None
    assert state.state == "partial"
    assert "the disk is full" in str(state.reason)
