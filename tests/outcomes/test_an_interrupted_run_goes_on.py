"""Killed in the middle and run again: the same command goes on and ends in a sealed PASS."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from pathlib import Path

from kvgate.evidence.verify import verify

from .play import begun, command, ended, follow, no_process_left, until


def digests(bundle: Path) -> dict[str, str]:
    """SHA-256 of every file of every measured block."""
    return {
        str(path.relative_to(bundle)): hashlib.sha256(path.read_bytes()).hexdigest()
        for block in bundle.glob("blocks/*/block.json")
        for path in block.parent.iterdir()
    }


def test_a_killed_run_goes_on_and_measures_each_pair_once(tmp_path: Path) -> None:
    argv = command(tmp_path, ())
    bundle = tmp_path / "campaigns/quick/g3-001"
    with begun(argv) as (process, said):
        until(process, said, "pair 1: starting")
        until(process, said, "pair 1: starting")
        # The second session of the first pair: one half is whole, the other one is not.
        until(process, said, "pair 1", "cold_restore@8")
        process.kill()
    assert process.returncode == -signal.SIGKILL
    kept = digests(bundle)
    assert kept
    assert json.loads((bundle / "state.json").read_text())["state"] == "open"
    assert no_process_left(tmp_path)

    result = follow(tmp_path, argv)
    assert result.exit_code == 0, result.output
    assert "continuing g3-001 at session 2 of 7" in result.output
    assert "interrupted once, 2 granted" in result.output
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("PASS", "PROCEED")
    assert (len(result.verdict["interruptions"]), result.verdict["pairs_measured"]) == (1, 3)
    assert result.conditions() == {"interrupted"}
    assert digests(bundle).items() >= kept.items()
    assert verify(bundle) == []
    plan = json.loads((bundle / "plan.json").read_text())
    ended_sessions = [s for s in plan["sessions"] if s["state"] == "ended"]
    whole = Counter(s["pair"] for s in ended_sessions)
    assert whole == {None: 1, 0: 2, 1: 2, 2: 2}
    assert not list((tmp_path / "campaigns/quick").glob("g3-002"))


def test_an_impatient_person_still_leaves_nothing_running(tmp_path: Path) -> None:
    """Ctrl-C, and again while engines and stores are being stopped."""
    with begun(command(tmp_path, ())) as (process, said):
        until(process, said, "pair 1", "cold_restore@8")
        process.send_signal(signal.SIGINT)
        until(process, said, "stopping engines and stores")
        # Ansible is starting up by now; where it is that far does not matter.
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        said.append(process.stdout.read())
    result = ended(tmp_path, process.returncode, "".join(said))
    assert result.exit_code != 0
    assert "stopping what was started; once more leaves it running" in result.output
    assert "the same command goes on at the next session" in result.output
    assert json.loads((result.bundle / "state.json").read_text())["state"] == "partial"
