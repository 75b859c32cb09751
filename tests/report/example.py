"""Judged gates made by hand for the tests of the report. No number here is a measurement."""

from __future__ import annotations

import math
import random
import statistics as st
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.results import (
    Analysis,
    BlockResult,
    Observed,
    SoakEvent,
    SoakWindow,
)
from kvgate.contract import CompareClause, Contract, LimitClause, load_contract
from kvgate.criterion import METRICS, Effect, effect_of
from kvgate.plan import Cell
from kvgate.reason import Reason
from kvgate.report import FileDigest, GateHistory, ReportInput
from kvgate.report.effects import ATTRIBUTE, pair_effects
from kvgate.verdict import (
    About,
    ClauseVerdict,
    Condition,
    Decision,
    Exclusion,
    Figure,
    GateVerdict,
    Verdict,
    worst,
)

CONTRACT = Path(__file__).parents[2] / "gates" / "contracts" / "rehearsal.toml"
DIGEST = "5f0c3c1d9a7e4b26a1d8e37f94c05b6e2d7a8190c4f3be5d6a7b8c9d0e1f2a3b"
AS_OF = "2026-03-04T10:22:31Z"
HEALTHY = {8: (10.17, 7.02), 16: (17.4, 11.7), 32: (35.73, 24.6)}
SLOW = {8: (10.17, 8.31), 16: (17.4, 14.4), 32: (35.73, 29.1)}


@lru_cache(maxsize=1)
def contract() -> Contract:
    return load_contract(CONTRACT)


def block_statistics(**values: Any) -> BlockStatistics:
    """Statistics with the given numbers, every other one missing."""
    blank: dict[str, Any] = {field.name: None for field in fields(BlockStatistics)}
    return BlockStatistics(**{**blank, "failed_by_outcome": {}, "n_impossible": 0, **values})


def conditions(**broken: Condition) -> tuple[Condition, ...]:
    """The conditions of a healthy block, some of them replaced."""
    held = [
        Condition("engine_cache_cold", About.ENVIRONMENT, True, 0.002, 0.01, "1", ""),
        Condition("declared_source", About.ENVIRONMENT, True, 0.996, 0.95, "1", ""),
        Condition("in_flight", About.INSTRUMENT, True, 0.984, 0.90, "1", ""),
        Condition("client_stall", About.INSTRUMENT, True, 0.004, 0.25, "s", ""),
        Condition("telemetry_coverage", About.INSTRUMENT, True, 1.0, 0.99, "1", ""),
        Condition("engine_alive", About.ENVIRONMENT, True, "alive", "alive", "text", ""),
        Condition("requests_finished", About.ENVIRONMENT, True, 0.0, 0.0, "1", ""),
    ]
    return tuple(broken.get(c.name, c) for c in held)


WARM_ENGINE = Condition(
    "engine_cache_cold", About.ENVIRONMENT, False, 0.412, 0.01, "1",
    "restart the engine or reset its prefix cache before the block",
)  # fmt: skip
NO_TELEMETRY = Condition(
    "telemetry_coverage", About.INSTRUMENT, None, None, 0.99, "1",
    "see why the sampler wrote nothing: its log is in the block's folder",
)  # fmt: skip


def paired_blocks(
    ttft: Mapping[int, tuple[float, float]], pairs: int, noise: float, seed: int,
    broken: Mapping[int, Condition] | None = None, gain: float = 1.0,
) -> list[BlockResult]:  # fmt: skip
    """Cold restores of baseline and appliance at each level; ``broken`` by pair (its baseline)."""
    rng = random.Random(seed)
    blocks: list[BlockResult] = []
    session = 1
    for pair in range(pairs):
        for position, role in enumerate(rng.sample(["reference", "test"], 2)):
            side = 0 if role == "reference" else 1
            session += 1
            for level, means in ttft.items():
                p50 = means[side] * math.exp(rng.gauss(0, noise))
                n = 6 * level
                rate = 64 * level / (p50 * 1.04 + 64 * 0.021) * (gain if side else 1.0)
                bad = (broken or {}).get(pair) if side == 0 else None
                blocks.append(
                    BlockResult(
                        n=len(blocks) + 1,
                        session=session,
                        pair=pair,
                        role=role,
                        position=position,
                        arm="appliance" if side else "baseline",
                        cell=Cell("cold_restore", level),
                        kind="cold_restore",
                        statistics=block_statistics(
                            level=level,
                            n_requests=n,
                            n_ok=n,
                            ttft_p50_s=p50,
                            ttft_p99_s=p50 * math.exp(abs(rng.gauss(0.16, 0.03))),
                            itl_p50_s=0.021 * math.exp(rng.gauss(0, 0.02)),
                            itl_p99_s=0.044 * math.exp(rng.gauss(0, 0.05)),
                            output_tok_per_s=rate,
                            window_s=p50 * 5,
                            mean_in_flight_in_window=level * 0.985,
                            prompt_tokens=8192 * n,
                            output_tokens=64 * n,
                            unique_prompts=n,
                            client_lag_p99_ns=41_000,
                        ),
                        conditions=conditions(**({bad.name: bad} if bad else {})),
                        counters={"prompt_tokens_external": 8192.0 * n},
                        started_at=f"2026-03-04T0{pair % 9}:1{position}:00Z",
                    )
                )
    return blocks


def analysis(blocks: list[BlockResult], **values: Any) -> Analysis:
    given: dict[str, Any] = {
        "answers": (), "observed": (), "windows": (), "events": (),
        "expected_hosts": {"engines": ("engine-1",), "appliances": ("fx100-a",)},
        "time_scale": 60.0,
    }  # fmt: skip
    return Analysis(blocks=tuple(blocks), **{**given, **values})


def compare_figure(a: Analysis, terms: CompareClause, where: str, factor: float) -> Figure:
    """Mean of the pairs with an interval of ``factor`` standard errors, judged by the book."""
    sign = {"drop_at_least": -1, "rise_at_most": -1}.get(terms.effect.value, 1)
    values = [e.value for e in pair_effects(a, terms, where) if e.valid and e.value is not None]
    logs = [
        sign * math.log(1 - v if terms.effect.value == "drop_at_least" else 1 + v) for v in values
    ]
    mean = st.mean(logs)
    half = factor * st.stdev(logs) / math.sqrt(len(logs))
    ends = sorted(effect_of(terms.effect, x) for x in (mean - half, mean + half))
    value, zone = effect_of(terms.effect, mean), terms.indifference or 0.0
    rise = terms.effect.value == "rise_at_most"
    bad, good = (ends[1], ends[0]) if rise else (ends[0], ends[1])
    misses = good > terms.threshold if rise else good < terms.threshold
    clears = bad < terms.threshold + zone if rise else bad > terms.threshold - zone
    reached = value <= terms.threshold if rise else value >= terms.threshold

    def pct(x: float) -> str:
        return f"{x * 100:.1f} %"

    span = f"{pct(ends[0])} … {pct(ends[1])}"
    if misses:
        params = {"value": pct(value), "threshold": pct(terms.threshold), "bound": pct(good)}
        verdict, reason = Verdict.FAIL, Reason("below_threshold", params)
    elif clears and reached:
        verdict, reason = Verdict.PASS, Reason("met")
    else:
        verdict = Verdict.INCONCLUSIVE
        reason = Reason("open", {"n": len(values), "interval": span})
    sides = {role: st.mean(_statistic(a, terms, where, role)) for role in ("reference", "test")}
    unit = METRICS[terms.metric].unit
    details: dict[str, float | str | None] = {"unit": unit, "statistic": terms.statistic, **sides}
    return Figure(where, value, "1", "<=" if rise else ">=", terms.threshold, verdict, reason,
                  len(values), ends[0], ends[1], details)  # fmt: skip


def _statistic(a: Analysis, terms: CompareClause, where: str, role: str) -> list[float]:
    name = ATTRIBUTE[terms.metric, terms.statistic]
    blocks = [b for b in a.blocks if b.cell.label == where and b.role == role]
    return [float(getattr(b.statistics, name)) for b in blocks]


def invalid_figure(where: str, terms: CompareClause, n: int) -> Figure:
    reason = Reason("too_few_pairs", {"n": n, "needed": 4, "conditions": "engine_cache_cold"})
    relation = "<=" if terms.effect is Effect.RISE else ">="
    return Figure(where, None, "1", relation, terms.threshold, Verdict.INVALID, reason, n)


def clause_verdict(
    terms: Any, figures: list[Figure], reason: Reason | None = None
) -> ClauseVerdict:
    verdict = worst(f.verdict for f in figures)
    if reason is None:
        reason = next((f.reason for f in figures if f.verdict is verdict), Reason("met"))
    form = type(terms).__name__
    text = {"en": terms.text.en, "zh": terms.text.zh}
    return ClauseVerdict(terms.id, form, terms.metric, text, verdict, reason, tuple(figures))


def gate_verdict(
    gate: int, clauses: list[ClauseVerdict], decision: Decision | None, why: Reason, **values: Any
) -> GateVerdict:
    verdict = worst(c.verdict for c in clauses)
    bad = ", ".join(c.clause for c in clauses if c.verdict is verdict)
    reason = Reason("clauses_decide", {"verdict": verdict.value, "clauses": bad})
    if verdict is Verdict.PASS:
        reason = Reason("all_clauses_met", {"n": len(clauses)})
    given: dict[str, Any] = {
        "campaign": "rehearsal-2026-03", "run": 1, "mode": "counted", "rehearsal": True,
        "as_of": AS_OF, "contract_id": contract().id, "contract_digest": contract().digest,
        "judged_by": "kvgate 0.1.0", "exclusions": (), "findings": (), "pairs_measured": 0,
        "blocks_measured": 0,
    }  # fmt: skip
    return GateVerdict(
        gate=gate, verdict=verdict, reason=reason, decision=decision, decision_reason=why,
        clauses=tuple(clauses), **{**given, **values},
    )  # fmt: skip


ENVIRONMENT = {
    "baseline": {"engine": "vllm 0.20.1", "connector": "LMCacheConnectorV1", "store": "nvme",
                 "model digest": DIGEST[:32], "max_num_seqs": "64", "kv_cache_dtype": "fp8"},
    "appliance": {"engine": "vllm 0.20.1", "connector": "LMCacheConnectorV1", "store": "fx100",
                  "model digest": DIGEST[:32], "max_num_seqs": "64", "kv_cache_dtype": "fp8"},
    "engine-1": {"kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04", "rocm": "7.2.0",
                 "processors": "192", "nic firmware": "28.41.1000"},
    "load-1": {"kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04", "python": "3.11.9"},
}  # fmt: skip
FILES = tuple(
    FileDigest(f"blocks/{n:04d}/{name}", 18_412 + 731 * n, f"{n * 7919 + i:064x}")
    for n in range(1, 7)
    for i, name in enumerate(("block.json", "requests.parquet", "engine.parquet", "host.parquet"))
)
HISTORY = (
    GateHistory(1, "PASS", "PROCEED", "2026-02-09T09:00:00Z", DIGEST),
    GateHistory(2, "PASS", "PROCEED", "2026-02-21T15:40:00Z", DIGEST[::-1]),
)


def report_input(verdict: GateVerdict, a: Analysis, **values: Any) -> ReportInput:
    given: dict[str, Any] = {
        "environment": ENVIRONMENT, "manifest_sha256": DIGEST, "files": FILES,
        "bundle": f"campaigns/rehearsal-2026-03/g{verdict.gate}-run{verdict.run}",
        "campaign_history": HISTORY[: verdict.gate - 1],
    }  # fmt: skip
    return ReportInput(verdict=verdict, contract=contract(), analysis=a, **{**given, **values})


def gate3(kind: str = "pass", **values: Any) -> ReportInput:
    """G3 as "pass", "fail", "inconclusive" or "invalid"."""
    noise = 0.16 if kind == "inconclusive" else 0.028
    pairs = {"pass": 6, "fail": 5, "inconclusive": 6, "invalid": 5}[kind]
    broken = {1: NO_TELEMETRY} if kind == "fail" else {}
    if kind == "invalid":
        broken = dict.fromkeys((0, 1, 3), WARM_ENGINE)
    means = SLOW if kind == "fail" else HEALTHY
    gain = 0.98 if kind == "fail" else 0.94
    blocks = paired_blocks(means, pairs, noise, seed=11, broken=broken, gain=gain)
    a = analysis(blocks)
    clauses = []
    for terms in contract().gate(3).clause:
        if isinstance(terms, CompareClause):
            cells = [f"cold_restore@{level}" for level in terms.levels]
            if kind == "invalid":
                figures = [invalid_figure(c, terms, 2) for c in cells]
            else:
                figures = [compare_figure(a, terms, c, 2.6) for c in cells]
        elif terms.id == "G3.5":
            figures = [Figure("probe@4", 0.0, "1", "<=", 0.0, Verdict.PASS, Reason("met"), 144)]
        else:
            n = len(blocks)
            figures = [Figure("cold_restore", 0.0, "1", "<=", 0.0, Verdict.PASS, Reason("met"), n)]
        clauses.append(clause_verdict(terms, figures))
    decision, why = {
        "pass": (Decision.PROCEED, Reason("next_gate")),
        "fail": (Decision.STOP_LOSS, Reason("stop")),
        "inconclusive": (Decision.EXTEND, Reason("extend", {"pairs": 6, "max_pairs": 10})),
        "invalid": (Decision.RERUN, Reason("rerun", {"used": 1, "limit": 2})),
    }[kind]
    exclusions = tuple(
        Exclusion(b.n, b.pair, b.arm, b.cell.label, c)
        for b in blocks
        for c in b.conditions
        if c.ok is not True
    )
    findings: tuple[Reason, ...] = (Reason("one_piece_of_evidence"),)
    if kind == "pass":
        where = "cold_restore@16"
        findings += (Reason("above_band", {"where": where, "value": "+42.1 %", "top": "+40 %"}),)
    verdict = gate_verdict(
        3, clauses, decision, why, exclusions=exclusions, findings=findings,
        pairs_measured=pairs, blocks_measured=len(blocks), **values,
    )  # fmt: skip
    return report_input(verdict, a)


def gate1(failing: bool = False, hosts: int = 2) -> ReportInput:
    """G1: facts of engine hosts, load clients and the appliance."""
    engines = tuple(f"engine-{i}" for i in range(1, hosts + 1))
    groups = {"appliances": ("fx100-a",), "engines": engines, "load_clients": ("load-1", "load-2")}
    good: dict[str, float | str | None] = {
            "cpu_count": 192.0, "memory": 1.6e12, "open_files_limit": 1048576.0,
            "device_link_rate": 100e9, "device_model": "FX100 (simulated)",
            "device_serial": contract().appliance.serials[0],
            "device_firmware": "sim-1.0"}  # fmt: skip
    clauses: list[ClauseVerdict] = []
    observed: list[Observed] = []
    for terms in contract().gate(1).clause:
        assert isinstance(terms, LimitClause) and terms.hosts is not None
        figures = []
        for host in groups[terms.hosts]:
            value = good[terms.metric]
            verdict, reason = Verdict.PASS, Reason("met")
            if failing and terms.metric == "device_firmware":
                value, verdict = "sim-0.9", Verdict.FAIL
                reason = Reason("not_equal", {"value": "sim-0.9", "threshold": "sim-1.0"})
            if failing and host == engines[-1] and terms.metric == "memory":
                value, verdict = None, Verdict.INVALID
                reason = Reason("no_value", {"metric": "memory", "where": host})
            observed.append(Observed(terms.metric, host, value, terms.unit))
            figures.append(
                Figure(host, value, terms.unit, terms.relation, terms.limit, verdict, reason, 1)
            )
        clauses.append(clause_verdict(terms, figures))
    decision = Decision.STOP_LOSS if failing else Decision.PROCEED
    why = Reason("stop") if failing else Reason("next_gate")
    judged = gate_verdict(1, clauses, decision, why)
    return report_input(judged, analysis([], observed=tuple(observed), expected_hosts=groups))


def gate2() -> ReportInput:
    """G2: one arm against itself, with a recompute reference."""
    rng = random.Random(5)
    blocks: list[BlockResult] = []
    cells = {("cold_restore", 1): 1.62, ("cold_restore", 16): 11.9, ("warm", 1): 0.21,
             ("miss", 1): 9.31}  # fmt: skip

    def add(arm: str, role: str, pair: int | None, cell: tuple[str, int], mean: float) -> None:
        p50 = mean * math.exp(rng.gauss(0, 0.02))
        n = 6 * cell[1]
        blocks.append(
            BlockResult(
                len(blocks) + 1, 1 + 2 * (pair or 0) + (role == "test"), pair, role, 0, arm,
                Cell(*cell), cell[0],
                block_statistics(
                    level=cell[1], n_requests=n, n_ok=n, ttft_p50_s=p50, ttft_p99_s=p50 * 1.2,
                    itl_p50_s=0.02, output_tok_per_s=64 * cell[1] / (p50 + 1.3), unique_prompts=n,
                    mean_in_flight_in_window=float(cell[1]),
                ),
                conditions(), {}, AS_OF,
            )
        )  # fmt: skip

    add("recompute", "reference", None, ("cold_restore", 1), 9.4)
    for pair in range(3):
        for role in ("reference", "test"):
            for cell, mean in cells.items():
                add("appliance", role, pair, cell, mean)
    a = analysis(blocks)
    met = Reason("met")
    clauses = []
    for terms in contract().gate(2).clause:
        if isinstance(terms, CompareClause):
            figures = [Figure("cold_restore@16", 0.006, "1", "within", 0.10, Verdict.PASS, met, 3,
                              -0.031, 0.044)]  # fmt: skip
        elif isinstance(terms, LimitClause):
            values = {"ttft": 1.62, "restore_rate": 2.84e9}
            figures = [
                Figure(f"cold_restore@{level}", values[terms.metric], terms.unit, terms.relation,
                       terms.limit, Verdict.PASS, met, 6)
                for level in terms.levels
            ]  # fmt: skip
        else:
            figures = [Figure("all cells", 0.0, "1", "<=", 0.0, Verdict.PASS, met, 3)]
        clauses.append(clause_verdict(terms, figures))
    findings = (
        Reason(
            "speedup",
            {"where": "cold_restore@1", "reference": "9.40", "value": "1.62", "ratio": "5.8"},
        ),
        Reason("pair_noise", {"where": "cold_restore@16", "value": "0.021"}),
    )
    verdict = gate_verdict(
        2, clauses, Decision.PROCEED, Reason("next_gate"), findings=findings, pairs_measured=3,
        blocks_measured=len(blocks),
    )  # fmt: skip
    return report_input(verdict, a)


def gate4(gap: bool = False) -> ReportInput:
    """G4: windows of five minutes over an hour, one injected fault; ``gap`` leaves two out."""
    rng = random.Random(3)
    windows = []
    for i in range(12):
        if gap and i in (7, 8):
            continue
        hit = i == 5
        windows.append(
            SoakWindow(
                300.0 * i, 300.0 * (i + 1), 210 - 30 * hit, int(hit),
                7.1 * math.exp(rng.gauss(0.004 * i, 0.015)) * (1.3 if hit else 1.0),
                58.0 * math.exp(rng.gauss(0, 0.015)) * (0.8 if hit else 1.0),
                (41 + 0.12 * i) * 2**30,
            )
        )  # fmt: skip
    events = (
        SoakEvent(1500.0, "store-restart", "systemctl restart kvstore on fx100-a", True),
        SoakEvent(1590.0, "recovery", "TTFT within 10 % of the windows before", True),
    )
    values = {"soak_error_share": 0.0056, "soak_ttft_drift": 0.041, "soak_memory_slope": 0.031,
              "soak_restarts": 0.0, "fault_proved": 1.0, "soak_coverage": 1.0,
              "soak_duration": 3600.0}  # fmt: skip
    if gap:
        values["soak_coverage"] = 0.833
    clauses = []
    for terms in contract().gate(4).clause:
        assert isinstance(terms, LimitClause)
        verdict, reason = Verdict.PASS, Reason("met")
        if gap and terms.metric == "soak_coverage":
            verdict = Verdict.INVALID
            reason = Reason("out_of_limit", {"value": "83.3 %", "threshold": "99 %"})
        figures = [Figure("run", values[terms.metric], terms.unit, terms.relation, terms.limit,
                          verdict, reason, len(windows))]  # fmt: skip
        clauses.append(clause_verdict(terms, figures))
    decision, why = Decision.PROCEED, Reason("campaign_complete")
    if gap:
        decision, why = Decision.RERUN, Reason("rerun", {"used": 1, "limit": 1})
    judged = gate_verdict(4, clauses, decision, why)
    return report_input(judged, analysis([], windows=tuple(windows), events=events))


def uncounted(source: ReportInput, mode: str) -> ReportInput:
    """The same gate as a run that does not count."""
    verdict = replace(
        source.verdict, mode=mode, decision=None, rehearsal=False,
        decision_reason=Reason("does_not_count", {"mode": mode}),
    )  # fmt: skip
    return replace(source, verdict=verdict)
