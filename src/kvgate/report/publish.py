"""A sealed bundle to the files people read: PDF and HTML in both languages, JUnit, blocks as CSV.

``<run>.blocks.csv`` stands beside the reports, not in the bundle and not in the PDF: it is made
from the evidence like every table of the report, and nothing signs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgate.adjudicate import Judged, adjudicate
from kvgate.campaign import PastRun
from kvgate.errors import CannotMeasure
from kvgate.evidence.signatures import (
    SignatureState,
    allowed_lines,
    read_signatures,
    states_of,
)
from kvgate.report.inputs import FileDigest, GateHistory, ReportInput
from kvgate.report.junit import render_junit
from kvgate.report.moments import moment
from kvgate.report.render import render_html, render_pdf, write_file
from kvgate.report.signed import PARTIES
from kvgate.report.tables import blocks_csv

LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Published:
    """Paths of what was written, in the order in which they are printed."""

    pdf: tuple[Path, ...]
    html: tuple[Path, ...]
    junit: Path
    verdict: Path
    blocks: Path | None = None


def publish(bundle: Path, out: Path, history: Sequence[PastRun] = ()) -> Published:
    """Render every format of one sealed bundle into ``out``; existing files are replaced."""
    judged = adjudicate(bundle)
    item = report_input(judged, history)
    name = bundle.resolve().name
    pdf = tuple(render_pdf([item], lang, out / f"{name}.{lang}.pdf") for lang in LANGUAGES)
    html = tuple(render_html([item], lang, out / f"{name}.{lang}.html") for lang in LANGUAGES)
    junit = write_file(
        out / f"{name}.junit.xml", render_junit(judged.verdict, judged.bundle.manifest_sha256)
    )
    blocks = write_file(out / f"{name}.blocks.csv", blocks_csv(judged.analysis))
    return Published(pdf, html, junit, bundle / "verdict.json", blocks)


def report_input(
    judged: Judged, history: Sequence[PastRun], signatures: Mapping[str, bytes] | None = None
) -> ReportInput:
    """What the report shows of a judged bundle and of the campaign around it.

    ``signatures`` stand in for those of the bundle: a report that was rendered before somebody
    signed can be rendered again as it was.
    """
    bundle, facts = judged.bundle, judged.campaign
    manifest = bundle.manifest
    sealed = bundle.root / "verdict.json"
    if manifest is None:
        signatures = {}
    elif signatures is None:
        found = read_signatures(bundle.root).items()
        signatures = {party: data for party, data in found if isinstance(data, bytes)}
    earlier = tuple(
        GateHistory(p.gate, str(p.verdict), str(p.decision or ""), p.as_of, p.manifest_sha256 or "")
        for p in history
        if p.verdict is not None and (p.gate, p.run) <= (facts.gate, facts.run)
    )
    return ReportInput(
        verdict=judged.verdict,
        contract=judged.contract,
        analysis=judged.analysis,
        environment=_environment(bundle.plan or {}, bundle.facts),
        manifest_sha256=bundle.manifest_sha256,
        files=()
        if manifest is None
        else tuple(FileDigest(f.path, f.size_bytes, f.sha256) for f in manifest.files),
        bundle=bundle.root.resolve().name,  # where it lies says nothing of the evidence
        campaign_history=earlier,
        verdict_json=sealed.read_bytes() if sealed.exists() else None,
        manifest_json=None if manifest is None else manifest.to_bytes(),
        contract_toml=bundle.contract,
        signatures=signatures,
        signed=_signed(judged, signatures),
    )  # fmt: skip


def _signed(judged: Judged, signatures: Mapping[str, bytes]) -> tuple[SignatureState, ...]:
    """By the contract's own keys, as of the verdict's time: the same bundle, the same report."""
    manifest = judged.bundle.manifest
    if manifest is None:
        return ()
    allowed = allowed_lines(judged.contract.parties.signers)
    at = moment(judged.verdict.as_of)
    try:
        return states_of(manifest.to_bytes(), signatures, PARTIES, allowed, at=at)
    except CannotMeasure:
        return ()  # said in the report: not checked


def _environment(
    plan: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Versions and flags of every arm, and what identifies every host."""
    # What was measured of a setup belongs to its blocks: it differs with every start.
    shown = {
        str(arm): _flat({key: said for key, said in info.items() if key != "setup"})
        for arm, info in (plan.get("environment") or {}).items()
    }
    for host, record in facts.items():
        said = record.get("host")
        if not isinstance(said, Mapping):
            continue
        files: Mapping[str, Any] = said.get("files") or {}
        shown[host] = _flat(
            {
                "kernel": (files.get("kernel") or "").strip(),
                "processors": said.get("cpu_count"),
                "processor": (files.get("cpuinfo_model") or "").partition(":")[2].strip(),
                "python": said.get("python_version"),
            }
        )
    return shown


def _flat(info: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """What a role said is running, one short line a key; what changes with every start (process
    ids, byte counts, ports in use) says nothing about a version and is left out."""
    shown: dict[str, str] = {}
    for key, value in sorted(info.items()):
        name = f"{prefix}{key}"
        if value in (None, "", [], {}) or key in _PASSING:
            continue
        if isinstance(value, Mapping):
            shown |= _flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for item in value:
                shown |= _flat(item, f"{name}.")
        elif isinstance(value, list):
            shown[name] = " ".join(str(v) for v in value)
        else:
            shown[name] = value if isinstance(value, str) else json.dumps(value)
    return shown


_PASSING = frozenset(
    {"ok", "action", "pid", "started_ticks", "supervisor_pid", "group_pids", "store_pids", "io",
     "created", "used_bytes", "engine_health", "running", "log", "command", "store_dir", "store"}
)  # fmt: skip
