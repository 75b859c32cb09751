"""One block through the real path (simulated engine and store, priming, load, observation), with
one knob turned: its condition breaks, and with none turned no condition does.

What depends on how busy this machine is (the simulators' schedule, the client's pace) is left out:
those conditions have tests of their own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from kvgate.analyse.block import block_statistics
from kvgate.analyse.validity import conditions
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.prime import pools_of, prime
from kvgate.contract import Contract, parse_contract
from kvgate.drive.arms import Arms, RunningArm
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import read_requests
from kvgate.inventory import Inventory
from kvgate.plan import Setup, pair_order
from kvgate.progress import Silent
from kvgate.verdict import About, Condition

BUSY = {"simulator_on_time", "client_stall", "client_cpu", "client_holds_level", "in_flight",
        "telemetry_coverage", "store_telemetry", "clock_step"}  # fmt: skip
SCALE = 60
CONTRACT = parse_contract((Path(__file__).parent / "quick.toml").read_bytes(), name="quick")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in held]


@dataclass(frozen=True)
class Launched:
    """Stands for the Ansible play: the same helper starts engine and store of the arm."""

    run_dir: Path
    inventory: Inventory
    faults: tuple[str, ...]

    def start(self, arm: str, setup: Setup = Setup(), *, priming: bool = False) -> RunningArm:  # noqa: B008
        plain = ["--calibration", "healthy", "--time-scale", str(SCALE)]
        for fault in self.faults:
            plain += ["--fault", fault]
        engine = [*plain, "--seed", "1"]
        if priming:
            engine += ["--priming", "--prime-speedup", "50"]
        said = self._helper(
            "start", "--arm", arm, "--engine-port", str(self.inventory.engine_port),
            "--store-port", str(self.inventory.store_ports[arm]),
            "--engine-args", json.dumps(engine), "--store-args", json.dumps(plain),
            "--exit-with", str(os.getpid()),
        )  # fmt: skip
        assert said["ok"], said
        return RunningArm(arm, arm, said["info"], {}, ())

    def stop(self) -> None:
        self._helper("stop", "--stores")

    def _helper(self, command: str, *arguments: str) -> Mapping[str, Any]:
        argv = [sys.executable, "-m", "kvgate.rehearsal.launch", command, *arguments]
        done = subprocess.run(
            [*argv, "--run-dir", str(self.run_dir)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        said: Mapping[str, Any] = json.loads(done.stdout)
        return said


Judge = Callable[[Contract], dict[str, Condition]]


@contextmanager
def block(root: Path, *faults: str, **inventory: Any) -> Iterator[Judge]:
    """A cold restore of the appliance arm at the quick contract's level; gives what judges it."""
    engine, baseline, appliance = free_ports(3)
    given: dict[str, Any] = {
        "path": "made-up", "local_hosts": ("e",), "rehearsal": True, "contract": "quick",
        "hosts": {"engines": ("e",), "appliances": ("e",), "load_clients": ("e",)},
        "engine_role": "rehearsal_engine", "engine_host": "127.0.0.1", "engine_port": engine,
        "store_ports": {"baseline": baseline, "appliance": appliance},
        "store_metrics": "kvstore", "store_bytes": "store", "stores_stay_up": False,
        "time_scale": float(SCALE),
    }  # fmt: skip
    place = Inventory(**(given | inventory))
    arms = Launched(root / "run", place, faults)
    plan = CONTRACT.gate(3).pairs
    assert plan is not None
    session = next(s for s in pair_order(CONTRACT, 3, plan, 0, 1).sessions if s.arm == "appliance")
    cell = next(c for c in session.cells if c.workload == "cold_restore")
    folder = root / "g3-001" / "blocks" / "0"
    try:
        with Journal(root / "g3-001") as journal:
            bench = Bench(CONTRACT, place, 3, journal, root / "work", Silent())
            pools = tuple(p for p in pools_of(bench, plan.cells, 1) if p[0] == cell)
            primed = prime(bench, cast(Arms, arms), "appliance", pools)
            arm = arms.start("appliance")
            found = measure_block(bench, arm, Place(0, 0, session, primed.tokens, primed.by), cell)
        frame = read_requests(folder / "requests.parquet")
        statistics = block_statistics(frame, cell.level)

        def judged(contract: Contract) -> dict[str, Condition]:
            said = conditions(contract, json.loads(json.dumps(found)), frame, statistics)
            return {c.name: c for c in said if c.ok is not True and c.name not in BUSY}

        yield judged
    finally:
        arms.stop()


def limits(**changed: Any) -> Contract:
    validity = CONTRACT.validity.model_copy(update=changed)
    return CONTRACT.model_copy(update={"validity": validity})


def test_a_healthy_block_breaks_nothing_and_each_limit_alone_breaks_its_own(tmp_path: Path) -> None:
    with block(tmp_path) as judged:
        assert judged(CONTRACT) == {}
        # A limit on what this host cannot tell breaks the block: absence never passes.
        for key, name in (
            ("fabric_errors_at_most", "fabric_clean"),
            ("fabric_pauses_at_most", "fabric_unpaused"),
        ):
            if not list(Path("/sys/class/infiniband").glob("*")):
                found = judged(limits(**{key: 0}))
                assert {n: c.ok for n, c in found.items()} == {name: None}
        simulated = judged(limits(simulator_late_s_at_most=None))
        assert list(simulated) == ["nothing_simulated"]
        impossible = judged(limits(store_bytes_per_s_at_most=1.0))
        assert list(impossible) == ["store_rate_possible"]


def test_a_silent_store_of_the_other_arm_is_not_known_to_be_untouched(tmp_path: Path) -> None:
    with block(tmp_path, stores_stay_up=True) as judged:
        found = judged(CONTRACT)
        assert {n: (c.ok, c.about) for n, c in found.items()} == {
            "untouched_baseline": (None, About.ENVIRONMENT)
        }


def test_a_restore_whose_bytes_nobody_counts_is_no_restore(tmp_path: Path) -> None:
    with block(tmp_path, store_bytes="process") as judged:
        assert {n: c.ok for n, c in judged(CONTRACT).items()} == dict.fromkeys(
            ("bytes_read", "bytes_not_too_many", "store_rate_possible")
        )


@pytest.mark.parametrize("fault, name, about", [
    ("never-hits", "declared_source", About.ENVIRONMENT),
    ("store-misses", "declared_source", About.APPLIANCE),
    ("truncated-streams=0.5", "requests_finished", About.APPLIANCE),
    ("error-events=0.5", "requests_finished", About.APPLIANCE),
])  # fmt: skip
def test_a_fault_breaks_its_condition_alone(
    tmp_path: Path, fault: str, name: str, about: About
) -> None:
    with block(tmp_path, fault) as judged:
        found = judged(CONTRACT)
        assert {n: (c.ok, c.about) for n, c in found.items()} == {name: (False, about)}


@pytest.mark.parametrize("fault, name", [
    ("warm-baseline=0.3@appliance", "engine_cache_cold"),
    ("engine-restart=10@appliance", "engine_alive"),
])  # fmt: skip
def test_a_fault_breaks_its_condition_with_what_follows_from_it(
    tmp_path: Path, fault: str, name: str
) -> None:
    with block(tmp_path, fault) as judged:
        assert name in judged(CONTRACT)
