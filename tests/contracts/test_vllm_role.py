"""The lab's role: its syntax, and what it publishes from an engine that only pretends to be one.

systemd is not here, so units are never started; a `systemctl` of our own answers with a process id.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

TASKS = ("start", "setup", "undelay", "cold", "info", "fault", "stop")
ROLES = ROOT / "playbooks" / "roles"
PROGRAM = Path(sys.executable).with_name("ansible-playbook")


class _Engine(BaseHTTPRequestHandler):
    """Answers as vLLM answers; nothing is served."""

    def _answer(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        models = {"data": [{"id": "some-model"}]}
        self._answer(models if self.path == "/v1/models" else {"version": "0.20.1"})

    def do_POST(self) -> None:
        self._answer({})

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def play(
    folder: Path, tasks_from: str, *options: str, roles: Path = ROLES, **variables: Any
) -> Any:
    """One task file of the role on this machine, without sudo."""
    book = folder / "play.yml"
    show = "{{ hostvars[inventory_hostname] | to_json }}"
    dump = folder / "vars.json"
    steps = [
        {"ansible.builtin.import_role": {"name": "vllm", "tasks_from": tasks_from}},
        {"ansible.builtin.copy": {"content": show, "dest": str(dump), "mode": "0600"}},
    ]
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": steps}]))
    extra = {"ansible_become": False, "ansible_connection": "local",
             "ansible_python_interpreter": sys.executable, **variables}  # fmt: skip
    env = os.environ | {
        "ANSIBLE_ROLES_PATH": str(roles),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
    done = subprocess.run(
        [PROGRAM, "-i", "engine-1,", "-e", json.dumps(extra), *options, book],
        capture_output=True, text=True, env=env, check=False, timeout=120,
    )  # fmt: skip
    return done, json.loads(dump.read_text()) if dump.exists() else {}


def systemctl(folder: Path, answers: str) -> None:
    path = folder / "systemctl"
    path.write_text(f"#!/bin/sh\n{answers}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("tasks_from", TASKS)
def test_every_task_file_is_sound_in_its_syntax(tmp_path: Path, tasks_from: str) -> None:
    done, _ = play(tmp_path, tasks_from, "--syntax-check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_tells_versions_and_command_line_but_no_key(tmp_path: Path, port: int) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "input()",
            "serve",
            "--api-key",
            "s3cret",
            "an0ther",
            "--hf_token=t0ken",
            "--max-model-len=9",
            "--tensor_parallel_size=2",
            "--tensor-parallel-size",
            "8",
            "-tp",
            "4",
        ],
        stdin=subprocess.PIPE,
    ) as engine:
        try:
            systemctl(tmp_path, f"echo {engine.pid}")
            done, found = play(
                tmp_path, "info",
                kvgate_engine_port=port, kvgate_arm_name="appliance",
                kvgate_parallelism="tp4x2", kvgate_engine_ports=[port, port],
                vllm_units={"appliance": "vllm-fx100.service",
                            "appliance/tp4x2": ["a.service", "b.service"]},
                vllm_python=sys.executable, vllm_packages=["kvgate", "pytest"],
            )  # fmt: skip
        finally:
            engine.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    info = found["kvgate_engine_info"]
    assert info["engine"] == "vLLM 0.20.1"
    assert info["models"] == ["some-model"]
    assert set(info["packages"]) == {"kvgate", "pytest"}
    assert "--max-model-len=9" in info["command_line"]
    assert "--api-key (hidden) --hf_token=(hidden) --max" in info["command_line"]
    assert not {w for w in ("s3cret", "an0ther", "t0ken") if w in json.dumps(info)}
    assert info["store_pids"] == []
    assert info["unit"] == "a.service b.service"
    assert info["setup"] == {"engines": [{"tensor_parallel": 4}, {"tensor_parallel": 4}]}


def test_a_reset_of_the_engines_cache_is_proved_by_its_answer(tmp_path: Path, port: int) -> None:
    done, found = play(
        tmp_path, "fault", kvgate_engine_port=port, kvgate_arm_name="appliance",
        kvgate_fault_kind="engine-cache-reset",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["kvgate_fault_proof"]["proved"] is True


def test_a_store_without_a_unit_cannot_be_restarted(tmp_path: Path, port: int) -> None:
    done, _ = play(
        tmp_path, "fault", kvgate_engine_port=port, kvgate_arm_name="appliance",
        kvgate_fault_kind="store-restart",
    )  # fmt: skip
    assert done.returncode != 0
    assert "cannot inject store-restart into appliance" in done.stdout


def test_an_arm_without_a_unit_is_named(tmp_path: Path, port: int) -> None:
    done, _ = play(tmp_path, "start", kvgate_engine_port=port, kvgate_arm_name="baseline",
                   vllm_units={"appliance": "a.service"})  # fmt: skip
    assert done.returncode != 0
    assert "names no unit for the arm baseline" in done.stdout


def test_its_readme_says_that_it_never_ran_on_hardware() -> None:
    readme = ROOT / "playbooks" / "roles" / "vllm" / "README.md"
    assert "Never run on hardware" in readme.read_text()


@pytest.mark.parametrize(
    ("flag", "ok"), [("--max-model-len=9", True), ("--max-model-len=8", False)]
)
def test_an_engine_without_a_flag_of_the_contract_is_refused(
    tmp_path: Path, port: int, flag: str, ok: bool
) -> None:
    """The last tasks of start.yml, from the process onwards; the units themselves need systemd."""
    tasks = (ROLES / "vllm" / "tasks" / "start.yml").read_text()
    tasks = tasks[tasks.index("- name: Wait until the engines are healthy") :]
    role = tmp_path / "roles" / "vllm"
    (role / "tasks").mkdir(parents=True)
    (role / "tasks" / "start.yml").write_text(tasks)
    shutil.copytree(ROLES / "vllm" / "defaults", role / "defaults")
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "serve", "--max-model-len=9"], stdin=subprocess.PIPE
    ) as engine:
        try:
            systemctl(tmp_path, f"echo {engine.pid}")
            done, _ = play(
                tmp_path, "start", roles=tmp_path / "roles",
                kvgate_engine_port=port, kvgate_arm_name="appliance", kvgate_engine_args=[flag],
                vllm_units={"appliance": "a.service"}, vllm_address="127.0.0.1",
                vllm_start_deadline_s=10, vllm_poll_s=1,
            )  # fmt: skip
        finally:
            engine.kill()
    assert (done.returncode == 0) is ok, done.stdout + done.stderr
    assert ok or f"a.service runs without {flag}" in done.stdout


def tc(folder: Path, *, delays: bool = True) -> None:
    """A `tc` that keeps one discipline of queues in a file; it delays nothing."""
    kept = folder / "queue"
    path = folder / "tc"
    path.write_text(f"""#!/bin/sh
case "$1 $2" in
  "-V ") echo "tc utility, made up" ;;
  "qdisc show") cat {kept} 2>/dev/null || true ;;
  "qdisc add") {f'echo "qdisc netem 8001: root delay $8" > {kept}' if delays else ":"} ;;
  "qdisc del") rm {kept} ;;
esac
""")
    path.chmod(0o755)


DISTANCE: dict[str, Any] = {
    "kvgate_arm_name": "appliance", "kvgate_measure_delay": True, "kvgate_delay_ms": 10.0,
    "vllm_store_units": {"appliance": "s.service"}, "vllm_interface": "eth9",
}  # fmt: skip


def test_a_distance_is_put_on_the_interface_read_back_and_measured(
    tmp_path: Path, port: int
) -> None:
    tc(tmp_path)
    far = {"appliance": {"host": "127.0.0.1", "port": port}}
    done, found = play(tmp_path, "setup", **DISTANCE, vllm_store_addresses=far)
    assert done.returncode == 0, done.stdout + done.stderr
    setup = found["vllm_setup"]
    assert setup["queue"] == "qdisc netem 8001: root delay 10000us"
    assert 0 < setup["round_trip_plain_ms"] < 1000
    assert 0 < setup["round_trip_ms"] < 1000
    done, _ = play(tmp_path, "undelay", vllm_interface="eth9")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "queue").exists()


@pytest.mark.parametrize("interface, addressed", [("", False), ("eth9", True)])
def test_a_store_on_the_engine_host_is_measured_and_never_delayed(
    tmp_path: Path, port: int, interface: str, addressed: bool
) -> None:
    """One inside the engine has neither a unit nor an address."""
    tc(tmp_path)
    own: dict[str, Any] = {"kvgate_store_is_local": True, "vllm_interface": interface}
    if addressed:
        own["vllm_store_addresses"] = {"appliance": {"host": "127.0.0.1", "port": port}}
    else:
        own["vllm_store_units"] = {}
    done, found = play(tmp_path, "setup", **{**DISTANCE, **own})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "queue").exists()
    setup = found["vllm_setup"]
    assert setup["queue"] == ""
    assert 0 < setup["round_trip_plain_ms"] < 1000
    assert 0 < setup["round_trip_ms"] < 1000


def test_a_delay_that_is_not_there_is_refused(tmp_path: Path, port: int) -> None:
    tc(tmp_path, delays=False)
    far = {"appliance": {"host": "127.0.0.1", "port": port}}
    done, _ = play(tmp_path, "setup", **DISTANCE, vllm_store_addresses=far)
    assert done.returncode != 0
    assert "eth9 is told a delay of 10.0 ms" in done.stdout


def test_without_tc_a_distance_is_refused_in_one_line(tmp_path: Path, port: int) -> None:
    (tmp_path / "tc").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "tc").chmod(0o755)
    far = {"appliance": {"host": "127.0.0.1", "port": port}}
    done, _ = play(tmp_path, "setup", **DISTANCE, vllm_store_addresses=far)
    assert done.returncode != 0
    assert "no tc on the engine host" in done.stdout


def test_a_strategy_is_set_and_asked_and_one_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    strategy: dict[str, Any] = {"kvgate_arm_name": "appliance", "kvgate_strategy": "write_back",
                "kvgate_strategy_settings": {"acknowledge": "write_back"},
                "vllm_store_units": {"appliance": "s.service"}}  # fmt: skip
    commands = {
        "set": ["touch", str(tmp_path / "set")],
        "ask": ["echo", '{"acknowledge": "early"}'],
    }
    done, found = play(tmp_path, "setup", **strategy, vllm_strategies={"write_back": commands})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "set").exists()
    assert found["vllm_setup"] == {"strategy": {"acknowledge": "early"}}
    done, _ = play(tmp_path, "setup", **strategy)
    assert done.returncode != 0
    assert "vllm_strategies says nothing of write_back" in done.stdout


def test_engines_that_share_a_host_need_a_unit_each(tmp_path: Path, port: int) -> None:
    done, _ = play(
        tmp_path, "start", kvgate_engine_port=port, kvgate_arm_name="appliance",
        kvgate_parallelism="tp4x2", kvgate_engine_ports=[port, port + 1],
        vllm_units={"appliance": "a.service"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "vllm_units names 1 for the arm appliance -- add appliance/tp4x2" in done.stdout
