"""One block at a time through the real path: simulated engine and store as processes of their own,
priming, load and observation, without a gate around them.

A stage primes its store once; each block gets an engine of its own start, with the faults that are
asked for, and something that happens while the block runs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from kvgate.analyse.assemble import RawBlock
from kvgate.analyse.block import BlockStatistics, block_statistics
from kvgate.analyse.validity import conditions
from kvgate.conduct.block import Bench, Place, measure_block
from kvgate.conduct.calibration import Calibrations
from kvgate.conduct.prime import Primed, prime
from kvgate.contract import Contract, parse_contract
from kvgate.drive.arms import Arms, RunningArm
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import read_requests
from kvgate.inventory import Inventory
from kvgate.plan import Cell, Session, Setup, pair_order, prompts_of, stored_prompts
from kvgate.progress import Silent
from kvgate.verdict import About, Condition

BUSY = frozenset({
    "simulator_on_time", "client_stall", "client_cpu", "client_holds_level", "in_flight",
    "telemetry_coverage", "store_telemetry", "clock_step",
})  # fmt: skip
"""What depends on how busy this machine is: looked at only where a test breaks it."""
SCALE = 60
CONTRACT = parse_contract((Path(__file__).parent / "quick.toml").read_bytes(), name="quick")
PATIENCE_S = 30.0
PLAIN = Setup()
_TRIED: dict[str, Calibrations] = {}
Broken = dict[str, tuple[bool | None, About]]


def limits(**changed: Any) -> Contract:
    """The quick contract with other limits."""
    validity = CONTRACT.validity.model_copy(update=changed)
    return CONTRACT.model_copy(update={"validity": validity})


def session(pool: int = 0, role: str = "test", pair: int = 0) -> Session:
    """A session of one of the quick contract's pairs."""
    plan = CONTRACT.gate(3).pairs
    assert plan is not None
    sessions = pair_order(CONTRACT, 3, plan, pair, 1).sessions
    return replace(next(s for s in sessions if s.role == role), pool=pool)


@dataclass(frozen=True)
class Measured:
    """A block as it lies on disk."""

    block: Mapping[str, Any]
    requests: pd.DataFrame
    statistics: BlockStatistics

    def broken(self, contract: Contract = CONTRACT, *, but: str = "") -> dict[str, Condition]:
        """The conditions that do not hold, those left out that only a quiet machine keeps; ``but``
        names the one of these that the test is about."""
        said = conditions(contract, self.block, self.requests, self.statistics)
        left_out = BUSY - {but}
        return {c.name: c for c in said if c.ok is not True and c.name not in left_out}

    def told(self, contract: Contract = CONTRACT, *, but: str = "") -> Broken:
        """Of each broken condition, whether it is known, and whom it speaks about."""
        return {n: (c.ok, c.about) for n, c in self.broken(contract, but=but).items()}

    def raw(self) -> RawBlock:
        """The block for the assembly of a whole gate."""
        engine = pd.DataFrame({"t_ns": [], "target": [], "name": [], "value": []})
        return RawBlock(int(self.block["n"]), self.block, self.requests, engine)


class Stage:
    """The appliance arm of the quick contract on ports of its own."""

    def __init__(self, root: Path, journal: Journal, store_faults: tuple[str, ...], cell: Cell,
                 contract: Contract, **inventory: Any) -> None:  # fmt: skip
        self.root = root
        self.setup: Mapping[str, Any] = {}
        self.cell = cell
        self.info: dict[str, Any] = {}
        self._store_faults = store_faults
        self._blocks = 0
        self._primed: dict[str, Primed] = {}
        baseline, appliance, *engines = free_ports(2 + contract.instances("default"))
        given: dict[str, Any] = {
            "path": "made-up", "local_hosts": ("e",), "rehearsal": True, "contract": "quick",
            "hosts": {"engines": ("e",), "appliances": ("e",), "load_clients": ("e",)},
            "engine_role": "rehearsal_engine", "engine_host": "127.0.0.1",
            "engine_port": engines[0], "engine_ports": tuple(engines),
            "store_ports": {"baseline": baseline, "appliance": appliance},
            "store_metrics": "kvstore", "store_bytes": "store", "stores_stay_up": False,
            "time_scale": float(SCALE),
        }  # fmt: skip
        self.place = Inventory(**(given | inventory))
        self.bench = Bench(contract, self.place, 3, journal, root / "work", Silent())
        # What the client holds is a fact of this machine: tried once for all stages.
        tried = _TRIED.setdefault("client", self.bench.calibrations)
        object.__setattr__(self.bench, "calibrations", tried)

    # --- processes

    def start(self, arm: str, setup: Setup = PLAIN, *, priming: bool = False) -> RunningArm:
        """What priming asks of whoever starts arms; this stage knows one setup."""
        assert setup == PLAIN
        return self.bring_up(arm, priming=priming)

    def bring_up(self, arm: str, *faults: str, priming: bool = False) -> RunningArm:
        """An engine of its own start, before a store that stays as it is."""
        store = self._arguments(self._store_faults)
        engine = [*self._arguments((*self._store_faults, *faults)), "--seed", "1"]
        if priming:
            engine += ["--priming", "--prime-speedup", "50"]
        self.info = self._helper(
            "start", "--arm", arm, "--engine-port", str(self.place.engine_port),
            "--store-port", str(self.place.store_ports[arm]),
            "--engine-args", json.dumps(engine), "--store-args", json.dumps(store),
            "--more-engine-ports", *map(str, self.place.engine_ports[1:]),
            "--setup", json.dumps(self.setup),
            "--exit-with", str(os.getpid()),
        )  # fmt: skip
        return RunningArm(arm, arm, self.info["info"], {}, ())

    def _arguments(self, faults: tuple[str, ...]) -> list[str]:
        plain = ["--calibration", "healthy", "--time-scale", str(SCALE)]
        for fault in faults:
            plain += ["--fault", fault]
        return plain

    def restart_store(self) -> None:
        """The store of the arm ends and comes back with what it held."""
        self._helper("fault", "--kind", "store-restart", "--store-name", "appliance",
                     "--engine-port", str(self.place.engine_port))  # fmt: skip

    def stop(self) -> None:
        self._helper("stop", "--stores")

    def _helper(self, command: str, *arguments: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "kvgate.rehearsal.launch", command, *arguments]
        done = subprocess.run(
            [*argv, "--run-dir", str(self.root / "run")],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        said: dict[str, Any] = json.loads(done.stdout)
        assert said["ok"], said
        return said

    # --- blocks

    def prime(self, *pools: int, arm: str = "appliance") -> None:
        """Fill the arm's store with what the blocks of these pools restore."""
        wanted = tuple(
            (self.cell, prompts)
            for pool in pools
            if (prompts := stored_prompts(CONTRACT, 3, session(pool), self.cell)) is not None
        )
        if wanted:
            self._primed[arm] = prime(self.bench, cast(Arms, self), arm, wanted)

    def claims_to_be_primed(self) -> None:
        """What a block would note if this store had been primed, without a prompt sent."""
        count = prompts_of(CONTRACT, 3, session(), self.cell).count
        tokens = count * CONTRACT.workloads[self.cell.workload].prompt_tokens
        self._primed["appliance"] = Primed(tokens, None, float(tokens), "stored_tokens")

    def measure(
        self, *faults: str, during: Callable[[], None] | None = None, pool: int = 0,
        role: str = "test", pair: int = 0, arm: str = "appliance",
    ) -> Measured:  # fmt: skip
        """One block with the engine's ``faults``; ``during`` runs beside it as soon as requests
        are in flight, and whatever it raises ends the test."""
        running = self.bring_up(arm, *faults)
        n, self._blocks = self._blocks, self._blocks + 1
        primed = self._primed.get(arm, Primed(0))
        place = Place(n, 0, session(pool, role, pair), primed.tokens, primed.by,
                      primed.started_ms)  # fmt: skip
        with beside(self._when_busy(n, during)):
            block = measure_block(self.bench, running, place, self.cell)
        frame = read_requests(self.root / f"g3-001/blocks/{n}/requests.parquet")
        plain = json.loads(json.dumps(block))
        return Measured(plain, frame, block_statistics(frame, self.cell.level))

    def _when_busy(self, n: int, during: Callable[[], None] | None) -> Callable[[], None]:
        def wait() -> None:
            if during is None:
                return
            work = str(self.root / "work" / f"b{n}")
            wait_for(lambda: self._in_flight() > 0 and client_of(work) is not None)
            self.client_pid = client_of(work) or 0
            during()

        return wait

    def _in_flight(self) -> float:
        try:
            page = ask(f"{self.place.engine_url}/metrics")
        except OSError:
            return 0
        names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(names))


@contextmanager
def stage(
    root: Path, *store_faults: str, level: int = 4, workload: str = "cold_restore",
    contract: Contract = CONTRACT, **inventory: Any,
) -> Iterator[Stage]:  # fmt: skip
    """A stage whose processes are ended whatever happens."""
    cell = Cell(workload, level)
    with Journal(root / "g3-001") as journal:
        made = Stage(root, journal, store_faults, cell, contract, **inventory)
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def beside(what: Callable[[], None]) -> Iterator[None]:
    """``what`` in a thread of its own; its fault is the test's."""
    faults: list[Exception] = []

    def run() -> None:
        try:
            what()
        except Exception as fault:  # noqa: BLE001 - raised again in the test's own thread
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if faults:
        raise faults[0]


def ask(url: str, body: Mapping[str, Any] | None = None) -> str:
    """The answer of an engine or store; with ``body`` it is posted as JSON."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "what the test waits for never came"
        time.sleep(0.005)


def client_of(work: str) -> int | None:
    """The process id of the load client whose job lies in ``work``."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "kvgate.load.client" in words and any(w.startswith(f"{work}/") for w in words):
            return int(path.parent.name)
    return None


@contextmanager
def held(pid: int) -> Iterator[None]:
    """The process does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stopped(pid: int, seconds: float) -> None:
    """The process does nothing for so long."""
    with held(pid):
        time.sleep(seconds)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in held]
