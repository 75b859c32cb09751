"""The role's programs as modules, and a real-engine home whose servers are small stand-ins."""

from __future__ import annotations

import importlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "playbooks" / "roles" / "real_engine" / "files"
STAND_IN = Path(__file__).resolve().parent / "stand_in_server.py"


def module(name: str) -> ModuleType:
    """A module of the role, which is no package: its folder is put on the path as its main does."""
    if str(FILES) not in sys.path:
        sys.path.insert(0, str(FILES))
    return importlib.import_module(name)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: the usual temporary folder may be memory, with no page cache to drop."""
    parent = ROOT / "var"
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=parent))
    yield folder
    shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Answer:
    code: int
    report: dict[str, Any]
    said: str


@dataclass
class Home:
    """A folder as the installer leaves it, with stand-ins for vLLM and LMCache."""

    path: Path
    run_dir: Path
    engine_port: int = field(default_factory=free_port)
    store_port: int = field(default_factory=free_port)

    def behave(self, **behaviour: object) -> None:
        (self.path / "venv" / "bin" / "behaviour.json").write_text(json.dumps(behaviour))

    def ctl(self, action: str, *arguments: str) -> Answer:
        done = subprocess.run(
            [
                *(sys.executable, str(FILES / "engine_ctl.py"), action),
                *("--run-dir", str(self.run_dir), *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        report = json.loads(done.stdout) if done.stdout.strip() else {}
        return Answer(done.returncode, report, done.stderr.strip())

    def start(self, arm: str = "appliance", *arguments: str) -> Answer:
        return self.ctl(
            "start",
            *("--arm", arm, "--home", str(self.path), "--deadline-s", "15"),
            *("--engine-port", str(self.engine_port), "--store-port", str(self.store_port)),
            *("--cold-deadline-s", "0.6"),
            *arguments,
        )


@pytest.fixture
def home(disk: Path) -> Iterator[Home]:
    path = disk / "home"
    (path / "venv" / "bin").mkdir(parents=True)
    (path / "model").mkdir()
    for program in ("python", "lmcache"):
        script = path / "venv" / "bin" / program
        script.write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
        script.chmod(0o755)
    versions = {"vllm": "0.0-stand-in", "lmcache": "0.0-stand-in"}
    (path / "kvgate-real-engine.json").write_text(json.dumps(versions))
    model = {"sha256": "0" * 64, "kv_bytes_per_token": 1024}
    (path / "model" / "kvgate-model.json").write_text(json.dumps(model))
    one = Home(path, disk / "run")
    one.behave()
    yield one
    ended = one.ctl("stop")
    assert ended.code == 0, ended.said
