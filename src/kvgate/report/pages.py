"""The report as data for its templates: page 1, a gate's chapters, the appendix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from kvgate.contract import LimitClause
from kvgate.criterion import METRICS, Source
from kvgate.numbers import count, number, size
from kvgate.report.charts import level_chart
from kvgate.report.clauses import ClauseView, clause_text, clause_views
from kvgate.report.distribution import Distribution, distribution
from kvgate.report.effects import measured, required, terms_of
from kvgate.report.front import Front, front_view, leading, mark_keys
from kvgate.report.inputs import FileDigest, GateHistory, ReportInput
from kvgate.report.ledger import run_rows, waiver_rows
from kvgate.report.moments import as_of_text, decision_key, moment
from kvgate.report.operating import Operating, operating
from kvgate.report.said import reason_text
from kvgate.report.setups import arms_compared, setup_rows
from kvgate.report.signed import signature_rows
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
from kvgate.verdict import Verdict

GLOSSARY: Final = (
    "appliance", "arm", "block", "pair", "level", "session", "ttft", "itl", "throughput",
    "cold_restore", "interval", "threshold", "indifference", "design", "invalid", "inconclusive",
    "certainty", "characteristic", "condition", "waiver", "rehearsal", "bundle",
)  # fmt: skip
METHOD: Final = ("unit", "effect", "looks", "pass", "fail", "worst", "validity", "absence")
REFERENCES: Final = ("armitage", "jennison", "hsd", "student", "theil", "open")


@dataclass(frozen=True, slots=True)
class GateView:
    """Everything a gate's chapters show."""

    key: str
    number: int
    front: Front
    clauses: tuple[ClauseView, ...]
    met: str
    with_mini: bool
    level_charts: tuple[Markup, ...]
    distribution: Distribution | None
    operating: Operating | None
    matrices: tuple[Matrix, ...]
    soak: Markup
    soak_events: tuple[tuple[str, ...], ...]
    blocks: Capped[BlockRow]
    conditions: tuple[ConditionRow, ...]
    breaches: Capped[BreachRow]
    arms: tuple[tuple[str, Comparison], ...]
    setups: tuple[tuple[str, ...], ...]
    hosts: tuple[Comparison, ...]
    findings: tuple[str, ...]
    waivers: tuple[tuple[str, ...], ...]
    runs: tuple[tuple[str, ...], ...]
    history: tuple[tuple[str, ...], ...]
    bundle: str
    manifest: str
    files: Capped[tuple[str, str, str]]
    contract_digest: str
    signatures: tuple[tuple[str, str], ...]
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

    @property
    def chapters(self) -> list[tuple[str, str, str]]:
        """The contents in one column: number, anchor, title."""
        return sorted((row for line in self.contents for row in line), key=lambda r: int(r[0]))


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
        overview=front_view(first, inputs, t) if len(inputs) > 1 else None,
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
        reason=as_sentence(reason_text(v.reason, t), t.lang),
        as_of=as_of_text(v.as_of),
        manifest=view.manifest[:16],
    )


def _contents(gates: Sequence[GateView], t: Texts) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """Number, anchor and title of each chapter in the order of the templates, in three columns."""
    rows: list[tuple[str, str]] = []
    for g in gates:
        tail = f" · {g.front.gate}" if len(gates) > 1 else ""
        present = {
            "clauses": True,
            "operating": g.operating is not None,
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
    deep = (len(numbered) + 2) // 3
    return tuple(tuple(numbered[i::deep]) for i in range(deep))


def _gate(source: ReportInput, inputs: Sequence[ReportInput], i: int, t: Texts) -> GateView:
    v, contract, analysis = source.verdict, source.contract, source.analysis
    clauses = clause_views(source, t)
    hosts = [
        name for name in sorted(source.environment) if name.partition("/")[0] not in contract.arms
    ]
    charts = [
        level_chart(analysis, "ttft_p50_s", "s", t("chart.ttft"), contract, t),
        level_chart(analysis, "output_tok_per_s", "tok/s", t("chart.throughput"), contract, t),
    ]
    plan = contract.gate(v.gate).soak
    # What a reader asks for first stands first: contract, verdict, manifest's own folder.
    files = sorted((FileDigest(*f) for f in source.files), key=lambda f: f.path.count("/"))
    return GateView(
        key=f"g{v.gate}-{i}",
        number=v.gate,
        front=front_view(source, [source], t)
        if len(inputs) == 1
        else front_view(source, inputs, t),
        clauses=clauses,
        met=t("list").join(c.id for c in clauses if c.verdict is Verdict.PASS),
        with_mini=any(row.mini for c in clauses for row in c.front),
        level_charts=tuple(chart for chart in charts if chart),
        distribution=distribution(analysis, contract, t),
        operating=operating(source, t),
        matrices=_matrix(source, t),
        soak=soak_chart(analysis, plan, t) if plan is not None else Markup(""),
        soak_events=_events(source, t),
        blocks=block_rows(analysis, t),
        conditions=condition_rows(analysis, t, v.exclusions),
        breaches=breach_rows(source, t),
        arms=arms_compared(source, t),
        setups=setup_rows(contract, v.gate, t),
        hosts=tuple(
            compare(source.environment, page, t, by_difference=False) for page in abreast(hosts)
        ),
        findings=tuple(as_sentence(reason_text(f, t), t.lang) for f in v.findings),
        waivers=waiver_rows(source, t),
        runs=run_rows(source, t),
        history=_history(source, t),
        bundle=source.bundle,
        manifest=source.manifest_sha256 or t("evidence.unsealed"),
        files=capped([(f.path, size(f.size), f.sha256) for f in files]),
        contract_digest=v.contract_digest,
        signatures=signature_rows(source, t),
        exclusions=len(v.exclusions),
    )


def _history(source: ReportInput, t: Texts) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            t("gate", n=h.gate),
            t.find(f"verdict.{h.verdict}", h.verdict),
            t(f"decision.{decision_key(h.decision)}.word"),
            as_of_text(h.as_of),
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
            e.detail if e.cause is None else reason_text(e.cause, t),
            proof[e.proved],
        )
        for i, e in enumerate(events, start=1)
    )
