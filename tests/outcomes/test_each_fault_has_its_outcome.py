"""Each fault of the rehearsal ends in its own verdict, through the real path: pytest, Ansible,
processes that stream over HTTP, evidence, judge, report. Half a minute each."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvgate.evidence.verify import verify
from kvgate.rehearsal.process import start_ticks

ROOT = Path(__file__).parents[2]
CONTRACT = Path(__file__).with_name("quick.toml")


@dataclass(frozen=True)
class Ended:
    """How a run ended: pytest's exit code, what it printed, the stored verdict."""

    exit_code: int
    output: str
    verdict: dict[str, Any] | None
    bundle: Path

    def clause(self, clause: str) -> dict[str, Any]:
        assert self.verdict is not None, self.output
        return next(c for c in self.verdict["clauses"] if c["clause"] == clause)

    def conditions(self) -> set[str]:
        assert self.verdict is not None, self.output
        return {e["condition"]["name"] for e in self.verdict["exclusions"]}


def inventory(tmp_path: Path, **changes: str) -> Path:
    """The rehearsal's inventory on ports of its own."""
    engine, baseline, appliance = free_ports(3)
    text = (ROOT / "inventories/rehearsal/group_vars/all.yml").read_text()
    text = re.sub(r"kvgate_engine_port: \d+", f"kvgate_engine_port: {engine}", text)
    stores = f"kvgate_store_ports: {{baseline: {baseline}, appliance: {appliance}}}"
    text = re.sub(r"kvgate_store_ports: .*", stores, text)
    for old, new in changes.items():
        text = re.sub(rf"{old}: \S+", f"{old}: {new}", text)
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars/all.yml").write_text(text)
    (folder / "hosts.yml").write_text((ROOT / "inventories/rehearsal/hosts.yml").read_text())
    return folder


def command(tmp_path: Path, faults: Sequence[str]) -> list[str]:
    argv = [
        *(sys.executable, "-m", "pytest", "-m", "gate3", "-q", "-p", "no:cacheprovider"),
        *("--inventory", str(inventory(tmp_path)), "--contract", str(CONTRACT)),
        *("--campaigns", str(tmp_path / "campaigns"), "--campaign", "quick"),
    ]
    for fault in faults:
        argv += ["--fault", fault]
    return [*argv, str(ROOT / "gates")]


def run(tmp_path: Path, *faults: str) -> Ended:
    done = subprocess.run(
        command(tmp_path, faults),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ended(tmp_path, done.returncode, done.stdout + done.stderr)


def ended(tmp_path: Path, code: int, output: str) -> Ended:
    bundle = tmp_path / "campaigns/quick/g3-001"
    stored = bundle / "verdict.json"
    verdict = json.loads(stored.read_text()) if stored.exists() else None
    assert "Traceback" not in output, output
    assert no_process_left(tmp_path), output
    return Ended(code, output, verdict, bundle)


def no_process_left(tmp_path: Path) -> bool:
    """No engine or store that the run recorded still lives; they end within moments."""
    run_dir = tmp_path / "campaigns/quick/run"
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        records = [json.loads(p.read_text()) for p in run_dir.glob("*.json")]
        if not any(start_ticks(r["pid"]) == r["start_ticks"] for r in records):
            return True
        time.sleep(0.1)
    return False


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that are free now; held together so that they differ."""
    with ExitStack() as held:
        found = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return tuple(found)


def test_a_healthy_appliance_passes(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("PASS", "PROCEED")
    assert result.verdict["rehearsal"] is True
    assert verify(result.bundle) == []
    assert str(result.bundle / "verdict.json") in result.output


def test_a_slow_tier_fails_and_stops_the_loss(tmp_path: Path) -> None:
    result = run(tmp_path, "slow-tier")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("FAIL", "STOP-LOSS")
    figure = result.clause("G3.1")["figures"][0]
    assert figure["threshold"] == 0.25
    assert figure["value"] < 0.25
    assert "G3.1 FAIL" in result.output
    assert "threshold 25 %" in result.output


def test_wrong_answers_fail_without_a_retest(tmp_path: Path) -> None:
    result = run(tmp_path, "wrong-answers=0.3")
    assert result.exit_code == 1
    assert result.clause("G3.5")["verdict"] == "FAIL"
    assert result.verdict is not None
    assert result.verdict["decision"] == "STOP-LOSS"


def test_errors_that_only_the_appliance_has_fail(tmp_path: Path) -> None:
    result = run(tmp_path, "error-events@appliance")
    assert result.exit_code == 1
    assert result.clause("G3.6")["verdict"] == "FAIL"
    assert "error_event" in result.output


def test_streams_truncated_in_both_arms_are_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "truncated-streams@baseline+appliance")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("INVALID", "RERUN")
    assert "requests_finished" in result.conditions()


def test_a_tier_that_is_never_asked_is_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "never-hits")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "declared_source" in result.conditions()


def test_a_store_that_lost_what_it_acknowledged_fails(tmp_path: Path) -> None:
    result = run(tmp_path, "store-misses")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "FAIL"


def test_a_warm_baseline_is_invalid(tmp_path: Path) -> None:
    result = run(tmp_path, "warm-baseline")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "engine_cache_cold" in result.conditions()


@pytest.mark.parametrize("fault", ["engine-dies", "engine-restart"])
def test_an_engine_that_dies_or_restarts_is_invalid(tmp_path: Path, fault: str) -> None:
    result = run(tmp_path, fault)
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID"
    assert "engine_alive" in result.conditions()


def test_noisy_blocks_are_inconclusive(tmp_path: Path) -> None:
    result = run(tmp_path, "noisy=0.6")
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("INCONCLUSIVE", "EXTEND")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_keeps_partial_evidence(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        command(tmp_path, ()), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "cold_restore@8" in line and "pair 1" in line:
                break
        process.send_signal(number)
        said.append(process.stdout.read())
    result = ended(tmp_path, process.returncode, "".join(said))
    assert result.exit_code != 0
    assert result.verdict is None
    state = json.loads((result.bundle / "state.json").read_text())
    assert state["state"] == "partial"
    assert "stopped by" in result.output
