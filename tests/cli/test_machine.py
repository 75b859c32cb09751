"""doctor and faults, and what every command has in common."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.cli import main
from kvgate.commands import machine
from kvgate.inventory import Inventory

from .conftest import ROOT, Run

GOLDEN = Path(__file__).parent / "golden"


def local_inventory(folder: Path, port: int) -> Path:
    """An inventory of this machine whose engine has ``port``."""
    (folder / "group_vars").mkdir(parents=True)
    hosts = "".join(
        f"    {g}:\n      hosts:\n        {g}-1:\n"
        for g in ("engines", "appliances", "load_clients")
    )
    (folder / "hosts.yml").write_text(f"all:\n  children:\n{hosts}")
    (folder / "group_vars" / "all.yml").write_text(
        "ansible_connection: local\nkvgate_rehearsal: true\nkvgate_contract: rehearsal\n"
        "kvgate_engine_role: rehearsal_engine\nkvgate_engine_host: 127.0.0.1\n"
        f"kvgate_engine_port: {port}\n"
    )
    return folder


def test_the_doctor_finds_a_port_in_use_and_says_the_remedy(kvgate: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        inventory = local_inventory(tmp_path / "inventory", port)
        ended = kvgate("doctor", "--inventory", inventory, "--campaigns", tmp_path / "none")
    assert ended.code == 11
    line = next(s for s in ended.out.splitlines() if f"port {port}" in s)
    assert line.startswith("missing")
    assert " -- " in line
    free = kvgate("doctor", "--inventory", inventory, "--json")
    checks = {c["name"]: c["ok"] for c in json.loads(free.out)["checks"]}
    assert checks[f"port {port}"] is True
    assert checks["ansible-playbook"] is True
    assert free.code == (0 if all(checks.values()) else 11)


def test_the_doctor_wants_ssh_where_hosts_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = local_inventory(tmp_path / "inventory", 1)
    names = {c.name for c in machine.examine(folder, tmp_path)}
    assert not names & {"ssh", "way to http://127.0.0.1:1"}
    (folder / "hosts.yml").write_text(
        (folder / "hosts.yml")
        .read_text()
        .replace("load_clients-1:", "load_clients-1: {ansible_connection: ssh}")
    )
    monkeypatch.setattr("shutil.which", lambda name, **_: None if name == "ssh" else f"/bin/{name}")
    found = {c.name: c for c in machine.examine(folder, tmp_path)}
    assert "way to http://127.0.0.1:1" in found
    ssh = found["ssh"]
    assert not ssh.ok
    assert "load_clients-1" in ssh.found
    assert "OpenSSH client" in ssh.remedy


@pytest.mark.parametrize("error, ok", [
    (None, True),
    (ConnectionRefusedError("no engine yet"), True),  # its host answered
    (TimeoutError("timed out"), False),
    (OSError("No route to host"), False),
    (socket.gaierror("Name or service not known"), False),
])  # fmt: skip
def test_the_doctor_tries_the_way_to_the_engine_where_load_comes_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, ok: bool
) -> None:
    asked = []

    def connect(address: tuple[str, int], _timeout_s: float) -> socket.socket:
        asked.append(address)
        if error is not None:
            raise error
        return socket.socket()

    def ways(*local: str) -> list[machine.Check]:
        groups = {"engines": ("e",), "appliances": ("a",), "load_clients": ("c",)}
        return list(machine.way_to_engines(Inventory(
            path="made-up", hosts=groups, local_hosts=local, rehearsal=True, contract="quick",
            engine_role="rehearsal_engine", engine_host="10.0.0.9", engine_port=8000,
        )))  # fmt: skip

    monkeypatch.setattr(socket, "create_connection", connect)
    assert ways("e", "c") == []
    assert asked == []
    for local in (("e",), ("c",), ()):
        (way,) = ways(*local)
        assert asked.pop() == ("10.0.0.9", 8000)
        assert (way.name, way.ok) == ("way to http://10.0.0.9:8000", ok)
        assert "priming and warm-up are sent from this machine" in way.found
        assert "kvgate_engine_host" in way.remedy


def test_the_doctor_without_an_inventory_says_where_to_run_it(kvgate: Run, tmp_path: Path) -> None:
    ended = kvgate("doctor", "--inventory", tmp_path / "none")
    assert ended.code == 11
    assert "run in the checkout" in ended.out


def test_the_doctor_names_what_is_missing(
    kvgate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kvgate.report.system.missing_system_libraries", lambda: ["libpango-1.0-0"])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    lines = [c for c in machine.examine(tmp_path / "none", tmp_path) if not c.ok]
    assert [c.name for c in lines] == [
        "system libraries", "open files", "ansible-playbook", "ssh-keygen", "inventory",
    ]  # fmt: skip
    assert all(c.remedy for c in lines)


def test_the_list_of_faults_is_the_agreed_one(kvgate: Run) -> None:
    """Golden: a fault that is renamed or changes its default is seen in review."""
    assert kvgate("faults").out == (GOLDEN / "faults.txt").read_text()
    assert set(json.loads(kvgate("faults", "--json").out)) >= {"slow-tier", "wrong-answers"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["plam"], ["judge"], ["judge", "a", "b"], ["plan"], ["plan", "--contract"],
        ["report", "x", "--format", "doc"], ["plan", "--contract", "x", "--start-minutes", "-1"],
        ["contract", "check"], ["contract", "nothing"], ["doctor", "--no-such"],
    ],
)  # fmt: skip
def test_wrong_options_are_one_line_with_the_way_to_help(kvgate: Run, arguments: list[str]) -> None:
    ended = kvgate(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "--help" in ended.err


def test_commands_that_do_not_exist_yet_are_not_offered(kvgate: Run) -> None:
    offered = kvgate("--help").out
    for name in ("plan", "judge", "verify", "report", "load", "contract", "campaign", "doctor"):
        assert name in offered
    for name in ("import", "watch", "trend", "init"):
        assert kvgate(name).code == 2


def test_the_load_command_is_the_load_clients(kvgate: Run, tmp_path: Path) -> None:
    options = {"url": "http://127.0.0.1:9", "model": "m", "requests": 1, "prompt-tokens": 4,
               "output-tokens": 1, "out": tmp_path / "out"}  # fmt: skip
    ended = kvgate("load", *(part for k, v in options.items() for part in (f"--{k}", v)))
    assert (ended.code, ended.err.strip()) == (2, "give either --concurrency or --rate")


def test_no_heavy_module_is_loaded_before_a_command_needs_it() -> None:
    heavy = ("pandas", "numpy", "scipy", "pyarrow", "weasyprint", "ansible_runner", "pydantic")
    script = f"import sys, kvgate.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_reader_that_leaves_early_is_no_fault() -> None:
    """As in `kvgate faults | head`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "kvgate.cli", "faults"],
            stdout=out, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.stderr == ""


def test_a_path_without_permission_is_one_line(
    kvgate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("kvgate.commands.bundles.require_bundle", refuse)
    ended = kvgate("judge", tmp_path)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "Permission denied" in ended.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kvgate ")


def test_the_shipped_rehearsal_is_what_the_doctor_looks_at_by_default() -> None:
    assert (ROOT / "inventories" / "rehearsal").is_dir()
