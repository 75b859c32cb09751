"""Findings that stand beside a verdict and never change it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import CompareClause, Contract
from kvgate.decide.wording import number
from kvgate.reason import Reason
from kvgate.verdict import ClauseVerdict


def informative(
    contract: Contract, gate: int, analysis: Analysis, clauses: tuple[ClauseVerdict, ...]
) -> tuple[Reason, ...]:
    """The clauses' findings, then what the gate as a whole shows."""
    found = [finding for clause in clauses for finding in clause.findings]
    metrics = {c.metric for c in contract.gate(gate).clause if isinstance(c, CompareClause)}
    if {"ttft", "throughput"} <= metrics:
        found.append(Reason("one_piece_of_evidence"))
    found.extend(_speedup(contract, gate, analysis))
    return tuple(found)


def _speedup(contract: Contract, gate: int, analysis: Analysis) -> Iterator[Reason]:
    """TTFT of the reference (recompute) session against the restored one, cell by cell."""
    plan = contract.gate(gate).pairs
    if plan is None or plan.reference_arm in {None, plan.compare[0]}:
        return
    for cell in dict.fromkeys(b.cell for b in analysis.blocks if b.pair is None):
        reference = _ttft([b for b in analysis.blocks if b.pair is None and b.cell == cell])
        restored = _ttft(
            [b for b in analysis.blocks if b.arm == plan.compare[1] and b.cell == cell]
        )
        if reference and restored:
            yield Reason(
                "speedup",
                {
                    "where": cell.label,
                    "reference": number(reference),
                    "value": number(restored),
                    "ratio": f"{reference / restored:.1f}",
                },
            )


def _ttft(blocks: list[BlockResult]) -> float | None:
    values = [b.statistics.ttft_p50_s for b in blocks if b.valid]
    known = [v for v in values if v is not None]
    return fmean(known) if known else None
