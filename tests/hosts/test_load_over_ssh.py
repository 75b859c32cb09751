"""Two load hosts and an engine host behind real SSH servers, host keys checked, through Ansible.

The simulated engine is labelled as such. What depends on how busy this machine is (the simulator's
schedule, the client's pace) is left out: those conditions have tests of their own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kvgate.analyse.assemble import RawBlock
from kvgate.analyse.block import block_statistics
from kvgate.analyse.load_hosts import on_one_clock
from kvgate.analyse.validity import conditions
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.elsewhere import Elsewhere, is_driven_here, prepare
from kvgate.contract import parse_contract
from kvgate.drive.agents import LOAD_AGENT
from kvgate.drive.arms import RunningArm
from kvgate.drive.playbooks import Playbooks, PlayResult, list_inventory
from kvgate.errors import CannotMeasure
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import read_requests
from kvgate.inventory import Inventory
from kvgate.plan import Cell, Session
from kvgate.progress import Silent
from kvgate.verdict import About, Condition

from .lab import SSHD, Lab, hosts_yml, lab

ROOT = Path(__file__).parents[2]
QUICK = ROOT / "tests" / "outcomes" / "quick.toml"
CONTRACT = parse_contract(QUICK.read_bytes(), name="quick")
SCALE = 60
LEVEL = 4
BUSY = {"simulator_on_time", "client_stall", "client_cpu", "client_holds_level", "in_flight",
        "telemetry_coverage", "store_telemetry", "clock_step", "load_start", "load_clock_offset",
        "load_clock_drift"}  # fmt: skip
GROUPS = {
    "engines": {"engine-1": "load-1"},
    "appliances": {"here": ""},
    "load_clients": {"load-1": "load-1", "load-2": "load-2"},
}
"""The engine host is a third name for the first server: its telemetry comes over SSH, too."""


@dataclass
class Site:
    """Hosts that were prepared by one play, and a simulated engine."""

    lab: Lab
    inventory: Inventory
    elsewhere: Elsewhere
    plays: list[PlayResult]
    root: Path
    blocks: int = 0

    def block(self) -> tuple[Mapping[str, Any], Path]:
        """One block of prompts that share nothing, without a store."""
        self.blocks += 1
        cell = Cell("miss", LEVEL)
        session = Session("recompute", "reference", None, 0, 0, (cell,))
        root = self.root / f"g3-{self.blocks:03d}"
        with Journal(root) as journal:
            bench = Bench(
                CONTRACT, self.inventory, 3, journal, self.root / "work", Silent(), self.elsewhere
            )
            arm = RunningArm("recompute", None, {}, {}, ())
            found = measure_block(bench, arm, Place(0, 0, session, 0), cell)
        return json.loads(json.dumps(found)), root / "blocks" / "0"


def judged(
    block: Mapping[str, Any], folder: Path, *, but: str = "", **limits: float
) -> dict[str, Condition]:
    """The broken conditions, under other limits where they are named; of those that only a quiet
    machine keeps, ``but`` alone."""
    validity = CONTRACT.validity.model_copy(update=limits)
    terms = CONTRACT.model_copy(update={"validity": validity})
    raw = RawBlock(0, block, read_requests(folder / "requests.parquet"), pd.DataFrame())
    frame = on_one_clock(raw.block, raw.requests)
    said = conditions(terms, block, frame, block_statistics(frame, LEVEL))
    return {c.name: c for c in said if c.ok is not True and c.name not in BUSY - {but}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if SSHD is None:
        reason = "no sshd here: apt-get install openssh-server, these tests need a real one"
        if os.environ.get("KVGATE_CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        found = stack.enter_context(lab(root / "lab"))
        port, store = _free_ports(2)
        found.write_inventory(hosts_yml(found, GROUPS) + _variables(port, store))
        place = _inventory(found)
        run_dir = root / "run"
        _launch(run_dir, "start", "--arm", "recompute", "--engine-port", str(port),
                "--store-port", "0", "--engine-args",
                json.dumps(["--calibration", "healthy", "--time-scale", str(SCALE)]),
                "--store-args", "[]", "--exit-with", str(os.getpid()))  # fmt: skip
        stack.callback(_launch, run_dir, "stop", "--stores")
        plays: list[PlayResult] = []
        books = Playbooks(ROOT / "playbooks", found.inventory)
        others = prepare(place, CONTRACT.validity, books, run_dir, plays.append)
        yield Site(found, place, others, plays, root)


def _inventory(found: Lab) -> Inventory:
    from kvgate.inventory import inventory_from

    return inventory_from(list_inventory(found.inventory), path=str(found.inventory))


def _variables(port: int, store: int) -> str:
    values = {
        "kvgate_rehearsal": True, "kvgate_contract": "quick",
        "kvgate_engine_role": "rehearsal_engine", "kvgate_engine_host": "127.0.0.1",
        "kvgate_engine_port": port, "kvgate_store_ports": {"baseline": store},
        "kvgate_store_metrics": "kvstore", "kvgate_store_bytes": "store",
        "kvgate_stores_stay_up": False, "kvgate_time_scale": SCALE,
    }  # fmt: skip
    return "".join(f"    {key}: {json.dumps(value)}\n" for key, value in values.items())


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in held]


def _launch(run_dir: Path, command: str, *arguments: str) -> None:
    argv = [sys.executable, "-m", "kvgate.rehearsal.launch", command, *arguments]
    done = subprocess.run(
        [*argv, "--run-dir", str(run_dir)], capture_output=True, text=True, timeout=120, check=False
    )
    assert json.loads(done.stdout)["ok"], done.stdout


def test_one_play_prepares_every_host(site: Site) -> None:
    assert [play.playbook for play in site.plays] == ["load"]
    assert set(site.plays[0].hosts) == {"load-1", "load-2", "engine-1"}
    assert not is_driven_here(site.inventory)


def test_two_hosts_measure_one_block_and_the_engine_host_is_observed(site: Site) -> None:
    block, folder = site.block()
    assert judged(block, folder) == {}, block["fault"]
    assert block["load_state"] == "done"
    for name, limit in (
        ("load_clock_offset", "load_clock_offset_s_at_most"),
        ("load_clock_drift", "load_clock_drift_s_at_most"),
        ("load_start", "load_start_late_s_at_most"),
    ):
        # No two clocks of hosts are known to a picosecond, and no process starts that sharp.
        broken = judged(block, folder, but=name, **{limit: 1e-12})
        assert {n: (c.ok, c.about) for n, c in broken.items()} == {name: (False, About.INSTRUMENT)}
    hosts = block["load_hosts"]
    assert {h: (s["level"], s["requests"], s["records"]) for h, s in hosts.items()} == {
        "load-1": (LEVEL // 2, 12, 12),
        "load-2": (LEVEL // 2, 12, 12),
    }
    for said in hosts.values():
        assert said["calibration"]["attempts"][-1]["level"] == LEVEL // 2
        for end in said["clock"].values():
            # One machine, one clock: whatever SSH took, the truth lies in what was estimated.
            assert end["agreed"] is True
            assert abs(end["offset_ns"]) <= end["uncertainty_ns"]
    frame = read_requests(folder / "requests.parquet")
    assert frame["load_host"].value_counts().to_dict() == {"load-1": 12, "load-2": 12}
    assert frame["request_id"].is_unique
    assert frame["prompt_digest"].is_unique
    assert block["client"]["max_in_flight"] == LEVEL
    # Remote telemetry, in the same table and counted in the same condition.
    seen = block["hosts"]
    assert {h: (s["group"], s["fault"]) for h, s in seen.items()} == {
        "engine-1": ("engines", None),
        "load-1": ("load_clients", None),
        "load-2": ("load_clients", None),
    }
    assert all(s["coverage"] is not None and s["coverage"] > 0 for s in seen.values())
    table = pd.read_parquet(folder / "host.parquet")
    assert set(table["host"]) == {"localhost", "engine-1", "load-1", "load-2"}
    engine = table[table["host"] == "engine-1"]
    assert {"cpu_busy_s", "memory_available_bytes"} <= set(engine["name"])
    within = engine["t_ns"].between(
        block["observation"]["started_ns"] - 10**9, block["observation"]["ended_ns"] + 10**9
    )
    assert within.all(), "its rows are on this machine's timeline"


def test_a_host_that_dies_spoils_the_block_and_no_load_is_left(site: Site) -> None:
    killer = threading.Thread(target=_kill_once_loading, args=(site, "load-2"))
    killer.start()
    block, folder = site.block()
    killer.join()
    site.lab.start("load-2")
    broken = judged(block, folder)
    assert broken["load_hosts_whole"].ok is False
    assert About.APPLIANCE not in {c.about for c in broken.values()}
    assert "load-2: the connection ended" in str(broken["load_hosts_whole"].value)
    assert block["load_hosts"]["load-1"]["state"] == "interrupted"
    assert block["load_hosts"]["load-1"]["fault"] is None
    assert block["hosts"]["load-2"]["fault"]
    until = time.monotonic() + 20
    while left := _load_clients():
        assert time.monotonic() < until, f"load clients are left: {left}"
        time.sleep(0.05)


def _kill_once_loading(site: Site, host: str) -> None:
    until = time.monotonic() + 60
    while len(_load_clients()) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    site.lab.kill(host)


def _load_clients() -> list[int]:
    """Processes of agents' loads: their job files lie in the agents' private folders."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                said = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"kvgate.load.client" in said and b"/kvgate-load-" in said:
                found.append(int(entry.name))
    return found


def test_an_unreachable_host_is_said_in_the_block_and_nothing_was_sent(site: Site) -> None:
    site.lab.kill("load-2")
    block, folder = site.block()
    site.lab.start("load-2")
    broken = judged(block, folder)
    assert "load-2: host load-2: the connection ended" in str(broken["load_hosts_whole"].value)
    assert "Connection refused" in block["fault"]
    assert block["requests_recorded"] == 0
    assert About.APPLIANCE not in {c.about for c in broken.values()}


def test_a_host_with_another_key_is_never_spoken_to(site: Site) -> None:
    agents = site.elsewhere.agents
    assert agents is not None
    with closing(agents.open("load-1", LOAD_AGENT)) as channel:
        assert channel.clock() > 0
    right = site.lab.known_hosts.read_text()
    first, second = right.splitlines()
    swapped = [f"{first.split()[0]} {second.split(maxsplit=1)[1]}",
               f"{second.split()[0]} {first.split(maxsplit=1)[1]}"]  # fmt: skip
    try:
        site.lab.known_hosts.write_text("\n".join(swapped) + "\n")
        with pytest.raises(CannotMeasure, match="Host key verification failed") as caught:
            agents.open("load-1", LOAD_AGENT)
        assert str(caught.value).startswith("host load-1: ")
    finally:
        site.lab.known_hosts.write_text(right)
