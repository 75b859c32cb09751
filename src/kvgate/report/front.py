"""Page 1: what is bought, what was decided, why, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from kvgate.numbers import number, percent
from kvgate.report.clauses import Why, why_lines
from kvgate.report.inputs import GateHistory, ReportInput
from kvgate.report.ledger import Ledger, calendar, ledger
from kvgate.report.moments import as_of_text, decision_key
from kvgate.report.said import reason_text
from kvgate.report.svg import icon
from kvgate.report.texts import Texts
from kvgate.report.words import sentence as as_sentence
from kvgate.verdict import Decision, GateVerdict, Verdict

UNCOUNTED: Final = frozenset({"engineering", "repeat", "imported"})
"""Modes that have a mark of their own."""


@dataclass(frozen=True, slots=True)
class Step:
    """One gate in the strip of page 1."""

    label: str
    title: str
    state: str
    verdict: Verdict | None
    icon: Markup
    current: bool


@dataclass(frozen=True, slots=True)
class Front:
    """Page 1 of a gate."""

    gate: str
    title: str
    tone: str
    word: str
    code: str
    sentence: str
    why_gate: str
    verdict: Verdict
    verdict_word: str
    icon: Markup
    why: tuple[Why, ...]
    certainty: str
    follows: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    ledger: Ledger | None
    steps: tuple[Step, ...]


def counts(verdict: GateVerdict) -> bool:
    """Whether the run counts: a decision follows from it."""
    return verdict.decision is not None


_TONES: Final = {
    Decision.PROCEED: "pass",
    Decision.STOP_LOSS: "fail",
    Decision.EXTEND: "inconclusive",
    Decision.RERUN: "invalid",
    Decision.HOLD: "invalid",
}


def _tone(verdict: GateVerdict) -> str:
    """Colour of page 1's band: that of the decision; what goes on under waiver is no green."""
    if verdict.decision is None:
        return "none"
    return "inconclusive" if under_waiver(verdict) else _TONES[verdict.decision]


def under_waiver(verdict: GateVerdict) -> bool:
    """Whether the campaign goes on although something is not met: the parties let it go."""
    return verdict.decision is Decision.PROCEED and verdict.verdict is not Verdict.PASS


def waived_clauses(verdict: GateVerdict) -> list[str]:
    return [c.clause for c in verdict.clauses if c.waived]


def mark_keys(verdict: GateVerdict) -> list[str]:
    """Marks that every page carries."""
    keys = ["rehearsal"] if verdict.rehearsal else []
    if verdict.mode in UNCOUNTED:
        keys.append(verdict.mode)
    elif not counts(verdict):
        keys.append("uncounted")
    return keys


def leading(inputs: Sequence[ReportInput]) -> ReportInput:
    """The gate that page 1 of a campaign speaks of.

    Of the newest counting run of each gate: the first that does not proceed, else the last.
    """
    newest: dict[int, ReportInput] = {}
    for source in sorted(inputs, key=lambda s: (s.verdict.gate, s.verdict.run)):
        if counts(source.verdict):
            newest[source.verdict.gate] = source
    ordered = [newest[gate] for gate in sorted(newest)]
    for source in ordered:
        if source.verdict.decision is not Decision.PROCEED:
            return source
    return ordered[-1] if ordered else inputs[-1]


def _steps(source: ReportInput, inputs: Sequence[ReportInput], t: Texts) -> tuple[Step, ...]:
    """The campaign's gates with what is known of each."""
    known: dict[int, tuple[str, Verdict | None]] = {}
    for entry in (GateHistory(*h) for s in inputs for h in s.campaign_history):
        verdict = Verdict(entry.verdict) if entry.verdict in set(Verdict) else None
        known[entry.gate] = (entry.decision or entry.verdict, verdict)
    for s in sorted(inputs, key=lambda i: i.verdict.run):
        state = s.verdict.decision.value if s.verdict.decision else ""
        known[s.verdict.gate] = (state, s.verdict.verdict)
    steps = []
    for gate in source.contract.gates:
        state, verdict = known.get(gate, ("", None))
        word = t(f"decision.{decision_key(state)}.word") if gate in known else t("step.closed")
        steps.append(
            Step(
                label=t("gate", n=gate),
                title=source.contract.gate(gate).title.in_(t.lang),
                state=word,
                verdict=verdict,
                icon=Markup("") if verdict is None else icon(verdict, 10),
                current=gate == source.verdict.gate,
            )
        )
    return tuple(steps)


def front_view(source: ReportInput, inputs: Sequence[ReportInput], t: Texts) -> Front:
    """Page 1 of ``source``; the other inputs only tell the state of their gates."""
    v, contract = source.verdict, source.contract
    terms = contract.gate(v.gate)
    key = decision_key(v.decision.value if v.decision else "")
    open_ = [c.clause for c in v.clauses if c.verdict is v.verdict and not c.accepted]
    names = t("list").join(open_) or t("clauses.none")
    later = [n for n in contract.gates if n > v.gate]
    variant = f"decision.{key}.{v.verdict.value}"
    sentence = t.find(variant, t.sentences[f"decision.{key}.sentence"]).format(
        clauses=names, n=len(v.clauses), gate=v.gate, next=later[0] if later else ""
    )
    if under_waiver(v):
        sentence = t("decision.PROCEED.waived", clauses=t("list").join(waived_clauses(v)))
    elif v.decision is Decision.PROCEED and not later:
        sentence = t("decision.PROCEED.last", n=len(v.clauses))
    follows = [
        as_sentence(reason_text(v.decision_reason, t), t.lang),
        *_follows(source, later, key, t),
    ]
    return Front(
        gate=t("gate", n=v.gate),
        title=terms.title.in_(t.lang),
        tone=_tone(v),
        word=t(f"decision.{key}.word"),
        code=t(f"decision.{key}.code"),
        sentence=sentence,
        why_gate=as_sentence(reason_text(v.reason, t), t.lang),
        verdict=v.verdict,
        verdict_word=t(f"verdict.{v.verdict.value}"),
        icon=icon(v.verdict, 13),
        why=why_lines(source, t),
        certainty=_certainty(source, t),
        follows=tuple(follows),
        facts=_facts(source, t),
        ledger=ledger(source, t),
        steps=_steps(source, inputs, t),
    )  # fmt: skip


def _follows(source: ReportInput, later: list[int], key: str, t: Texts) -> list[str]:
    gates = t("list").join(t("gate", n=n) for n in later)
    lines = []
    if key != Decision.PROCEED and later and counts(source.verdict):
        lines.append(t("follows.closed", gates=gates))
    lines.append(t(f"follows.{key}"))
    return lines


def _certainty(source: ReportInput, t: Texts) -> str:
    v, risk = source.verdict, source.contract.risk
    if not any(f.low is not None for c in v.clauses for f in c.figures):
        return ""
    if v.verdict is Verdict.FAIL:
        return t("certainty.FAIL", risk=percent(risk.producer, exact=True))
    if v.verdict is Verdict.PASS:
        return t("certainty.PASS", risk=percent(risk.consumer, exact=True))
    return ""


def _facts(source: ReportInput, t: Texts) -> tuple[tuple[str, str], ...]:
    v, c = source.verdict, source.contract
    scale = source.analysis.time_scale
    rows = [
        (t("facts.appliance"), c.appliance.model),
        (t("facts.vendor"), c.parties.vendor.in_(t.lang)),
        (t("facts.serials"), t("list").join(c.appliance.serials)),
        (t("facts.buyer"), c.parties.buyer.in_(t.lang)),
        (t("facts.firmware"), c.appliance.firmware),
        (t("facts.site"), c.parties.site.in_(t.lang)),
        (t("facts.contract"), f"{v.contract_id} · {v.contract_digest[:16]}"),
        (t("facts.campaign"), f"{v.campaign} · {_run(v, t)}"),
        (t("facts.as_of"), as_of_text(v.as_of)),
        (t("facts.measured"), _measured(v, t)),
        (t("facts.judged_by"), v.judged_by),
    ]
    if scale != 1.0:
        said = t("facts.scale", scale=number(scale, "", "en"))
        rows[9] = (rows[9][0], f"{rows[9][1]} · {said}")
    if v.deadline is not None:
        rows.insert(9, (t("deadline.label"), calendar(v.deadline, t)))
    return tuple(rows)


def _run(v: GateVerdict, t: Texts) -> str:
    if v.mode == "counted":
        return t("facts.run_number", run=v.run)
    return t("facts.run_value", run=v.run, mode=t.find(f"mode.{v.mode}", v.mode))


def _measured(v: GateVerdict, t: Texts) -> str:
    if v.blocks_measured == 0:
        return t("facts.no_blocks")
    return t("facts.measured_value", pairs=v.pairs_measured, blocks=v.blocks_measured)
