"""G3: the main gate, with each outcome."""

from __future__ import annotations

from typing import Any

from kvgate.contract import AnswersClause, CompareClause
from kvgate.reason import Reason
from kvgate.report import ReportInput
from kvgate.verdict import Decision, Exclusion, Figure, Verdict

from .blocks import (
    ALIKE,
    HEALTHY,
    NO_TELEMETRY,
    SLOW,
    WARM_ENGINE,
    compare_figure,
    invalid_figure,
    paired_blocks,
)
from .parts import analysis, clause_verdict, contract, gate_verdict, report_input


def compared() -> list[tuple[str, int]]:
    """Every cell that a clause of the gate compares."""
    clauses = [c for c in contract().gate(3).clause if isinstance(c, CompareClause)]
    return list(dict.fromkeys((c.workload, level) for c in clauses for level in c.levels))


def gate3(kind: str = "pass", **values: Any) -> ReportInput:
    """G3 as "pass", "fail", "inconclusive" or "invalid"."""
    noise = 0.16 if kind == "inconclusive" else 0.028
    pairs = {"pass": 6, "fail": 5, "inconclusive": 6, "invalid": 5}[kind]
    broken = {1: NO_TELEMETRY} if kind == "fail" else {}
    if kind == "invalid":
        broken = dict.fromkeys((0, 1, 3), WARM_ENGINE)
    known = SLOW if kind == "fail" else HEALTHY
    means = {cell: known.get(cell, ALIKE) for cell in compared()}
    gain = 0.98
    blocks = paired_blocks(means, pairs, noise, seed=11, broken=broken, gain=gain)
    a = analysis(blocks)
    clauses = []
    for terms in contract().gate(3).clause:
        if isinstance(terms, CompareClause):
            cells = [f"{terms.workload}@{level}" for level in terms.levels]
            if kind == "invalid":
                figures = [invalid_figure(c, terms, 2) for c in cells]
            else:
                figures = [compare_figure(a, terms, c, 2.6) for c in cells]
        elif isinstance(terms, AnswersClause):
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
    assert verdict.verdict.value.lower() == kind, [(c.clause, c.verdict) for c in clauses]
    return report_input(verdict, a)
