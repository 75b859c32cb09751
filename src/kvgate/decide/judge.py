"""From clauses to the gate's verdict and its decision."""

from __future__ import annotations

from dataclasses import replace

from kvgate.analyse.interrupted import as_first_measured, never_repeated
from kvgate.analyse.pairs import Pair, exclusions
from kvgate.analyse.results import Analysis
from kvgate.campaign import CampaignFacts, deadline_of, deadline_state, moment_of
from kvgate.cells import Setup, cells_of, in_setups, measured_in, of_clause
from kvgate.contract import (
    AnswersClause,
    Clause,
    CompareClause,
    Contract,
    ErrorsClause,
    LimitClause,
)
from kvgate.decide.alike import arms_differ
from kvgate.decide.answers import judge_answers, judge_errors
from kvgate.decide.compare import judge_compare
from kvgate.decide.decision import broken_by_change, decide, of_campaign
from kvgate.decide.ended import NOT_BORNE_OUT, all_pairs, borne_out
from kvgate.decide.information import informative
from kvgate.decide.limits import judge_limit
from kvgate.decide.stop import spent, stop_record
from kvgate.decide.waived import let_go, shown, stand, with_waivers
from kvgate.reason import Reason
from kvgate.verdict import ClauseVerdict, GateVerdict, Verdict, worst


def judge(contract: Contract, analysis: Analysis, campaign: CampaignFacts) -> GateVerdict:
    """The gate's verdict and decision; a pure function of its three arguments."""
    gate = campaign.gate
    clauses = tuple(
        _judge_clause(contract, gate, clause, analysis, campaign)
        for clause in contract.gate(gate).clause
    )
    waivers = stand(contract, campaign, clauses)
    gone = let_go(waivers)
    clauses = with_waivers(clauses, gone)
    broken = broken_by_change(contract, campaign, analysis.configuration)
    untrue = _untrue_end(contract, analysis, campaign, clauses, reopened=broken is not None)
    if untrue is not None:
        clauses = tuple(
            replace(c, verdict=Verdict.INVALID, reason=untrue) if c.verdict is Verdict.PASS else c
            for c in clauses
        )
    # What was measured after such a change is held against nobody and lets nobody pass.
    verdict = worst(c.verdict for c in clauses) if broken is None else Verdict.INVALID
    if untrue is not None and verdict is not Verdict.FAIL:
        verdict = Verdict.INVALID
    pairs = pairs_measured(contract, gate, analysis)
    as_of = moment_of(campaign.as_of)
    began = moment_of(campaign.began or campaign.as_of)
    deadline = deadline_state(contract, gate, began, as_of)
    word = deadline_of(gate)
    decision, why = decide(
        contract, campaign, verdict, clauses, pairs, broken, deadline, word in gone, untrue
    )  # fmt: skip
    late = {word} if deadline is not None and deadline.missed_by_days else set()
    used = frozenset({c.clause for c in clauses if c.waived} | late)
    so_far = spent(contract, campaign, verdict, decision, analysis.hours, deadline)
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
        reason=_gate_reason(verdict, clauses, why if broken is not None else untrue),
        decision=decision,
        decision_reason=why,
        clauses=clauses,
        exclusions=(*exclusions(analysis), *analysis.soak_exclusions),
        findings=(
            *of_campaign(contract, campaign, analysis.configuration, waivers),
            *informative(contract, gate, analysis, clauses),
            *_interruption_finding(analysis, campaign),
            *(() if untrue is None else (untrue,)),
        ),
        pairs_measured=pairs,
        blocks_measured=len(analysis.blocks),
        deadline=deadline,
        spent=so_far,
        stop=stop_record(contract, campaign, clauses, decision, why, so_far),
        waivers=shown(waivers, used),
        interruptions=campaign.interruptions,
    )


def _judge_clause(
    contract: Contract, gate: int, clause: Clause, analysis: Analysis, campaign: CampaignFacts
) -> ClauseVerdict:
    result = _measured(contract, gate, clause, analysis)
    first = as_first_measured(analysis)
    if (
        first is not analysis
        and result.verdict in (Verdict.PASS, Verdict.FAIL)
        and _measured(contract, gate, clause, first).verdict is not result.verdict
    ):
        # Whoever breaks off a pair that he has seen must not draw another verdict by it.
        open_ = Reason("interruption_matters")
        result = replace(result, verdict=Verdict.INCONCLUSIVE, reason=open_)
    differ = _more_than_the_store(contract, clause, analysis)
    if differ is not None and result.verdict in (Verdict.PASS, Verdict.FAIL):
        # Neither for nor against the appliance: another build or other flags explain it as well.
        return replace(result, verdict=Verdict.INVALID, reason=differ)
    if result.verdict is Verdict.FAIL:
        return result
    if clause.id not in campaign.selected:
        # What it measured stays visible, but a clause that was not asked for never passes.
        return replace(result, verdict=Verdict.INVALID, reason=Reason("not_selected"))
    if analysis.copied and result.verdict is Verdict.PASS:
        block, original = analysis.copied[0]
        reason = Reason("block_copied", {"block": block, "original": original})
        return replace(result, verdict=Verdict.INVALID, reason=reason)
    gone = missing_blocks(analysis)
    if gone and result.verdict is Verdict.PASS:
        reason = Reason("blocks_missing", {"block": gone[0], "n": len(gone)})
        return replace(result, verdict=Verdict.INVALID, reason=reason)
    broken = _interruption_fault(contract, gate, analysis, campaign)
    if broken is not None and result.verdict is Verdict.PASS:
        return replace(result, verdict=Verdict.INVALID, reason=broken)
    return result


def arms_under_test(contract: Contract) -> frozenset[str]:
    """The arms with the appliance: those that a gate compares with another one."""
    plans = [contract.gate(gate).pairs for gate in contract.gates]
    return frozenset(
        p.compare[1] for p in plans if p is not None and p.compare[0] != p.compare[1]
    )  # fmt: skip


def _measured(contract: Contract, gate: int, clause: Clause, analysis: Analysis) -> ClauseVerdict:
    """What the evidence says of the clause, by its form."""
    if isinstance(clause, CompareClause):
        return judge_compare(contract, gate, clause, analysis)
    if isinstance(clause, LimitClause):
        return judge_limit(clause, analysis, contract.gate(gate).pairs)
    if isinstance(clause, AnswersClause):
        return judge_answers(clause, analysis, contract.gate(gate).pairs)
    return judge_errors(
        clause, _pairs_for(contract, gate, analysis, clause), _setups(contract, gate, clause)
    )


def _setups(contract: Contract, gate: int, clause: ErrorsClause) -> tuple[Setup, ...]:
    """The setups in which the gate measures the arm of which the clause speaks."""
    plan = contract.gate(gate).pairs
    if plan is None:
        return ()
    paired = clause.compare == plan.compare
    cells = cells_of(plan.cells) if paired else measured_in(plan, clause.compare[1])
    planned = of_clause(clause, cells)
    return tuple(dict.fromkeys(cell.setup for cell in planned))


def _more_than_the_store(contract: Contract, clause: Clause, analysis: Analysis) -> Reason | None:
    """Why the arms that the clause sets side by side differ in more than their store."""
    if isinstance(clause, CompareClause | ErrorsClause):
        return arms_differ(contract, clause.compare, analysis.configuration)
    if isinstance(clause, AnswersClause):
        return arms_differ(contract, (clause.reference_arm, clause.arm), analysis.configuration)
    return None


def _interruption_fault(
    contract: Contract, gate: int, analysis: Analysis, campaign: CampaignFacts
) -> Reason | None:
    """Why a run that was interrupted is no measurement; None where it is one.

    What was broken off must have been measured anew, and only as often as the contract grants.
    """
    lost = never_repeated(analysis)
    if lost:
        return Reason("interrupted_not_repeated", {"where": lost[0], "n": len(lost)})
    count, granted = len(campaign.interruptions), contract.gate(gate).interruptions
    if count > granted:
        return Reason("too_many_interruptions", {"n": count, "granted": granted})
    return None


def _interruption_finding(analysis: Analysis, campaign: CampaignFacts) -> tuple[Reason, ...]:
    """That the run was interrupted and gone on with, where it was."""
    if not campaign.interruptions:
        return ()
    blocks = sum(b.interrupted for b in analysis.blocks)
    return (Reason("gone_on", {"n": len(campaign.interruptions), "blocks": blocks}),)


def _untrue_end(
    contract: Contract,
    analysis: Analysis,
    campaign: CampaignFacts,
    clauses: tuple[ClauseVerdict, ...],
    *,
    reopened: bool,
) -> Reason | None:
    """That the run was broken off although it says that it ended; None where it did end."""
    extension = campaign.extends is not None
    if borne_out(
        contract, campaign.gate, analysis, clauses, extension=extension, reopened=reopened
    ):
        return None
    return Reason(NOT_BORNE_OUT, {"n": 0 if analysis.end is None else analysis.end.pairs})


def missing_blocks(analysis: Analysis) -> tuple[int, ...]:
    """Numbers of blocks that are not there: a run numbers what it measured from 0 without a gap."""
    numbers = {b.n for b in analysis.blocks}
    return tuple(sorted(set(range(max(numbers, default=-1))) - numbers))


def _pairs_for(
    contract: Contract, gate: int, analysis: Analysis, clause: ErrorsClause
) -> tuple[Pair, ...]:
    """The gate's pairs where the clause compares the same arms; else every block of the tested arm
    beside the reference arm's first block of the same setup: of the same cell where there is one,
    of another distance where there is no other."""
    plan = contract.gate(gate).pairs
    if plan is not None and clause.compare == plan.compare:
        pairs = all_pairs(contract, gate, analysis)
        return tuple(p for p in pairs if in_setups(clause, p.test.cell))
    reference, tested = clause.compare
    references = [b for b in analysis.blocks if b.arm == reference]
    found = []
    for b in analysis.blocks:
        if b.arm != tested or not in_setups(clause, b.cell):
            continue
        beside = [r for r in references if r.cell.setup.stored == b.cell.setup.stored]
        if beside:
            same = next((r for r in beside if r.cell == b.cell), None)
            near = next((r for r in beside if r.cell.setup == b.cell.setup), beside[0])
            found.append(Pair(b.session, same or near, b))
    return tuple(found)


def pairs_measured(contract: Contract, gate: int, analysis: Analysis) -> int:
    return len({pair.number for pair in all_pairs(contract, gate, analysis)})


def _gate_reason(
    verdict: Verdict, clauses: tuple[ClauseVerdict, ...], no_measurement: Reason | None
) -> Reason:
    if no_measurement is not None and verdict is Verdict.INVALID:
        return no_measurement
    if verdict is Verdict.PASS:
        return Reason("all_clauses_met", {"n": len(clauses)})
    deciding = ", ".join(c.clause for c in clauses if c.verdict is verdict)
    return Reason("clauses_decide", {"verdict": verdict, "clauses": deciding})
