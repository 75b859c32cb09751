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
    found.extend(_costs(contract, gate, analysis))
    found.extend(_energy(contract, gate, analysis))
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


def _arms(
    contract: Contract, gate: int, analysis: Analysis
) -> Iterator[tuple[str, list[BlockResult], list[BlockResult]]]:
    """Each restoring cell of two arms with the valid blocks of either."""
    plan = contract.gate(gate).pairs
    if plan is None or plan.compare[0] == plan.compare[1]:
        return
    paired = [b for b in analysis.blocks if b.pair is not None and b.valid]
    cells = {b.cell for b in paired if b.kind == "cold_restore"}
    for cell in sorted(cells, key=lambda c: (c.workload, c.level, c.label)):
        blocks = [b for b in paired if b.cell == cell]
        reference = [b for b in blocks if b.role == "reference"]
        yield cell.label, reference, [b for b in blocks if b.role == "test"]


def _costs(contract: Contract, gate: int, analysis: Analysis) -> Iterator[Reason]:
    """What a million output tokens cost on either arm, at the contract's price of an hour."""
    per_hour = contract.costs.platform_hour
    for where, reference, test in _arms(contract, gate, analysis) if per_hour > 0 else ():
        sides = [_mean([b.statistics.output_tok_per_s for b in side]) for side in (reference, test)]
        if sides[0] and sides[1]:
            params = {
                "where": where,
                "reference": number(per_hour / (sides[0] * 3600) * 1e6),
                "value": number(per_hour / (sides[1] * 3600) * 1e6),
                "currency": contract.campaign.currency,
                "hour": number(per_hour),
            }
            yield Reason("token_cost", params)


def _energy(contract: Contract, gate: int, analysis: Analysis) -> Iterator[Reason]:
    """Joules an output token on either arm, where every block of it was metered."""
    for where, reference, test in _arms(contract, gate, analysis):
        sides = [_joules_a_token(side) for side in (reference, test)]
        if sides[0] and sides[1]:
            params = {"where": where, "reference": number(sides[0]), "value": number(sides[1])}
            yield Reason("token_energy", params)


def _joules_a_token(blocks: list[BlockResult]) -> float | None:
    energy = [b.counters.get("energy_j") for b in blocks]
    tokens = [b.statistics.output_tokens for b in blocks]
    known = [(e, t) for e, t in zip(energy, tokens, strict=True) if e is not None and t]
    if not known or len(known) < len(blocks):
        return None
    return sum(e for e, _ in known) / sum(t for _, t in known)


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known and len(known) == len(values) else None
