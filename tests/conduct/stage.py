"""A stage on which a gate runs without engines: everything real but the arms, the load and the
report. Every figure is made up; a draw depends on pair, role, cell and attempt alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from math import exp
from pathlib import Path
from typing import Any

import pytest

from kvgate.adjudicate import Judged, campaign_facts, end_of, under_test
from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.interrupted import interrupted_sessions, mark_interrupted
from kvgate.analyse.results import Analysis, Answer, BlockResult
from kvgate.conduct import finish as finish_module
from kvgate.conduct import gate as gate_module
from kvgate.conduct import resume as resume_module
from kvgate.conduct import sessions as sessions_module
from kvgate.conduct import workspace as workspace_module
from kvgate.conduct.block import Bench, Place
from kvgate.conduct.gate import Order, Outcome, run_gate
from kvgate.conduct.prime import Primed
from kvgate.conduct.workspace import Workspace
from kvgate.contract import parse_contract
from kvgate.decide import judge
from kvgate.drive.arms import RunningArm
from kvgate.errors import KvgateError
from kvgate.evidence.bundle import load_bundle
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import write_requests
from kvgate.inventory import Inventory
from kvgate.plan import Cell, Setup
from kvgate.progress import Silent
from kvgate.report.publish import Published
from kvgate.verdict import About, Condition

QUICK = Path(__file__).parents[1] / "outcomes" / "quick.toml"
HOSTS = {"engines": ("e",), "appliances": ("e",), "load_clients": ("e",)}
# Deterministic spread of pairs: no two alike, neighbours unlike.
WOBBLE = (0.5, -0.9, 0.2, 0.8, -0.4, -0.7, 1.0, -0.2, 0.6, -0.9, 0.3, -0.3)
HEALTHY = tuple(
    Condition(name, About.INSTRUMENT, True, 1.0, 1.0, "1", "")
    for name in ("client_ran", "engine_alive", "declared_source", "responses_possible")
)


class Killed(BaseException):
    """Stands for a process that ends at once: nothing catches it, nothing is said on the way."""


def contract_bytes(**changed: object) -> bytes:
    """The quick contract with other numbers in its lines ``key = value``."""
    lines = QUICK.read_text().splitlines()
    for key, value in changed.items():
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
        lines[at] = f"{key} = {json.dumps(value)}"
    return "\n".join(lines).encode()


def inventory(**changed: Any) -> Inventory:
    given: dict[str, Any] = {
        "path": "made-up", "hosts": HOSTS, "local_hosts": ("e",), "rehearsal": True,
        "contract": "quick", "engine_role": "rehearsal_engine", "engine_host": "127.0.0.1",
        "engine_port": 1, "store_ports": {"baseline": 2, "appliance": 3},
    }  # fmt: skip
    return Inventory(**(given | changed))


class Told(Silent):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Stage:
    """Plays gate 3 of one campaign; ``on_block`` and ``on_judge`` may raise to break it off."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **contract: object) -> None:
        self.space = Workspace(root / "campaign")
        self.bytes = contract_bytes(**contract)
        self.contract = parse_contract(self.bytes, name="quick")
        self.inventory = inventory()
        self.kernel = "6.8.0"
        self.engine = "1.0"
        self.faults: tuple[str, ...] = ()
        self.draw: Callable[[int, int], float] = lambda pair, attempt: WOBBLE[pair % len(WOBBLE)]
        self.on_block: Callable[[int, str], None] = lambda n, when: None
        self.on_judge: Callable[[], None] = lambda: None
        self.on_publish: Callable[[], None] = lambda: None
        self.judged: list[dict[str, Any]] = []
        self.primed: list[str] = []
        self.started: list[str] = []
        self.stopped: list[bool] = []
        self.blocks = 0
        self.told = Told()
        stage = self

        class Arms:
            def __init__(self, *_: Any, **given: Any) -> None:
                self.starts_before = given["starts_before"]

            def start(self, arm: str, setup: Setup) -> RunningArm:
                stage.started.append(setup.of(arm))
                store = stage.contract.arms[arm].store
                info = {"engine_version": stage.engine}
                return RunningArm(arm, None if store == "none" else store, info, {"how": "new"}, ())

            def stop(self, *, stores: bool) -> None:
                stage.stopped.append(stores)

            def reset_engine_cache(self, _setup: Setup) -> None: ...

            def host_facts(self) -> Mapping[str, Any]:
                return {"e": {"files": {"kernel": stage.kernel}}}

        def prime(_bench: Bench, _arms: Any, arm: str, _pools: Any, setup: Setup) -> Primed:
            stage.primed.append(setup.of(arm))
            return Primed(1000, started_ms=5, stored=1000.0)

        # No power is lost here, so nothing needs to reach a device.
        monkeypatch.setattr("os.fsync", lambda _descriptor: None)
        monkeypatch.setattr(gate_module, "Arms", Arms)
        monkeypatch.setattr(gate_module, "adjudicate", self._judge)
        monkeypatch.setattr(finish_module, "adjudicate", self._judge)
        monkeypatch.setattr(workspace_module, "adjudicate", self._judge)
        monkeypatch.setattr(resume_module, "adjudicate", self._judge)
        monkeypatch.setattr(gate_module, "publish", self._publish)
        monkeypatch.setattr(sessions_module, "prime", prime)
        monkeypatch.setattr(sessions_module, "still_holds", lambda *_: False)
        monkeypatch.setattr(sessions_module, "measure_block", self._measure)

    def run(self, *, engineering: bool = False) -> Outcome:
        """One invocation of gate 3."""
        self.told = Told()
        contract = parse_contract(self.bytes, name="quick")
        order = Order(contract, self.bytes, self.inventory, Path("playbooks"), self.space,
                      self.faults, engineering=engineering)  # fmt: skip
        selected = tuple(c.id for c in contract.gate(3).clause)
        return run_gate(order, 3, selected, self.told)

    def killed_at(self, at: int, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run and be killed at block ``at``; nothing is written on the way out."""

        def kill(n: int, moment: str) -> None:
            if (n, moment) == (at, when):
                raise Killed

        self.on_block = kill
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Journal, "mark_partial", lambda *_: None)
            self.run()
        self.on_block = lambda n, when: None

    def bundle(self, run: int = 1) -> Path:
        return self.space.bundle(3, run)

    def bytes_of(self, run: int = 1) -> dict[str, str]:
        """SHA-256 of every file of every measured block."""
        root = self.bundle(run)
        return {
            str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for block in root.glob("blocks/*/block.json")
            for p in block.parent.iterdir()
        }

    def _publish(self, bundle: Path, out: Path, *_: Any) -> Published:
        self.on_publish()
        out.mkdir(exist_ok=True)
        for kind in ("junit.xml", "blocks.csv"):
            (out / f"{bundle.name}.{kind}").write_text("made up")
        return Published((), (), out / f"{bundle.name}.junit.xml", bundle / "verdict.json")

    def _measure(self, bench: Bench, _arm: RunningArm, place: Place, cell: Cell) -> dict[str, Any]:
        self.blocks += 1
        self.on_block(place.n, "before")
        session = place.session
        write_requests([], bench.journal.block_dir(place.n) / "requests.parquet")
        self.on_block(place.n, "inside")
        wobble = 0.02 * self.draw(session.pair or 0, session.attempt)
        faster = session.role == "test"
        block: dict[str, Any] = {
            "n": place.n, "session": place.session_number, "pair": session.pair,
            "role": session.role, "position": session.position, "arm": session.arm,
            "cell": asdict(cell), "kind": bench.contract.workloads[cell.workload].kind,
            "started_at": "2026-03-04T10:00:00+00:00", "duration_s": 1.0,
            "ttft_s": 0.66 * exp(wobble) if faster else 1.0,
            "rate": 1.37 * exp(-wobble) if faster else 1.0,
            "observation": {"targets": {"engine": {"after": {}}}},
        }  # fmt: skip
        bench.journal.finish_block(place.n, block)
        self.on_block(place.n, "after")
        return block

    def _judge(self, root: Path) -> Judged:
        """The real judge on what the made-up blocks say."""
        self.on_judge()
        bundle = load_bundle(root)
        contract = parse_contract(bundle.contract or b"", name="quick")
        facts = campaign_facts(bundle.campaign or {}, where=str(root))
        blocks = [b.block for b in bundle.blocks if b.block is not None]
        analysis = Analysis(
            blocks=tuple(_result(b) for b in blocks),
            answers=tuple(a for b in blocks if b["kind"] == "probe" for a in _answers(b)),
            observed=(), windows=(), events=(), expected_hosts=HOSTS, time_scale=1.0,
            configuration=under_test(bundle), end=end_of(bundle),
        )  # fmt: skip
        analysis = mark_interrupted(analysis, interrupted_sessions(bundle.plan))
        judged = Judged(bundle, contract, facts, analysis, judge(contract, analysis, facts))
        self.judged.append({"pairs": judged.verdict.pairs_measured, "looks": looks(judged)})
        return judged


def looks(judged: Judged) -> list[Any]:
    """What the sequential clauses concluded from, with every digit."""
    return [
        (c.clause, c.verdict, f.value, f.low, f.high, f.n, f.details)
        for c in judged.verdict.clauses
        if c.form not in {"answers", "errors"}  # wrong answers count in broken sessions too
        for f in c.figures
    ]


def _result(block: Mapping[str, Any]) -> BlockResult:
    blank: dict[str, Any] = {field.name: None for field in fields(BlockStatistics)}
    n = 6 * int(block["cell"]["level"])
    counts = {"n_requests": n, "n_ok": n, "n_impossible": 0, "failed_by_outcome": {},
              "unique_prompts": n, "level": block["cell"]["level"]}  # fmt: skip
    values = {"ttft_p50_s": block["ttft_s"], "output_tok_per_s": block["rate"]}
    return BlockResult(
        n=block["n"], session=block["session"], pair=block["pair"], role=block["role"],
        position=block["position"], arm=block["arm"], cell=Cell(**block["cell"]),
        kind=block["kind"], statistics=BlockStatistics(**(blank | counts | values)),
        conditions=HEALTHY, counters={}, started_at=block["started_at"],
    )  # fmt: skip


def _answers(block: Mapping[str, Any]) -> list[Answer]:
    word = str(block.get("word", "a"))
    return [
        Answer(block["n"], block["arm"], f"prompt-{i}", (word,), (-0.1,), (1.0,)) for i in range(12)
    ]


def refused(stage: Stage) -> str:
    """The one line with which a run does not go on."""
    with pytest.raises(KvgateError) as caught:
        stage.run()
    assert "\n" not in str(caught.value)
    return str(caught.value)
