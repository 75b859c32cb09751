"""The other gates: arrival, single node, long run; and a run that does not count."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from kvgate.analyse.results import BlockResult, Observed, SoakEvent, SoakWindow
from kvgate.contract import CompareClause, LimitClause
from kvgate.plan import Cell
from kvgate.reason import Reason
from kvgate.report import ReportInput
from kvgate.verdict import ClauseVerdict, Decision, Figure, Verdict

from .blocks import block_statistics, conditions
from .parts import AS_OF, analysis, clause_verdict, contract, gate_verdict, report_input


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
    """G4: every window of the contract's plan, one injected fault; ``gap`` leaves two out."""
    rng = random.Random(3)
    plan = contract().gate(4).soak
    assert plan is not None
    windows = []
    for i in range(int(plan.duration_s // plan.window_s)):
        if gap and i in (8, 9):
            continue
        hit = i == 4
        windows.append(
            SoakWindow(
                plan.window_s * i, plan.window_s * (i + 1), 210 - 30 * hit, int(hit),
                7.1 * math.exp(rng.gauss(0.004 * i, 0.015)) * (1.3 if hit else 1.0),
                58.0 * math.exp(rng.gauss(0, 0.015)) * (0.8 if hit else 1.0),
                (41 + 0.12 * i) * 2**30,
                restored_share=0.999 - 0.04 * hit,
                excused=hit,
            )
        )  # fmt: skip
    events = (
        SoakEvent(600.0, "store-restart", "systemctl restart kvstore on fx100-a", True, 655.0),
        SoakEvent(690.0, "recovery", "TTFT within 10 % of the windows before", True),
    )
    values = {"soak_error_share": 0.0056, "soak_ttft_drift": 0.041, "soak_memory_slope": 0.031,
              "soak_restarts": 0.0, "fault_proved": 1.0, "soak_coverage": 1.0,
              "soak_duration": 3600.0, "soak_restored_share": 0.998, "soak_wrong_answers": 0.0,
              "soak_throughput_drift": 0.02, "soak_worst_window": 0.31,
              "fault_recovery_time": 90.0}  # fmt: skip
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
