"""Hand-written histories for the judge. Every figure here is made up: nothing was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.results import Analysis, Answer, BlockResult, Observed
from kvgate.campaign import CampaignFacts, Mode
from kvgate.contract import Contract, PairPlan, load_contract
from kvgate.decide import judge
from kvgate.plan import Cell, Session, pair_order, reference_sessions
from kvgate.verdict import About, ClauseVerdict, Condition, GateVerdict

ROOT = Path(__file__).parents[2]
PROBES = 24
NAMES: Mapping[str, About] = {
    "client_ran": About.INSTRUMENT,
    "requests_recorded": About.INSTRUMENT,
    "telemetry_coverage": About.INSTRUMENT,
    "responses_possible": About.INSTRUMENT,
    "engine_alive": About.ENVIRONMENT,
    "preemptions": About.ENVIRONMENT,
    "requests_finished": About.ENVIRONMENT,
    "declared_source": About.ENVIRONMENT,
    "engine_cache_cold": About.ENVIRONMENT,
}
# Deterministic spread of pairs: no two alike, mean about zero, neighbours unlike.
WOBBLE = (0.5, -0.9, 0.2, 0.8, -0.4, -0.7, 1.0, -0.2, 0.6, -0.9, 0.3, -0.3)


@lru_cache(maxsize=1)
def contract() -> Contract:
    return load_contract(ROOT / "gates" / "contracts" / "rehearsal.toml")


def plan(gate: int = 3) -> PairPlan:
    found = contract().gate(gate).pairs
    assert found is not None
    return found


def facts(gate: int = 3, **changed: Any) -> CampaignFacts:
    terms = contract()
    given: dict[str, Any] = {
        "name": "made-up",
        "gate": gate,
        "run": 1,
        "mode": Mode.COUNTED,
        "rehearsal": True,
        "as_of": "2026-03-04T10:00:00+00:00",
        "contract_id": terms.id,
        "contract_digest": terms.digest,
        "kvgate_version": "0.0.test",
        "inventory": "made-up",
        "selected": tuple(c.id for c in terms.gate(gate).clause),
        "retests_used": 0,
        "reruns_used": 0,
        "serials": terms.appliance.serials,
        "firmware": terms.appliance.firmware,
        "predecessor": None,
        "faults": (),
        "time_scale": 1.0,
        "extends": None,
    }
    return CampaignFacts(**(given | changed))


def statistics(level: int, **values: Any) -> BlockStatistics:
    blank: dict[str, Any] = {field.name: None for field in fields(BlockStatistics)}
    n = 6 * level
    healthy = {
        "level": level,
        "n_requests": n,
        "n_ok": n,
        "n_impossible": 0,
        "failed_by_outcome": {},
        "unique_prompts": n,
    }
    return BlockStatistics(**(blank | healthy | values))


def condition(name: str, ok: bool | None = True, about: About | None = None) -> Condition:
    value = None if ok is None else 1.0
    return Condition(name, about or NAMES[name], ok, value, 1.0, "1", "")


HEALTHY = tuple(condition(name) for name in NAMES)


@dataclass(frozen=True)
class Truth:
    """What the appliance does, as fractions of the reference tier's figures."""

    drop: float = 0.33
    gain: float = 0.37
    p99_rise: float = -0.33
    itl_rise: float = 0.0
    noise: float = 0.01


GOOD = Truth()


def history(truth: Truth = GOOD, pairs: int = 6, gate: int = 3) -> Analysis:
    """A healthy gate: the reference session, then ``pairs`` pairs in the plan's own order."""
    terms, pair_plan = contract(), plan(gate)
    sessions: list[Session] = list(reference_sessions(terms, gate))
    for pair in range(pairs):
        sessions.extend(pair_order(terms, gate, pair_plan, pair, 1).sessions)
    blocks: list[BlockResult] = []
    answers: list[Answer] = []
    samples: dict[int, Mapping[str, Any]] = {}
    for number, session in enumerate(sessions):
        for cell in session.cells:
            n = len(blocks)
            made = _block(n, number, session, cell, truth)
            blocks.append(made)
            assert made.statistics.ttft_p99_s is not None
            p99 = made.statistics.ttft_p99_s
            samples[n] = {
                "ttft_s": np.linspace(0.5 * p99, p99, made.statistics.n_ok),
                "itl_s": np.full(10, made.statistics.itl_p50_s),
            }
            if made.kind == "probe":
                answers.extend(answer(n, session.arm, probe) for probe in range(PROBES))
    return Analysis(
        blocks=tuple(blocks),
        answers=tuple(answers),
        observed=(),
        windows=(),
        events=(),
        expected_hosts={},
        time_scale=1.0,
        samples=samples,
        configuration=configured(),
    )


def configured(**other: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Every arm ran the same engine; ``other`` changes what an arm says, for instance
    ``appliance={"engine engine_version": "2"}`` (kind, then name)."""
    found: dict[str, dict[str, str]] = {"engine": {}, "tuning": {}}
    for arm in contract().arms:
        found["engine"][f"{arm} engine_version"] = "1.0"
        found["tuning"][f"{arm} engine_args"] = "--dtype=float32"
        for kind_and_name, said in other.get(arm, {}).items():
            kind, _, name = kind_and_name.partition(" ")
            found[kind][f"{arm} {name}"] = said
    return found


def _block(n: int, number: int, session: Session, cell: Cell, truth: Truth) -> BlockResult:
    kind = contract().workloads[cell.workload].kind
    pair = session.pair or 0
    wobble = truth.noise * WOBBLE[(pair + cell.level) % len(WOBBLE)]
    tested = session.role == "test"
    level = cell.level
    ttft = level * (1 - truth.drop) * exp(-wobble) if tested else float(level)
    rate = 40 * (1 + truth.gain) * exp(wobble) if tested else 40.0
    p99 = 2 * level * (1 + truth.p99_rise) * exp(wobble) if tested else 2.0 * level
    itl = 0.02 * (1 + truth.itl_rise) * exp(wobble) if tested else 0.02
    return BlockResult(
        n=n,
        session=number,
        pair=session.pair,
        role=session.role,
        position=session.position,
        arm=session.arm,
        cell=cell,
        kind=kind,
        statistics=statistics(
            level, ttft_p50_s=ttft, ttft_p99_s=p99, itl_p50_s=itl, itl_p99_s=itl,
            output_tok_per_s=rate,
        ),
        conditions=HEALTHY,
        counters={},
        started_at="2026-03-04T10:00:00+00:00",
        restore_bytes_per_s=5e9,
    )  # fmt: skip


def answer(block: int, arm: str, probe: int, *, word: str = "a") -> Answer:
    return Answer(
        block=block,
        arm=arm,
        prompt_digest=f"prompt-{probe}",
        tokens=(word, "b", "c"),
        logprobs=(-0.1, -0.2, -0.3),
        margins=(1.0, 1.0, 1.0),
    )


# --- changes ------------------------------------------------------------------------------------

Chosen = Callable[[BlockResult], bool]


def changed(analysis: Analysis, chosen: Chosen, change: Callable[[BlockResult], Any]) -> Analysis:
    """Every chosen block replaced by ``change`` of it."""
    return replace(
        analysis, blocks=tuple(change(b) if chosen(b) else b for b in analysis.blocks)
    )  # fmt: skip


def breaking(
    analysis: Analysis,
    chosen: Chosen,
    name: str,
    *,
    ok: bool | None = False,
    about: About | None = None,
) -> Analysis:
    """The named condition broken in every chosen block."""
    broken = condition(name, ok, about)

    def change(block: BlockResult) -> BlockResult:
        kept = tuple(broken if c.name == name else c for c in block.conditions)
        return replace(block, conditions=kept)

    return changed(analysis, chosen, change)


def failing(analysis: Analysis, chosen: Chosen, count: int, kind: str = "truncated") -> Analysis:
    """``count`` requests of every chosen block failed, and the block says so."""

    def change(block: BlockResult) -> BlockResult:
        n_ok = block.statistics.n_requests - count
        stats = replace(block.statistics, n_ok=n_ok, failed_by_outcome={kind: count})
        return replace(block, statistics=stats)

    about = About.APPLIANCE
    test = breaking(analysis, lambda b: chosen(b) and b.role == "test", "requests_finished",
                    about=about)  # fmt: skip
    both = breaking(test, lambda b: chosen(b) and b.role != "test", "requests_finished")
    return changed(both, chosen, change)


def without(analysis: Analysis, chosen: Chosen) -> Analysis:
    """The chosen blocks with their samples and answers gone, as if their folders were deleted."""
    gone = {b.n for b in analysis.blocks if chosen(b)}
    return replace(
        analysis,
        blocks=tuple(b for b in analysis.blocks if b.n not in gone),
        samples={n: s for n, s in analysis.samples.items() if n not in gone},
        answers=tuple(a for a in analysis.answers if a.block not in gone),
    )


def cell(workload: str, level: int | None = None, role: str | None = None) -> Chosen:
    def chosen(block: BlockResult) -> bool:
        return (
            block.cell.workload == workload
            and level in {None, block.cell.level}
            and role in {None, block.role}
        )

    return chosen


def of_appliance(block: BlockResult) -> bool:
    return block.role == "test"


def paired(block: BlockResult) -> bool:
    return block.pair is not None


def everywhere(_block: BlockResult) -> bool:
    return True


def with_wrong_answers(analysis: Analysis, arm: str, word: str = "z") -> Analysis:
    return replace(
        analysis,
        answers=tuple(
            answer(a.block, a.arm, int(a.prompt_digest[7:]), word=word) if a.arm == arm else a
            for a in analysis.answers
        ),
    )


# --- judging ------------------------------------------------------------------------------------


def judged(analysis: Analysis, gate: int = 3, **changed_facts: Any) -> GateVerdict:
    return judge(contract(), analysis, facts(gate, **changed_facts))


def clause(verdict: GateVerdict, name: str) -> ClauseVerdict:
    return next(c for c in verdict.clauses if c.clause == name)


def judged_clause(analysis: Analysis, name: str) -> ClauseVerdict:
    return clause(judged(analysis, int(name[1])), name)


def observed(metric: str, where: str, value: float | str | None) -> Observed:
    return Observed(metric, where, value, "1")


def with_facts(
    observations: tuple[Observed, ...], hosts: Mapping[str, tuple[str, ...]]
) -> Analysis:
    return Analysis((), (), observations, (), (), hosts, 1.0)
