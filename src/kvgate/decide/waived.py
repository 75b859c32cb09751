"""Which waivers count, and what they let go. The evidence's verdict stays what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kvgate.campaign import CampaignFacts, deadline_of, moment_of
from kvgate.contract import AnswersClause, Contract
from kvgate.verdict import ClauseVerdict, Verdict, WaiverShown
from kvgate.waiver import SignedWaiver, Standing, agreed, standing

ABOUT_ANSWERS = frozenset({"wrong_answers", "soak_wrong_answers"})
"""Metrics of wrong answers: whoever read one may already have acted on it."""


def stand(
    contract: Contract, campaign: CampaignFacts, verdicts: Sequence[ClauseVerdict]
) -> tuple[tuple[SignedWaiver, Standing], ...]:
    """Every waiver presented for this gate, and whether it counts at the run's ``as_of``.

    Only what was measured can be let go: the parties may accept a value, not its absence.
    """
    unmeasured = {c.clause for c in verdicts if c.verdict is Verdict.INVALID}
    gate = campaign.gate
    as_of = moment_of(campaign.as_of) or datetime.max.replace(tzinfo=UTC)
    clauses = {c.id: c for c in contract.gate(gate).clause}
    found = []
    for given in campaign.waivers:
        waiver = given.waiver
        if waiver.gate != gate:
            continue
        state = standing(
            given, campaign=campaign.name, contract_digest=contract.digest, as_of=as_of
        )  # fmt: skip
        clause = clauses.get(waiver.clause)
        if state is Standing.IN_FORCE and waiver.clause != deadline_of(gate):
            if clause is None:
                state = Standing.FOREIGN
            elif isinstance(clause, AnswersClause) or clause.metric in ABOUT_ANSWERS:
                state = Standing.NOT_WAIVABLE
            elif waiver.clause in unmeasured:
                state = Standing.NOT_MEASURED
        found.append((given, state))
    return agreed(found)


def let_go(
    waivers: Sequence[tuple[SignedWaiver, Standing]],
) -> Mapping[str, tuple[str, ...]]:
    """Clause (or deadline) -> the parties whose waivers in force let it go."""
    found: dict[str, tuple[str, ...]] = {}
    for given, state in waivers:
        if state is Standing.IN_FORCE:
            party = given.waiver.party
            found[given.waiver.clause] = tuple(
                sorted({*found.get(given.waiver.clause, ()), party})
            )  # fmt: skip
    return found


def with_waivers(
    clauses: Sequence[ClauseVerdict], gone: Mapping[str, tuple[str, ...]]
) -> tuple[ClauseVerdict, ...]:
    """The clauses that were not met and are let go carry the parties that did so."""
    return tuple(
        c if c.accepted or c.clause not in gone else replace(c, waived_by=gone[c.clause])
        for c in clauses
    )


def shown(
    waivers: Sequence[tuple[SignedWaiver, Standing]], used: frozenset[str]
) -> tuple[WaiverShown, ...]:
    """All of them for the reader; ``used`` are the clauses (or the deadline) that were let go."""
    return tuple(
        WaiverShown(
            given.waiver.clause,
            given.waiver.party,
            given.waiver.reason,
            given.waiver.granted,
            given.waiver.expires,
            state.value,
            state is Standing.IN_FORCE and given.waiver.clause in used,
        )
        for given, state in waivers
    )
