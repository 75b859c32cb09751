"""The report as data for its templates: page 1, a gate's chapters, the appendix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from kvgate.contract import LimitClause
from kvgate.criterion import METRICS, Source
from kvgate.report.charts import level_chart
from kvgate.report.clauses import ClauseView, Why, clause_text, clause_views, why_lines
from kvgate.report.effects import measured, required, terms_of
from kvgate.report.inputs import FileDigest, GateHistory, ReportInput
from kvgate.report.numbers import count, number, percent, size
from kvgate.report.palette import DECISION
from kvgate.report.soak_chart import soak_chart
from kvgate.report.svg import icon
from kvgate.report.tables import (
    BlockRow,
    BreachRow,
    Capped,
    Comparison,
    ConditionRow,
    Matrix,
    abreast,
    block_rows,
    breach_rows,
    capped,
    compare,
    condition_rows,
    matrices,
)
from kvgate.report.texts import Texts
from kvgate.report.words import sentence as as_sentence
from kvgate.verdict import Decision, GateVerdict, Verdict

UNCOUNTED: Final = frozenset({"engineering", "repeat"})
"""Modes that have a mark of their own."""
GLOSSARY: Final = (
    "appliance", "arm", "block", "pair", "level", "session", "ttft", "itl", "throughput",
    "cold_restore", "interval", "threshold", "indifference", "design", "invalid", "inconclusive",
    "rehearsal", "bundle",
)  # fmt: skip
METHOD: Final = ("unit", "effect", "looks", "pass", "fail", "worst", "validity", "absence")
REFERENCES: Final = ("jennison", "hsd", "student", "theil", "open")


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
    colour: str
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
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class GateView:
    """Everything a gate's chapters show."""

    key: str
    number: int
    front: Front
    clauses: tuple[ClauseView, ...]
    with_mini: bool
    level_charts: tuple[Markup, ...]
    matrices: tuple[Matrix, ...]
    soak: Markup
    soak_events: tuple[tuple[str, ...], ...]
    blocks: Capped[BlockRow]
    conditions: tuple[ConditionRow, ...]
    breaches: Capped[BreachRow]
    arms: Comparison | None
    hosts: tuple[Comparison, ...]
    findings: tuple[str, ...]
    waivers: tuple[str, ...]
    retests: tuple[str, ...]
    reruns: tuple[str, ...]
    history: tuple[tuple[str, ...], ...]
    bundle: str
    manifest: str
    files: Capped[tuple[str, str, str]]
    contract_digest: str
    exclusions: int


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """One gate's run in the table of a campaign's first page."""

    anchor: str
    gate: str
    title: str
    run: str
    verdict: Verdict
    icon: Markup
    decision: str
    reason: str
    as_of: str
    manifest: str


@dataclass(frozen=True, slots=True)
class ReportView:
    """The whole report."""

    lang: str
    title: str
    marks: tuple[str, ...]
    stamp: str
    created: str
    gates: tuple[GateView, ...]
    overview: Front | None
    campaign: tuple[CampaignRow, ...]
    glossary: tuple[tuple[str, str], ...]
    method: tuple[str, ...]
    references: tuple[str, ...]
    judged_by: str
    contents: tuple[tuple[tuple[str, str, str], ...], ...]


def moment(text: str) -> datetime:
    """``as_of`` as a time in UTC; the epoch where it is no time, so that bytes stay fixed."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _as_of(text: str) -> str:
    at = moment(text)
    return text if at.timestamp() == 0 else at.strftime("%Y-%m-%d %H:%M UTC")


def counts(verdict: GateVerdict) -> bool:
    """Whether the run counts: a decision follows from it."""
    return verdict.decision is not None


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


def report_view(inputs: Sequence[ReportInput], t: Texts) -> ReportView:
    """All gates of one report; inputs in the order in which they are shown."""
    first = leading(inputs)
    keys = dict.fromkeys(key for source in inputs for key in mark_keys(source.verdict))
    title = t(
        "title.report", appliance=first.contract.appliance.model, campaign=first.verdict.campaign
    )
    gates = tuple(_gate(s, inputs, i, t) for i, s in enumerate(inputs))
    return ReportView(
        lang=t.lang,
        title=title,
        marks=tuple(t(f"mark.{key}") for key in keys),
        stamp=t(f"stamp.{next(iter(keys))}") if keys else "",
        created=max(moment(s.verdict.as_of) for s in inputs).strftime("%Y-%m-%dT%H:%M:%SZ"),
        gates=gates,
        overview=_front(first, inputs, t) if len(inputs) > 1 else None,
        campaign=tuple(_campaign_row(s, g, t) for s, g in zip(inputs, gates, strict=True)),
        glossary=tuple((t(f"glossary.{k}.term"), t(f"glossary.{k}.text")) for k in GLOSSARY),
        method=tuple(t(f"method.{key}") for key in METHOD),
        references=tuple(t(f"references.{key}") for key in REFERENCES),
        judged_by=first.verdict.judged_by,
        contents=_contents(gates, t),
    )


def _campaign_row(source: ReportInput, view: GateView, t: Texts) -> CampaignRow:
    v = source.verdict
    return CampaignRow(
        anchor=view.key,
        gate=view.front.gate,
        title=view.front.title,
        run=count(v.run),
        verdict=v.verdict,
        icon=icon(v.verdict),
        decision=view.front.word,
        reason=as_sentence(v.reason.text(t.lang), t.lang),
        as_of=_as_of(v.as_of),
        manifest=view.manifest[:16],
    )


def _contents(gates: Sequence[GateView], t: Texts) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """Number, anchor and title of each chapter in the order of the templates, in two columns."""
    rows: list[tuple[str, str]] = []
    for g in gates:
        tail = f" · {g.front.gate}" if len(gates) > 1 else ""
        present = {
            "clauses": True,
            "hosts": bool(g.matrices),
            "soak": bool(g.soak),
            "blocks": g.blocks.total > 0,
            "validity": True,
            "environment": True,
            "record": True,
            "evidence": True,
        }
        names = [name for name, there in present.items() if there]
        titles = {"blocks": "measurements"}
        rows += [(f"{g.key}-{n}", t(f"chapter.{titles.get(n, n)}") + tail) for n in names]
    rows += [("method", t("chapter.method")), ("glossary", t("chapter.glossary"))]
    numbered = [(str(i), anchor, title) for i, (anchor, title) in enumerate(rows, start=1)]
    half = (len(numbered) + 1) // 2
    return tuple(tuple(numbered[i::half]) for i in range(half))


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
        word = t(f"decision.{_key(state)}.word") if gate in known else t("step.closed")
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


def _key(decision: str) -> str:
    return decision if decision in set(Decision) else "NONE"


def _front(source: ReportInput, inputs: Sequence[ReportInput], t: Texts) -> Front:
    v, contract = source.verdict, source.contract
    terms = contract.gate(v.gate)
    key = _key(v.decision.value if v.decision else "")
    open_ = [c.clause for c in v.clauses if c.verdict is v.verdict and not c.accepted]
    names = t("list").join(open_) or t("clauses.none")
    later = [n for n in contract.gates if n > v.gate]
    variant = f"decision.{key}.{v.verdict.value}"
    sentence = t.find(variant, t.sentences[f"decision.{key}.sentence"]).format(
        clauses=names, n=len(v.clauses), gate=v.gate, next=later[0] if later else ""
    )
    if v.decision is Decision.PROCEED and not later:
        sentence = t("decision.PROCEED.last", n=len(v.clauses))
    follows = [
        as_sentence(v.decision_reason.text(t.lang), t.lang),
        *_follows(source, later, key, t),
    ]
    return Front(
        gate=t("gate", n=v.gate),
        title=terms.title.in_(t.lang),
        colour=DECISION[v.decision],
        tone={Decision.PROCEED: "pass", Decision.STOP_LOSS: "fail", Decision.EXTEND: "inconclusive"}
        .get(v.decision, "invalid") if v.decision else "none",
        word=t(f"decision.{key}.word"),
        code=t(f"decision.{key}.code"),
        sentence=sentence,
        why_gate=as_sentence(v.reason.text(t.lang), t.lang),
        verdict=v.verdict,
        verdict_word=t(f"verdict.{v.verdict.value}"),
        icon=icon(v.verdict, 13),
        why=why_lines(source, t),
        certainty=_certainty(source, t),
        follows=tuple(follows),
        facts=_facts(source, t),
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
        (t("facts.campaign"), v.campaign),
        (t("facts.run"), t("facts.run_value", run=v.run, mode=t.find(f"mode.{v.mode}", v.mode))),
        (t("facts.as_of"), _as_of(v.as_of)),
        (t("facts.measured"), _measured(v, t)),
        (t("facts.judged_by"), v.judged_by),
    ]
    if scale != 1.0:
        rows[10] = (
            rows[10][0],
            f"{rows[10][1]} · {t('facts.scale', scale=number(scale, '', 'en'))}",
        )
    return tuple(rows)


def _measured(v: GateVerdict, t: Texts) -> str:
    if v.blocks_measured == 0:
        return t("facts.no_blocks")
    return t("facts.measured_value", pairs=v.pairs_measured, blocks=v.blocks_measured)


def _gate(source: ReportInput, inputs: Sequence[ReportInput], i: int, t: Texts) -> GateView:
    v, contract, analysis = source.verdict, source.contract, source.analysis
    clauses = clause_views(source, t)
    arms = [arm for arm in contract.arms if arm in source.environment]
    hosts = [name for name in sorted(source.environment) if name not in contract.arms]
    charts = [
        level_chart(analysis, "ttft_p50_s", "s", t("chart.ttft"), contract, t),
        level_chart(analysis, "output_tok_per_s", "tok/s", t("chart.throughput"), contract, t),
    ]
    plan = contract.gate(v.gate).soak
    files = [FileDigest(*f) for f in source.files]
    return GateView(
        key=f"g{v.gate}-{i}",
        number=v.gate,
        front=_front(source, [source], t) if len(inputs) == 1 else _front(source, inputs, t),
        clauses=clauses,
        with_mini=any(row.mini for c in clauses for row in c.front),
        level_charts=tuple(chart for chart in charts if chart),
        matrices=_matrix(source, t),
        soak=soak_chart(analysis, plan, t) if plan is not None else Markup(""),
        soak_events=_events(source, t),
        blocks=block_rows(analysis, t),
        conditions=condition_rows(analysis, t),
        breaches=breach_rows(source, t),
        arms=compare(source.environment, arms, t) if arms else None,
        hosts=tuple(
            compare(source.environment, page, t, by_difference=False) for page in abreast(hosts)
        ),
        findings=tuple(as_sentence(f.text(t.lang), t.lang) for f in v.findings),
        waivers=source.waivers,
        retests=source.retests,
        reruns=source.reruns,
        history=_history(source, t),
        bundle=source.bundle,
        manifest=source.manifest_sha256 or t("evidence.unsealed"),
        files=capped([(f.path, size(f.size), f.sha256) for f in files]),
        contract_digest=v.contract_digest,
        exclusions=len(v.exclusions),
    )


def _history(source: ReportInput, t: Texts) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            t("gate", n=h.gate),
            h.verdict,
            t(f"decision.{_key(h.decision)}.word"),
            _as_of(h.as_of),
            h.digest[:16],
        )
        for h in (GateHistory(*entry) for entry in source.campaign_history)
    )


def _matrix(source: ReportInput, t: Texts) -> tuple[Matrix, ...]:
    """Clauses on facts of hosts, by host."""
    rows, hosts = (
        [],
        dict.fromkeys(h for group in source.analysis.expected_hosts.values() for h in group),
    )
    for clause in source.verdict.clauses:
        metric = METRICS.get(clause.metric)
        terms = terms_of(source.contract, source.verdict.gate, clause.clause)
        if metric is None or metric.source is not Source.FACT or not isinstance(terms, LimitClause):
            continue
        values = {
            f.where: (measured(f, clause.metric, terms, t), f.verdict) for f in clause.figures
        }
        hosts.update(dict.fromkeys(values))
        limit = required(clause.figures[0], clause.metric, terms, t) if clause.figures else "–"
        rows.append((clause.clause, clause_text(clause, t.lang), limit, values))
    return matrices(list(hosts), rows) if rows else ()


def _events(source: ReportInput, t: Texts) -> tuple[tuple[str, ...], ...]:
    events = sorted(source.analysis.events, key=lambda e: e.at_s)
    proof = {True: t("yes"), False: t("no"), None: "–"}
    return tuple(
        (
            count(i),
            number(e.at_s, "s", t.lang),
            t.find(f"event.{e.kind}", e.kind),
            e.detail,
            proof[e.proved],
        )
        for i, e in enumerate(events, start=1)
    )
