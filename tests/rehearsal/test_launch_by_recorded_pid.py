"""Starting and stopping: idempotent, only what was recorded, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible_runner
import pytest

from kvgate.rehearsal.process import start_ticks

from .machine import HOST, WAIT_S, Machine, call, free_port, wait_until

ROLES = Path(__file__).parents[2] / "playbooks" / "roles"


class Launcher:
    """Calls the helper as the role does, for one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.engine_port = free_port()
        self.store_port = free_port()

    def __call__(self, command: str, *arguments: str) -> tuple[int, Any]:
        argv = [sys.executable, "-m", "kvgate.rehearsal.launch", command, *arguments]
        if command in {"start", "stop"}:
            argv += ["--run-dir", str(self.run_dir)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout)

    def start(self, arm: str, *arguments: str) -> tuple[int, Any]:
        """Start ``arm`` so that it ends with this test process at the latest."""
        ports = ["--engine-port", str(self.engine_port)]
        if arm != "recompute":
            ports += ["--store-port", str(self.store_port)]
        return self("start", "--arm", arm, *ports, "--exit-with", str(os.getpid()), *arguments)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path / "run")
    yield made
    made("stop", "--stores")


def test_the_store_is_kept_and_the_engine_replaced(launcher: Launcher) -> None:
    code, first = launcher.start("appliance")
    assert code == 0
    code, second = launcher.start("appliance")
    assert code == 0
    assert second["store"]["reused"] is True
    assert second["store"]["pid"] == first["store"]["pid"]
    assert second["engine"]["pid"] != first["engine"]["pid"]
    assert start_ticks(first["engine"]["pid"]) is None
    code, third = launcher.start("recompute")
    assert "store" not in third
    assert start_ticks(first["store"]["pid"]) is not None


def test_a_store_with_other_arguments_is_another_store(launcher: Launcher) -> None:
    _, first = launcher.start("appliance")
    _, second = launcher.start("appliance", "--store-args", '["--fault", "slow-tier"]')
    assert second["store"]["reused"] is False
    assert start_ticks(first["store"]["pid"]) is None


def test_stop_is_idempotent_and_leaves_nothing(launcher: Launcher) -> None:
    _, started = launcher.start("baseline")
    assert launcher("stop") == (0, {"ok": True, "stopped": ["engine"]})
    assert start_ticks(started["store"]["pid"]) is not None
    assert launcher("stop", "--stores") == (0, {"ok": True, "stopped": ["store-baseline"]})
    assert launcher("stop", "--stores") == (0, {"ok": True, "stopped": []})
    assert start_ticks(started["store"]["pid"]) is None


def test_a_pid_that_was_given_to_another_process_is_not_touched(launcher: Launcher) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        launcher.run_dir.mkdir()
        record = {"pid": bystander.pid, "start_ticks": 1, "port": 1, "argv": []}
        (launcher.run_dir / "engine.json").write_text(json.dumps(record))
        assert launcher("stop") == (0, {"ok": True, "stopped": []})
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_port_in_use_is_one_line_with_the_port(launcher: Launcher) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, launcher.engine_port))
        taken.listen()
        code, answer = launcher.start("recompute")
    assert code == 1
    assert str(launcher.engine_port) in answer["error"]
    assert "in use" in answer["error"]
    assert "\n" not in answer["error"]


def test_a_wrong_argument_of_the_engine_is_reported_from_its_log(launcher: Launcher) -> None:
    code, answer = launcher.start("recompute", "--engine-args", '["--fault", "melts"]')
    assert code == 1
    assert "unknown fault 'melts'" in answer["error"]


def test_cold_and_info_speak_of_the_running_engine(launcher: Launcher) -> None:
    port = ["--engine-port", str(launcher.engine_port)]
    code, answer = launcher("cold", *port)
    assert (code, answer["ok"]) == (1, False)
    launcher.start("appliance")
    assert launcher("cold", *port)[1]["reset"] is True
    code, told = launcher("info", *port, "--store-port", str(launcher.store_port))
    assert code == 0
    assert told["version"]["simulated"] is True
    assert told["device"]["serial"].startswith("SIM-")
    assert told["models"][0]["id"]


def test_processes_end_with_the_one_they_belong_to(tmp_path: Path) -> None:
    controller = subprocess.Popen(["sleep", "60"])
    launcher = Launcher(tmp_path / "run")
    try:
        code, started = launcher.start("appliance", "--exit-with", str(controller.pid))
        assert code == 0
        controller.kill()
        controller.wait()
        for name in ("engine", "store"):
            pid = started[name]["pid"]
            wait_until(lambda pid=pid: start_ticks(pid) is None, f"the end of {name}")  # type: ignore[misc]
    finally:
        with contextlib.suppress(ProcessLookupError):
            controller.kill()
        launcher("stop", "--stores")


def test_term_ends_an_engine_cleanly_with_requests_open() -> None:
    with Machine(arm="recompute", time_scale=1.0) as machine:
        assert machine.engine is not None
        with socket.create_connection((HOST, machine.port), timeout=WAIT_S) as connection:
            body = b'{"prompt": "x y z", "max_tokens": 500, "stream": true, "ignore_eos": true}'
            head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
            assert connection.recv(100)
            machine.engine.send_signal(signal.SIGTERM)
            assert machine.engine.wait(timeout=WAIT_S) == 0


def test_the_role_brings_an_arm_up_and_down(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "run")
    tasks = ("start", "info", "cold", "stop")
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            *(
                {"ansible.builtin.include_role": {"name": "rehearsal_engine", "tasks_from": name}}
                for name in tasks
            ),
            {"ansible.builtin.debug": {"var": "kvgate_engine_info"}},
        ],
    }
    variables = {
        "kvgate_arm_name": "appliance",
        "kvgate_run_dir": str(launcher.run_dir),
        "kvgate_engine_port": launcher.engine_port,
        "kvgate_engine_args": ["--time-scale", 500],
        "kvgate_store_port": launcher.store_port,
        "kvgate_store_args": ["--time-scale", 500],
        "kvgate_python": sys.executable,
        "kvgate_controller_pid": os.getpid(),
        "kvgate_stop_stores": True,
    }
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    private = tmp_path / "ansible"
    private.mkdir()
    # ansible-playbook is installed beside the interpreter, which need not be on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        done = ansible_runner.run(
            private_data_dir=str(private),
            envvars={"PATH": path, "ANSIBLE_HOME": str(tmp_path / "home")},
            playbook=[play],
            inventory={"all": {"hosts": {"localhost": host}}},
            roles_path=str(ROLES),
            extravars=variables,
            quiet=True,
        )
        output = done.stdout.read()
        assert (done.status, done.rc) == ("successful", 0), output
        assert done.stats["ok"]["localhost"] >= 5
        shown = [event for event in done.events if "kvgate_engine_info" in str(event)]
        assert "SIM-FX100-0001" in str(shown[-1])
        records = list(launcher.run_dir.glob("*.json"))
        assert records == []
        with pytest.raises(OSError):
            call(launcher.engine_port, "GET", "/health")
    finally:
        launcher("stop", "--stores")
