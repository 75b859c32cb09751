"""A report's PDF against the evidence that it carries: what can be said without the bundle.

Anybody may have written the PDF. A process of its own takes it apart (:mod:`.pdf_parts`); here its
parts are held against each other. Whether the verdict follows from the evidence cannot be seen
without the bundle, and what the pages show can be tied to it only by rendering them again.
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kvgate.canonical import sha256_hex
from kvgate.contract import Contract, parse_contract
from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import layout
from kvgate.evidence.manifest import Manifest, parse_manifest
from kvgate.evidence.pdf_parts import CPU_S, MAX_PDF_BYTES
from kvgate.evidence.pdf_seal import Name, checksum_fault, parse_name
from kvgate.evidence.strict_json import parse_strict
from kvgate.evidence.verify import Problem, manifest_problems

_TIMEOUT_S: Final = CPU_S * 4.0


@dataclass(frozen=True, slots=True)
class AttachedRun:
    """What the PDF carries of one run; ``tail`` tells runs apart (empty where there is one).

    ``verdict`` holds plain values from strangers; ``manifest`` is None where none can be read and
    ``contract`` where none is attached or it is not the sealed one.
    """

    tail: str
    verdict: Mapping[str, Any]
    manifest: Manifest | None
    manifest_bytes: bytes
    contract: Contract | None
    signatures: Mapping[str, bytes]

    @property
    def manifest_sha256(self) -> str | None:
        """The bundle's digest; None without a manifest."""
        return sha256_hex(self.manifest_bytes) if self.manifest_bytes else None


@dataclass(frozen=True, slots=True)
class PdfEvidence:
    """A PDF taken apart. ``lang`` is what the PDF says of itself ("en", "zh-CN"), ``texts`` the
    text of its first page, or of each page where it was asked for."""

    runs: tuple[AttachedRun, ...]
    problems: tuple[Problem, ...]
    lang: str
    pages: int
    texts: tuple[str, ...]
    data: bytes = field(repr=False, default=b"")


def is_pdf(path: Path) -> bool:
    """Whether ``path`` is a file that begins as a PDF or is named like one."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(5) == b"%PDF-" or path.suffix.lower() == ".pdf"


def read_pdf(path: Path, *, every_page: bool = False) -> PdfEvidence:
    """Take ``path`` apart and hold its parts against each other.

    Raises CannotMeasure, one line, for a file that is no PDF of ours: encrypted, too large, broken,
    a bomb. Nothing in it is run, and a process with bounded memory and time does the reading.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_PDF_BYTES + 1)
    parts = _parts(data, path, every_page=every_page)
    problems = [Problem("", "active", text) for text in parts["active"]]
    problems += [Problem("", "changed", text) for text in parts["irregular"]]
    fault = checksum_fault(data)
    if fault is not None:
        problems.append(Problem("", "changed", fault))
    groups: dict[str, dict[str, bytes]] = {}
    signatures: dict[str, dict[str, bytes]] = {}
    for name, body in parts["files"]:
        parsed = parse_name(name)
        if parsed is None:
            problems.append(Problem(name[:200], "added", "a report carries no such file"))
            continue
        kept = signatures if parsed.kind == "signature" else groups
        into = kept.setdefault(parsed.tail, {})
        key = parsed.party if parsed.kind == "signature" else parsed.kind
        if key in into:
            problems.append(Problem(name, "added", "it is attached twice"))
        elif parsed.kind == "signature" and len(body) > layout.MAX_SIGNATURE_BYTES:
            problems.append(Problem(name, "too_large", f"{len(body)} bytes"))
        else:
            into[key] = body
    runs = [
        _run(tail, groups.get(tail, {}), signatures.get(tail, {}), problems)
        for tail in sorted(groups.keys() | signatures.keys())
    ]
    if not runs:
        problems.append(Problem("verdict.json", "removed", "no evidence is attached"))
    return PdfEvidence(
        runs=tuple(run for run in runs if run is not None),
        problems=tuple(sorted(set(problems))),
        lang=parts["lang"],
        pages=parts["pages"],
        texts=tuple(parts["texts"]),
        data=data,
    )


def _run(
    tail: str, found: Mapping[str, bytes], signatures: Mapping[str, bytes], problems: list[Problem]
) -> AttachedRun | None:
    """One run's attachments against its manifest; what is wrong goes to ``problems``."""

    def wrong(name: str, kind: str, detail: str) -> None:
        problems.append(Problem(name, kind, detail))

    names = {kind: str(Name(kind, tail)) for kind in ("verdict", "manifest", "contract")}
    for kind in names:
        if kind not in found:
            wrong(names[kind], "removed", "it is not attached")
    if "verdict" not in found:
        return None
    try:
        verdict = parse_strict(found["verdict"], names["verdict"])
    except CannotMeasure as error:
        verdict = None
        wrong(names["verdict"], "changed", error.message)
    if not isinstance(verdict, dict):
        wrong(names["verdict"], "changed", "it is no verdict")
        return None
    if "manifest" not in found:
        return AttachedRun(tail, verdict, None, b"", None, signatures)
    try:
        manifest = parse_manifest(found["manifest"], names["manifest"])
    except CannotMeasure as error:
        wrong(names["manifest"], "changed", error.message)
        return AttachedRun(tail, verdict, None, b"", None, signatures)
    for problem in manifest_problems(manifest, found["manifest"], None):
        about = "" if problem.path == layout.MANIFEST else f"{problem.path}: "
        wrong(names["manifest"], problem.kind, f"{about}{problem.detail}")
    if manifest.partial_reason is not None:
        wrong(
            names["manifest"], "not_sealed", f"the evidence is partial: {manifest.partial_reason}"
        )
    listed = {entry.path: entry.sha256 for entry in manifest.files}
    if listed.get(layout.VERDICT) != sha256_hex(found["verdict"]):
        wrong(names["verdict"], "changed", "the manifest lists another digest for it")
    if verdict.get("rehearsal") is not manifest.rehearsal:
        wrong(names["verdict"], "rehearsal", "verdict and manifest differ on it")
    contract = None
    if "contract" in found:
        digest = sha256_hex(found["contract"])
        if {digest} != {listed.get(layout.CONTRACT), manifest.contract_sha256}:
            wrong(names["contract"], "changed", "the manifest lists another digest for it")
        else:
            contract = _contract(found["contract"], names["contract"], verdict, problems)
    return AttachedRun(tail, verdict, manifest, found["manifest"], contract, signatures)


def _contract(
    data: bytes, name: str, verdict: Mapping[str, Any], problems: list[Problem]
) -> Contract | None:
    try:
        contract = parse_contract(data, name=name)
    except (UsageError, RecursionError) as error:
        problems.append(Problem(name, "changed", f"it cannot be read: {str(error)[:200]}"))
        return None
    if contract.digest != verdict.get("contract_digest"):
        problems.append(Problem(name, "swapped", "the verdict was made under another contract"))
        return None
    return contract


def _parts(data: bytes, path: Path, *, every_page: bool) -> dict[str, Any]:
    remedy = "ask for the report again, or render it from the bundle with kvgate report"
    command = [sys.executable, "-P", "-m", "kvgate.evidence.pdf_parts"]
    if every_page:
        command.append("--every-page")
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotMeasure("it takes too long to read", where=str(path), remedy=remedy) from None
    except BrokenPipeError:
        raise CannotMeasure("its reader was stopped", where=str(path), remedy=remedy) from None
    try:
        said = json.loads(done.stdout) if done.returncode == 0 else None
        if said is not None and "fault" not in said:
            said["files"] = [(f["name"], base64.b64decode(f["data"])) for f in said["files"]]
    except (ValueError, KeyError, TypeError, binascii.Error):
        said = None
    if said is None:
        fault = f"its reader was stopped by the limits of memory and time ({CPU_S} s)"
        raise CannotMeasure(fault, where=str(path), remedy=remedy)
    if "fault" in said:
        raise CannotMeasure(str(said["fault"]), where=str(path), remedy=remedy)
    plain: dict[str, Any] = said
    return plain
