"""Gates run inside a test: their own tests, on evidence of G1 made up here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import kvgate
from kvgate.adjudicate import Judged
from kvgate.analyse.results import Analysis, Observed
from kvgate.campaign import CampaignFacts, Mode
from kvgate.conduct import console
from kvgate.conduct.gate import Order, Outcome
from kvgate.contract import LimitClause
from kvgate.decide import judge
from kvgate.report.publish import Published
from kvgate.verdict import GateVerdict

ROOT = Path(__file__).parents[2]
HOSTS = {"engines": ("e",), "appliances": ("a",), "load_clients": ("c",)}
LISTING: dict[str, Any] = {
    "_meta": {"hostvars": {"e": {
        "ansible_connection": "local", "kvgate_rehearsal": True, "kvgate_contract": "rehearsal",
        "kvgate_engine_role": "rehearsal_engine", "kvgate_engine_host": "127.0.0.1",
        "kvgate_engine_port": 1, "kvgate_store_ports": {"baseline": 2, "appliance": 3},
    }, "c": {"ansible_connection": "local"}}},
    "all": {}, **{group: {"hosts": list(hosts)} for group, hosts in HOSTS.items()},
}  # fmt: skip
Values = dict[str, float | str | None]
Change = Callable[[GateVerdict], GateVerdict]


class Gates:
    """Stands where gates are run: remembers what was asked and answers from made-up facts."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []
        self.values: Values = {}
        self.change: Change | None = None
        self.error: Exception | None = None

    def run(self, order: Order, gate: int, selected: tuple[str, ...], _progress: object) -> Outcome:
        self.asked.append((gate, selected, order.faults))
        if self.error is not None:
            raise self.error
        contract = order.contract
        observed = []
        for clause in contract.gate(1).clause:
            assert isinstance(clause, LimitClause)
            value = self.values.get(clause.metric, clause.limit)
            host = HOSTS[str(clause.hosts)][0]
            observed.append(Observed(clause.metric, host, value, clause.unit))
        analysis = Analysis((), (), tuple(observed), (), (), HOSTS, 1.0)
        facts = CampaignFacts(
            name="c", gate=1, run=1, rehearsal=True,
            mode=Mode.ENGINEERING if order.engineering else Mode.COUNTED,
            as_of="2026-03-04T10:00:00+00:00", contract_id=contract.id,
            contract_digest=contract.digest, kvgate_version=kvgate.__version__, inventory="i",
            selected=selected, retests_used=0, reruns_used=0, serials=(), firmware="",
            predecessor=None, faults=(), time_scale=1.0, extends=None,
        )  # fmt: skip
        verdict = judge(contract, analysis, facts)
        if self.change is not None:
            verdict = self.change(verdict)
        path = Path("verdict.json")
        published = Published((), (path,), path, path)
        judged = Judged(cast(Any, None), contract, facts, analysis, verdict)
        return Outcome(judged, Path("bundle"), published)


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> Gates:
    stand_in = Gates()
    monkeypatch.setattr(console, "run_gate", stand_in.run)
    monkeypatch.setattr(console, "list_inventory", lambda _path: LISTING)
    return stand_in


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    shutil.copytree(ROOT / "gates", pytester.path / "gates")
    pytester.makeini("[pytest]\ntestpaths = gates\n")

    def go(*args: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *args
        )

    return go


Run = Callable[..., pytest.RunResult]
