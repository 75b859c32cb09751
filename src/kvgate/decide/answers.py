"""Are the answers after a restore the recomputed ones? And does only the appliance err?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scipy.stats import beta

from kvgate.analyse.agreement import differs
from kvgate.analyse.pairs import Pair
from kvgate.analyse.results import Analysis, Answer, BlockResult
from kvgate.cells import Setup, measured_in, of_clause
from kvgate.contract import AnswersClause, ErrorsClause, PairPlan
from kvgate.decide.wording import number, percent
from kvgate.reason import Param, Reason
from kvgate.verdict import About, ClauseVerdict, Figure, Verdict, worst

ALL_CELLS: Final = "all cells"


def judge_answers(
    clause: AnswersClause, analysis: Analysis, plan: PairPlan | None = None
) -> ClauseVerdict:
    """Probe answers of the tested arm against the reference arm's, in each setup on its own; the
    worst setup is the clause's verdict."""
    planned = () if plan is None else of_clause(clause, measured_in(plan, clause.arm))
    setups = dict.fromkeys(cell.setup for cell in planned) or (Setup(),)
    figures = tuple(
        _figure(clause, _in_setup(clause, analysis, setup), plan, setup.of(clause.workload))
        for setup in setups
    )
    verdict = worst(f.verdict for f in figures)
    reason = next(f.reason for f in figures if f.verdict is verdict)
    return ClauseVerdict(
        clause.id, "answers", clause.metric, clause.text.model_dump(), verdict, reason, figures
    )


def _in_setup(clause: AnswersClause, analysis: Analysis, setup: Setup) -> Analysis:
    """What was measured in a setup. The reference has no store, so it answers for every distance
    of what was stored once."""
    blocks = tuple(
        b
        for b in analysis.blocks
        if b.cell.setup == setup
        or (b.arm == clause.reference_arm and b.cell.setup.stored == setup.stored)
    )
    numbers = {b.n for b in blocks}
    answers = tuple(a for a in analysis.answers if a.block in numbers)
    return replace(analysis, blocks=blocks, answers=answers)


def _figure(clause: AnswersClause, analysis: Analysis, plan: PairPlan | None, where: str) -> Figure:
    """The answers of one setup.

    The floor is the engine against itself: reference prompts answered in more than one block. Where
    it disagrees with itself more than the contract tolerates, nothing is said of the appliance.

    Every finished answer of the tested arm is looked at. One that was restored and is wrong speaks
    against the appliance, whatever else was wrong with its block. A wrong one whose block restored
    nothing, lost its engine or its client has a cause that cannot be told: never a FAIL and never a
    PASS. Right ones count towards ``min_answers`` only from valid blocks, of which ``plan`` lets
    only so many be excluded, and none of them by the appliance's own fault.
    """
    told = _told_apart(clause, analysis)
    tolerance, allowed = clause.logprob_tolerance, clause.wrong_share_at_most
    own, n, count = told.own, len(told.restored), sum(told.restored)
    excluded, spoiled = _excluded(clause, analysis), _spoiled(clause, analysis)
    limit = 1.0 if plan is None else plan.excluded_share_at_most
    share = count / n if n else None
    shown: dict[str, Param] = {"count": count, "n": n, "tolerance": f"{number(tolerance)} nat"}
    verdict = Verdict.INVALID
    if own and sum(own) / len(own) > allowed:
        reason = Reason("engine_disagrees_with_itself", {"count": sum(own), "n": len(own)})
    elif share is not None and share > allowed:
        verdict, reason = Verdict.FAIL, Reason("wrong_answers", shown)
    elif told.unclear and sum(told.unclear) / len(told.unclear) > allowed:
        reason = Reason(
            "wrong_answers_unclear", {"count": sum(told.unclear), "n": len(told.unclear)}
        )
    elif told.without_reference:
        reason = Reason("answers_without_reference", {"count": told.without_reference})
    elif excluded > limit:
        reason = Reason(
            "blocks_excluded",
            {"where": where, "arm": clause.arm, "share": percent(excluded),
             "limit": percent(limit, exact=True)})  # fmt: skip
    elif told.sound < clause.min_answers:
        reason = Reason("few_answers", {"n": told.sound, "needed": clause.min_answers})
    elif not own:
        reason = Reason("no_answer_floor")
    elif spoiled:
        reason = Reason("probe_block_at_fault", {"conditions": ", ".join(spoiled)})
    else:
        verdict, reason = Verdict.PASS, Reason("met")
    return Figure(where, share, "1", "<=", allowed, verdict, reason,
                  n, details={"engine_itself": sum(own) / len(own) if own else None})  # fmt: skip


# Only a restored answer speaks of the appliance and only a recomputed one is a reference.
_NEEDED = frozenset({"declared_source", "engine_alive", "client_ran"})
_OF_A_REFERENCE = _NEEDED | {"responses_possible"}
"""What cannot have happened as its stamps say is no answer to compare with."""


@dataclass(frozen=True, slots=True)
class _Told:
    """Whether each answer was wrong, by what it can speak of.

    ``own``: the engine against itself. ``restored`` and ``unclear``: of the tested arm, from blocks
    that did and did not do what the workload says. ``sound``: different answers that can count.
    """

    own: tuple[bool, ...]
    restored: tuple[bool, ...]
    unclear: tuple[bool, ...]
    without_reference: int
    sound: int


def _told_apart(clause: AnswersClause, analysis: Analysis) -> _Told:
    kept = {b.n: {c.name for c in b.conditions if c.ok is True} for b in analysis.blocks}
    usable = {n for n, names in kept.items() if names >= _NEEDED}
    references = {n for n, names in kept.items() if names >= _OF_A_REFERENCE}
    valid = {b.n for b in analysis.blocks if b.valid}
    every = sorted(analysis.answers, key=lambda a: a.block)
    reference: dict[str, list[Answer]] = {}
    for answer in every:
        if answer.arm == clause.reference_arm and answer.block in references:
            reference.setdefault(answer.prompt_digest, []).append(answer)
    tested = [a for a in every if a.arm == clause.arm]
    known = [a for a in tested if a.prompt_digest in reference]

    def wrong(answer: Answer) -> bool:
        first = reference[answer.prompt_digest][0]
        return differs(first, answer, clause.logprob_tolerance)

    return _Told(
        own=tuple(
            differs(a[0], other, clause.logprob_tolerance)
            for a in reference.values()
            for other in a[1:]
            if other.block != a[0].block
        ),
        restored=tuple(wrong(a) for a in known if a.block in usable),
        unclear=tuple(wrong(a) for a in known if a.block not in usable),
        without_reference=len(tested) - len(known),
        sound=len({(a.block, a.prompt_digest) for a in known if a.block in valid & usable}),
    )


def _spoiled(clause: AnswersClause, analysis: Analysis) -> tuple[str, ...]:
    """Conditions that the appliance itself broke in probe blocks: what it did not restore there
    must not leave only right answers behind."""
    return tuple(
        sorted(
            {
                c.name
                for b in analysis.blocks
                if b.arm == clause.arm and b.cell.workload == clause.workload and not b.interrupted
                for c in b.conditions
                if c.about is About.APPLIANCE and c.ok is False
            }
        )
    )


def _excluded(clause: AnswersClause, analysis: Analysis) -> float:
    """Share of the tested arm's probe blocks that broke a condition."""
    blocks = [
        b
        for b in analysis.blocks
        if b.arm == clause.arm and b.cell.workload == clause.workload and not b.interrupted
    ]
    return sum(not b.valid for b in blocks) / len(blocks) if blocks else 0.0


def judge_errors(
    clause: ErrorsClause, pairs: Sequence[Pair], setups: Sequence[Setup] = ()
) -> ClauseVerdict:
    """Failed requests of the tested arm where the paired reference blocks were healthy, in enough
    pairs of each of ``setups``.

    An arm that fails in one of several setups cannot hide behind the requests of the others: each
    alone may stop it, with the risk of an error divided over them.
    """
    several = tuple(setups) if len(setups) > 1 else ()
    for setup in several:
        mine = [p for p in pairs if p.test.cell.setup == setup]
        alone = _errors_of(clause, mine, (setup,), setup.of(ALL_CELLS), 0.05 / len(several))
        if alone.verdict is Verdict.FAIL:
            return alone
    return _errors_of(clause, pairs, setups, ALL_CELLS, 0.05)


def _errors_of(
    clause: ErrorsClause, pairs: Sequence[Pair], setups: Sequence[Setup], where: str, risk: float
) -> ClauseVerdict:
    """The clause over these pairs together.

    Blocks in which instrument or environment were at fault say nothing about the appliance. Where
    the reference fails too, a pair in which it happened to be healthy proves nothing: the appliance
    is at fault only if the pairs that speak against it outnumber those.
    """
    usable = [p for p in pairs if _only_own_faults(p.reference) and _only_own_faults(p.test)]
    healthy = [p for p in usable if p.reference.failed_share == 0.0]
    failed = sum(_failed(p.test) for p in healthy)
    n = sum(p.test.statistics.n_requests for p in healthy)
    kinds = _kinds([p.test.statistics.failed_by_outcome for p in healthy])
    by_setup: dict[Setup, set[int]] = {setup: set() for setup in setups}
    for pair in healthy:
        by_setup.setdefault(pair.test.cell.setup, set()).add(pair.number)
    n_pairs = min((len(numbers) for numbers in by_setup.values()), default=0)
    share = failed / n if n else None
    both = sum(_failed(p.reference) > 0 for p in usable)
    against = sum(_failed(p.test) > 0 for p in healthy)
    over = share is not None and share > clause.share_at_most
    beyond_chance = over and _share_at_least(failed, n, risk) > clause.share_at_most
    if beyond_chance and n_pairs >= clause.min_pairs and against > both:
        reason = Reason("appliance_errors", {"count": failed, "n": n, "kinds": kinds,
                                             "reference": clause.compare[0]})  # fmt: skip
        verdict = Verdict.FAIL
    elif both and any(_failed(p.test) for p in usable):
        everywhere = _kinds([p.reference.statistics.failed_by_outcome for p in usable])
        verdict, reason = Verdict.INVALID, Reason("errors_everywhere", {"kinds": everywhere})
    elif n_pairs < clause.min_pairs:
        verdict, reason = Verdict.INVALID, _too_few(by_setup, clause.min_pairs)
    elif over and not beyond_chance:
        verdict, reason = Verdict.INCONCLUSIVE, Reason(
            "failures_open", {"count": failed, "n": n,
                              "limit": percent(clause.share_at_most, exact=True)})  # fmt: skip
    elif share is None or share > clause.share_at_most:
        verdict, reason = Verdict.INVALID, Reason(
            "failures_unclear", {"share": "–" if share is None else percent(share)})  # fmt: skip
    else:
        verdict, reason = Verdict.PASS, Reason("met")
    figure = Figure(where, share, "1", "<=", clause.share_at_most, verdict, reason, n)
    return ClauseVerdict(
        clause.id, "errors", clause.metric, clause.text.model_dump(), verdict, reason, (figure,)
    )


def _too_few(by_setup: Mapping[Setup, Collection[int]], needed: int) -> Reason:
    """Of several setups the thinnest is named: who reads "all cells" would look in vain."""
    thin = min(by_setup, key=lambda s: len(by_setup[s]), default=Setup())
    n = len(by_setup.get(thin, ()))
    if len(by_setup) < 2:
        return Reason("few_healthy_pairs", {"n": n, "needed": needed})
    where = thin.label or Reason("plain_setup")
    return Reason("few_healthy_pairs_in", {"where": where, "n": n, "needed": needed})


def _share_at_least(failed: int, n: int, risk: float) -> float:
    """Lower end of the one-sided interval of a share that misses it with probability ``risk`` at
    most; above 0 from one failure on (Clopper-Pearson)."""
    return float(beta.ppf(risk, failed, n - failed + 1)) if failed else 0.0


def _failed(block: BlockResult) -> int:
    return block.statistics.n_requests - block.statistics.n_ok


def _only_own_faults(block: BlockResult) -> bool:
    """No broken condition about the instrument, and the engine lived through the block."""
    return all(
        c.ok is True
        for c in block.conditions
        if c.about is About.INSTRUMENT or c.name in {"engine_alive", "engine_cache_cold"}
    )


def _kinds(failures: Sequence[Mapping[str, int]]) -> str:
    total: Counter[str] = Counter()
    for by_outcome in failures:
        total.update(by_outcome)
    return ", ".join(f"{kind} {count}" for kind, count in sorted(total.items())) or "none"
