"""The package that is copied to other hosts, its Python, and the command that runs it there."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

import kvgate
from kvgate.drive.agents import HOST_AGENT, LOAD_AGENT, package, ssh_command
from kvgate.drive.channel import Channel
from kvgate.errors import CannotMeasure

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "playbooks" / "roles" / "load_client" / "files" / "check_python.py"
LOGIN = {
    "address": "198.18.0.31", "port": "2222", "user": "kvgate", "key_file": "/keys/id",
    "ssh_args": "-o StrictHostKeyChecking=no -o 'UserKnownHostsFile=/lab one/known_hosts'",
    "python": "/opt/py", "archive": "/home/k v/.kvgate/k.zip",
}  # fmt: skip


def alone(archive: Path, *arguments: str) -> list[str]:
    """Python with nothing but the archive and its own library."""
    return ["env", f"PYTHONPATH={archive}", sys.executable, "-S", *arguments]


def test_the_same_sources_are_the_same_archive_and_hold_what_measures_alone(tmp_path: Path) -> None:
    first, second = package(tmp_path / "a"), package(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    names = set(zipfile.ZipFile(first).namelist())
    assert {"kvgate/load/agent.py", "kvgate/observe/agent.py", "kvgate/talk.py"} <= names
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert rooms == {"load", "observe", "evidence"}


def test_an_engine_host_needs_python_alone(tmp_path: Path) -> None:
    archive = package(tmp_path)
    with closing(Channel("e", alone(archive, "-m", HOST_AGENT), tmp_path / "log")) as channel:
        channel.say("observe", period_s=0.05, pids=[])
        channel.wait_for("observing", 20.0)
        channel.say("end")
        channel.wait_for("observed", 20.0)
        assert channel.wait_for("looks", 0.0)["good_ns"]


def test_a_load_client_takes_nothing_of_ours_but_the_archive(tmp_path: Path) -> None:
    archive = package(tmp_path)
    script = (
        f"import sys, {LOAD_AGENT}\n"
        "print({m.__file__.split('.zip')[0] for n, m in sys.modules.items()"
        " if n.startswith('kvgate')})\n"
        "print({n.split('.')[0] for n, m in sys.modules.items()"
        " if 'site-packages' in str(getattr(m, '__file__', ''))})"
    )
    done = subprocess.run(
        ["env", f"PYTHONPATH={archive}", "PYTHONSAFEPATH=1", sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    ours, others = (ast.literal_eval(line) for line in done.stdout.splitlines())
    assert ours == {str(archive.with_suffix(""))}
    assert "msgspec" in others
    assert others <= {"msgspec", "typing_extensions", "_distutils_hack"}


def test_what_observes_is_python_3_10(tmp_path: Path) -> None:
    script = f"import sys, {HOST_AGENT}\nprint(*[n for n in sys.modules if n.startswith('kvgate')])"
    done = subprocess.run(
        alone(package(tmp_path), "-c", script), capture_output=True, text=True, check=True
    )
    root = Path(kvgate.__file__).parent.parent
    newer = {"Self", "StrEnum", "UTC", "tomllib", "LiteralString", "assert_never", "ExceptionGroup"}
    for name in done.stdout.split():
        path = root / f"{name.replace('.', '/')}.py"
        path = path if path.exists() else root / name.replace(".", "/") / "__init__.py"
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        # What only a type checker reads is not run.
        checked = [n for n in ast.walk(tree) if isinstance(n, ast.If)
                   and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"]  # fmt: skip
        skipped = {id(inner) for block in checked for inner in ast.walk(block)}
        taken = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in skipped
            for alias in node.names
        }
        assert not taken & newer, f"{name} takes {taken & newer}"


def test_a_python_that_lacks_something_is_said_in_one_line_with_the_remedy() -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(CHECK), "load"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "has no msgspec" in done.stderr and "kvgate_agent_python" in done.stderr
    for argv in (
        [sys.executable, str(CHECK), "load"],
        [sys.executable, "-S", str(CHECK), "observe"],
    ):
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_no_inventory_switches_the_check_of_host_keys_off() -> None:
    command = ssh_command(LOGIN, LOAD_AGENT)
    options = [command[i + 1] for i, word in enumerate(command) if word == "-o"]
    keys = [o for o in options if o.startswith("StrictHostKeyChecking=")]
    assert keys[0] == "StrictHostKeyChecking=yes", "ssh takes the first value of an option"
    assert "UserKnownHostsFile=/lab one/known_hosts" in options
    assert "BatchMode=yes" in options
    assert command[-3:-1] == ["--", "198.18.0.31"]
    assert "'PYTHONPATH=/home/k v/.kvgate/k.zip'" in command[-1]
    assert command[command.index("-p") + 1] == "2222"


def test_a_missing_ssh_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="cannot be started: No such file"):
        Channel("load-1", ["/nowhere/ssh"], tmp_path / "log")
