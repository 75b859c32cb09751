"""verify REPORT.pdf: what a report's PDF proves by itself, and what takes the bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvgate.commands.bundles import judged_bundle, require_bundle, stored_verdict
from kvgate.commands.findings import Ask, Findings, Party, add_signatures
from kvgate.errors import CannotMeasure

if TYPE_CHECKING:
    from kvgate.evidence.pdf import AttachedRun, PdfEvidence


def verify_report(path: Path, ask: Ask, bundles: Sequence[Path]) -> Findings:
    """Check the PDF in ``path``, and render it again from ``bundles`` where they are given.

    Raises CannotMeasure, one line, where it is no PDF of ours or a bundle is not intact.
    """
    from kvgate.evidence.pdf import read_pdf

    report = read_pdf(path, every_page=bool(bundles))
    found = Findings([str(p) for p in report.problems])
    if not report.problems:
        found.checked.append(
            "the file's own checksum: no byte changed since it was rendered (it is not signed: a "
            "forger can compute it)"
        )
    for run in report.runs:
        _run(run, ask, found)
    _order(report, found)
    if ask.expect is not None and ask.expect not in {r.manifest_sha256 for r in report.runs}:
        found.problems.append(f"manifest.json: swapped: none has the expected digest {ask.expect}")
    _first_page(report, found)
    if bundles:
        _rendered_again(report, bundles, found)
    else:
        found.unchecked.append(
            "whether the verdict follows from the evidence: that takes the bundle "
            "(kvgate verify BUNDLE)"
        )
        found.unchecked.append(
            f"figures, tables and drawings of its pages ({report.pages}): "
            f"kvgate verify {path} --bundle BUNDLE renders them again and compares"
        )
    found.summary = "; ".join(
        f"G{run.verdict.get('gate')} {run.verdict.get('verdict')}, manifest {run.manifest_sha256}"
        for run in report.runs
    )
    return found


def _run(run: AttachedRun, ask: Ask, found: Findings) -> None:
    from kvgate.evidence.pdf_seal import Name
    from kvgate.evidence.signatures import states_of

    found.problems += ask.contract_problems(str(run.verdict.get("contract_digest")))
    if run.manifest is None:
        return
    if not any(p.startswith((f"verdict{run.tail}.", f"manifest{run.tail}.", f"contract{run.tail}."))
               for p in found.problems):  # fmt: skip
        found.checked.append(
            f"verdict{run.tail}.json and contract{run.tail}.toml are those of the manifest, whose "
            f"chain of {len(run.manifest.files)} files is whole"
        )
    signers = ask.signers(run.contract)
    try:
        states = states_of(run.manifest_bytes, run.signatures, tuple(Party), signers.allowed)
    except CannotMeasure as fault:
        found.problems.append(f"signatures: not checked: {fault}")
        return
    names = [str(Name("signature", run.tail, state.party)) for state in states]
    add_signatures(found, states, signers, names)


def _order(report: PdfEvidence, found: Findings) -> None:
    """The chain between the runs in the PDF, and what it does not hold of it."""
    digests = {run.manifest_sha256 for run in report.runs}
    for run in report.runs:
        before = None if run.manifest is None else run.manifest.previous_manifest_sha256
        if before is not None and before not in digests:
            found.unchecked.append(
                f"the gate before gate {run.verdict.get('gate')}: its manifest {before} is not in "
                "this report"
            )


def _first_page(report: PdfEvidence, found: Findings) -> None:
    from kvgate.report.spoken import first_page_faults, language

    lang = language(report.lang)
    if lang is None:
        found.problems.append(
            f"page 1: changed: it names no language of ours: {report.lang[:40]!r}"
        )
    elif report.runs:
        digests = [run.manifest_sha256 or "unsealed" for run in report.runs]
        faults = first_page_faults(report.texts[0], [r.verdict for r in report.runs], digests, lang)
        found.problems += [f"page 1: changed: {fault}" for fault in faults]
        if not faults:
            found.checked.append("page 1 names the decision, verdict and digests that are inside")


def _rendered_again(report: PdfEvidence, bundles: Sequence[Path], found: Findings) -> None:
    """Judge the bundles anew, render the report from them and compare it with the one given."""
    from kvgate.conduct.workspace import Workspace
    from kvgate.evidence.pdf import read_pdf
    from kvgate.evidence.signatures import read_signatures
    from kvgate.evidence.verify import verify
    from kvgate.report import render_pdf
    from kvgate.report.publish import report_input
    from kvgate.report.spoken import language

    inside = {run.manifest_sha256: run.signatures for run in report.runs}
    before = len(found.problems)
    items = []
    for bundle in bundles:
        require_bundle(bundle)
        found.problems += [f"{bundle}: {problem}" for problem in verify(bundle)]
        judged = judged_bundle(bundle)
        if stored_verdict(judged) != "identical":
            found.problems.append(f"{bundle}: verdict.json: the evidence gives another verdict")
        history = Workspace(judged.bundle.root.resolve().parent).history()
        signed = inside.get(judged.bundle.manifest_sha256, {})
        since = sorted(set(read_signatures(bundle)) - set(signed))
        if since:
            found.unchecked.append(f"signatures made since the report: {', '.join(since)}")
        items.append(report_input(judged, history, signed))
    if set(inside) != {item.manifest_sha256 for item in items}:
        found.problems.append("report: swapped: it is of other runs than the bundles given")
        return
    if len(found.problems) == before:
        found.checked.append("the bundles are intact and give the same verdicts")
    in_order = sorted(items, key=lambda item: (item.verdict.gate, item.verdict.run))
    as_given = all(one is two for one, two in zip(items, in_order, strict=True))
    with tempfile.TemporaryDirectory(prefix="kvgate-report-") as scratch:
        again = Path(scratch) / "again.pdf"
        for order in [items] if as_given else [in_order, items]:
            render_pdf(order, language(report.lang) or "en", again)
            if again.read_bytes() == report.data:
                told = "the report rendered from them again is the same, byte for byte"
                found.checked.append(told)
                return
        ours = read_pdf(again, every_page=True)
    if ours.pages != report.pages:
        told = f"report: changed: it has {report.pages} pages, the evidence gives {ours.pages}"
        found.problems.append(told)
        return
    differing = [
        n
        for n, (mine, theirs) in enumerate(zip(ours.texts, report.texts, strict=True), start=1)
        if mine.split() != theirs.split()
    ]
    if differing:
        pages = ", ".join(map(str, differing[:20]))
        hint = " (give the bundles in the order of the report)" if len(bundles) > 1 else ""
        found.problems.append(f"report: changed: pages {pages} say something else{hint}")
    else:
        found.checked.append(f"the words of all {report.pages} pages are those of the evidence")
        found.unchecked.append(
            "drawings: the bytes differ (another version of kvgate, its fonts or libraries, "
            "another history beside the bundles, or a change of the drawings)"
        )
