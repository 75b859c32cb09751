"""From clauses to the gate's verdict and its decision."""

from __future__ import annotations

from dataclasses import replace

from kvgate.analyse.pairs import Pair, cell_pairs, exclusions
from kvgate.analyse.results import Analysis
from kvgate.campaign import CampaignFacts, Mode
from kvgate.contract import (
    AnswersClause,
    Clause,
    CompareClause,
    Contract,
    ErrorsClause,
    LimitClause,
)
from kvgate.decide.answers import judge_answers, judge_errors
from kvgate.decide.compare import judge_compare
from kvgate.decide.information import informative
from kvgate.decide.limits import judge_limit
from kvgate.plan import cells_of
from kvgate.reason import Reason
from kvgate.verdict import ClauseVerdict, Decision, GateVerdict, Verdict, worst


def judge(contract: Contract, analysis: Analysis, campaign: CampaignFacts) -> GateVerdict:
    """The gate's verdict and decision; a pure function of its three arguments."""
    gate = campaign.gate
    clauses = tuple(
        _judge_clause(contract, gate, clause, analysis, campaign)
        for clause in contract.gate(gate).clause
    )
    verdict = worst(c.verdict for c in clauses)
    pairs = pairs_measured(contract, gate, analysis)
    decision, why = _decide(contract, campaign, verdict, clauses, pairs)
    return GateVerdict(
        gate=gate,
        campaign=campaign.name,
        run=campaign.run,
        mode=campaign.mode,
        rehearsal=campaign.rehearsal or contract.rehearsal,
        as_of=campaign.as_of,
        contract_id=contract.id,
        contract_digest=contract.digest,
        judged_by=f"kvgate {campaign.kvgate_version}",
        verdict=verdict,
        reason=_gate_reason(verdict, clauses),
        decision=decision,
        decision_reason=why,
        clauses=clauses,
        exclusions=exclusions(analysis),
        findings=informative(contract, gate, analysis, clauses),
        pairs_measured=pairs,
        blocks_measured=len(analysis.blocks),
    )


def _judge_clause(
    contract: Contract, gate: int, clause: Clause, analysis: Analysis, campaign: CampaignFacts
) -> ClauseVerdict:
    result: ClauseVerdict
    if isinstance(clause, CompareClause):
        result = judge_compare(contract, gate, clause, analysis)
    elif isinstance(clause, LimitClause):
        result = judge_limit(clause, analysis, contract.gate(gate).pairs)
    elif isinstance(clause, AnswersClause):
        result = judge_answers(clause, analysis, contract.gate(gate).pairs)
    else:
        result = judge_errors(clause, _pairs_for(contract, gate, analysis, clause))
    if result.verdict is Verdict.FAIL:
        return result
    if clause.id not in campaign.selected:
        # What it measured stays visible, but a clause that was not asked for never passes.
        return replace(result, verdict=Verdict.INVALID, reason=Reason("not_selected"))
    gone = missing_blocks(analysis)
    if gone and result.verdict is Verdict.PASS:
        reason = Reason("blocks_missing", {"block": gone[0], "n": len(gone)})
        return replace(result, verdict=Verdict.INVALID, reason=reason)
    return result


def missing_blocks(analysis: Analysis) -> tuple[int, ...]:
    """Numbers of blocks that are not there: a run numbers what it measured from 0 without a gap."""
    numbers = {b.n for b in analysis.blocks}
    return tuple(sorted(set(range(max(numbers, default=-1))) - numbers))


def all_pairs(contract: Contract, gate: int, analysis: Analysis) -> tuple[Pair, ...]:
    """The pairs of every cell of the gate's plan."""
    plan = contract.gate(gate).pairs
    if plan is None:
        return ()
    return tuple(
        pair
        for cell in dict.fromkeys(cells_of(plan.cells))
        for pair in cell_pairs(analysis, cell.workload, cell.level).pairs
    )


def _pairs_for(
    contract: Contract, gate: int, analysis: Analysis, clause: ErrorsClause
) -> tuple[Pair, ...]:
    """The gate's pairs where the clause compares the same arms; else every block of the tested arm
    beside the reference arm's first block (of the same cell where there is one)."""
    plan = contract.gate(gate).pairs
    if plan is not None and clause.compare == plan.compare:
        return all_pairs(contract, gate, analysis)
    reference, tested = clause.compare
    references = [b for b in analysis.blocks if b.arm == reference]
    if not references:
        return ()
    return tuple(
        Pair(
            b.session, next((r for r in references if r.cell == b.cell), references[0]), b
        )
        for b in analysis.blocks
        if b.arm == tested
    )  # fmt: skip


def pairs_measured(contract: Contract, gate: int, analysis: Analysis) -> int:
    return len({pair.number for pair in all_pairs(contract, gate, analysis)})


def _gate_reason(verdict: Verdict, clauses: tuple[ClauseVerdict, ...]) -> Reason:
    if verdict is Verdict.PASS:
        return Reason("all_clauses_met", {"n": len(clauses)})
    deciding = ", ".join(c.clause for c in clauses if c.verdict is verdict)
    return Reason("clauses_decide", {"verdict": verdict, "clauses": deciding})


def _decide(
    contract: Contract,
    campaign: CampaignFacts,
    verdict: Verdict,
    clauses: tuple[ClauseVerdict, ...],
    pairs: int,
) -> tuple[Decision | None, Reason]:
    """What follows under the contract; a run that does not count is followed by nothing."""
    if campaign.mode is not Mode.COUNTED:
        return None, Reason("does_not_count", {"mode": campaign.mode})
    terms = contract.gate(campaign.gate)
    if verdict is Verdict.PASS:
        last = campaign.gate == contract.gates[-1]
        return Decision.PROCEED, Reason("campaign_complete" if last else "next_gate")
    if verdict is Verdict.FAIL:
        left = terms.retests - campaign.retests_used
        # A wrong answer has no retest: whoever read it may already have acted on it.
        wrong = any(c.form == "answers" and c.verdict is Verdict.FAIL for c in clauses)
        if left > 0 and not wrong:
            return Decision.HOLD, Reason("retest_left", {"n": left})
        return Decision.STOP_LOSS, Reason("stop")
    if verdict is Verdict.INVALID:
        used = campaign.reruns_used + 1
        if used > terms.reruns:
            return Decision.HOLD, Reason("rerun_limit", {"limit": terms.reruns})
        return Decision.RERUN, Reason("rerun", {"used": used, "limit": terms.reruns})
    plan = terms.pairs
    if plan is not None and pairs < plan.max_pairs:
        return Decision.EXTEND, Reason("extend", {"pairs": pairs, "max_pairs": plan.max_pairs})
    limit = 0 if plan is None else plan.max_pairs
    params = {"max_pairs": limit, "decision": terms.at_limit}
    return Decision(terms.at_limit), Reason("limit_reached", params)
