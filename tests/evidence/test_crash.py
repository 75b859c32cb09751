"""What is written after the seal: a kill at any call leaves the old file, the new one, or none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.evidence.signatures import sign, signature_states
from kvgate.evidence.verify import verify
from kvgate.report.render import write_file

from .conftest import MakeBundle
from .judged import make_key


def _killed_at(stop_at: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a child that dies before its ``stop_at``-th open, write, fsync or rename;
    whether it died (else it came to its end)."""
    pid = os.fork()
    if pid == 0:
        try:
            _count_down(stop_at)
            work()
            os._exit(0)
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _count_down(left: int) -> None:
    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def before(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            step()
            return real(*args, **kwargs)

        return call

    for name in ("open", "write", "fsync"):
        setattr(os, name, before(getattr(os, name)))
    for name in ("open", "rename", "replace", "mkdir", "write_bytes"):
        setattr(Path, name, before(getattr(Path, name)))


def test_a_kill_while_signing_leaves_no_half_signature(
    tmp_path: Path, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    allowed = f"buyer {make_key(tmp_path / 'key')}".encode()
    ends: set[str] = set()
    for stop_at in range(100):
        root = tmp_path / str(stop_at)
        make_bundle(root, blocks=1)
        killed = _killed_at(stop_at, lambda root=root: sign(root, tmp_path / "key", "buyer"))  # type: ignore[misc]
        [state] = signature_states(root, ["buyer"], allowed)
        assert state.fault in ("", "unsigned")
        assert verify(root) == []
        ends.add(state.fault)
        if not killed:
            assert state.fault == ""
            break
    else:
        pytest.fail("signing never came to its end")
    assert ends == {"", "unsigned"}


@pytest.mark.parametrize("before", [None, b"the report before"])
def test_a_kill_while_a_report_is_written_leaves_the_old_one_or_the_new(
    tmp_path: Path, before: bytes | None
) -> None:
    new = b"x" * 100_000
    ends: set[bytes | None] = set()
    for stop_at in range(100):
        out = tmp_path / str(stop_at) / "report.pdf"
        if before is not None:
            out.parent.mkdir()
            out.write_bytes(before)
        killed = _killed_at(stop_at, lambda out=out: write_file(out, new))  # type: ignore[misc]
        found = out.read_bytes() if out.exists() else None
        assert found in (before, new)
        ends.add(found)
        if not killed:
            assert found == new
            break
    else:
        pytest.fail("writing never came to its end")
    assert ends == {before, new}
