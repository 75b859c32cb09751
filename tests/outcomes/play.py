"""Plays one gate in a process of its own, as a person would: pytest on the rehearsal."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def command(
    tmp_path: Path, faults: Sequence[str], *, gate: int = 3, contract: Path = CONTRACT
) -> list[str]:
    argv = [
        *(sys.executable, "-m", "pytest", "-m", f"gate{gate}", "-q", "-p", "no:cacheprovider"),
        *("--inventory", str(inventory(tmp_path)), "--contract", str(contract)),
        *("--campaigns", str(tmp_path / "campaigns"), "--campaign", "quick"),
    ]
    for fault in faults:
        argv += ["--fault", fault]
    return [*argv, str(ROOT / "gates")]


def run(tmp_path: Path, *faults: str, gate: int = 3, contract: Path = CONTRACT) -> Ended:
    return follow(tmp_path, command(tmp_path, faults, gate=gate, contract=contract), gate)


def follow(tmp_path: Path, argv: list[str], gate: int = 3) -> Ended:
    done = subprocess.run(
        argv,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ended(tmp_path, done.returncode, done.stdout + done.stderr, gate)


def ended(tmp_path: Path, code: int, output: str, gate: int = 3) -> Ended:
    bundle = tmp_path / f"campaigns/quick/g{gate}-001"
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


@contextmanager
def begun(argv: list[str]) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A run that goes on beside the test, with the lines it said; ended by its pid at the latest
    when the test leaves."""
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        try:
            yield process, []
        finally:
            if process.poll() is None:
                process.kill()


def until(process: subprocess.Popen[str], said: list[str], *words: str) -> None:
    """Read the run's lines until one has all ``words``."""
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if all(word in line for word in words):
            return
    raise AssertionError(f"the run never said {words}: {''.join(said)}")
