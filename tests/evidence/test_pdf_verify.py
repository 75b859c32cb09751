"""What a report's PDF proves by itself: every careless change, the careful ones that can be seen,
and in so many words what cannot."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdf
import pytest
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

from kvgate.canonical import canonical_json, sha256_hex
from kvgate.cli import main
from kvgate.evidence import pdf, pdf_parts
from kvgate.evidence.manifest import chained, parse_manifest
from kvgate.evidence.pdf_seal import checksum_fault
from kvgate.evidence.signatures import sign
from kvgate.report.system import missing_system_libraries

from .conftest import Reports
from .reports import Attachments, Change, Writer, action, forged

pytestmark = pytest.mark.skipif(
    bool(missing_system_libraries()), reason="Pango is not installed here"
)
Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Told:
    """``told(pdf, *options)``: what ``kvgate verify --json`` says of these bytes. The reader runs
    in this process, which is all that differs from the command."""

    def in_process(data: bytes, path: Path, *, every_page: bool) -> dict[str, Any]:
        parts = pdf_parts.read_parts(data, every_page=every_page)
        bodies = [(f["name"], base64.b64decode(f["data"])) for f in parts["files"]]
        return parts | {"files": bodies}

    monkeypatch.setattr(pdf, "_parts", in_process)

    def run(data: bytes, *options: object) -> dict[str, Any]:
        path = tmp_path / "report.pdf"
        path.write_bytes(data)
        capsys.readouterr()
        code = main(["verify", str(path), "--json", *map(str, options)])
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (code == 0) is (said["problems"] == [])
        return said

    return run


def test_an_untouched_report_is_intact_and_says_what_takes_the_bundle(
    reports: Reports, told: Told
) -> None:
    for name in ("pass.zh", "both.en"):
        said = told(reports.pdf(name))
        assert said["problems"] == []
        assert any("whether the verdict follows" in line for line in said["not_checked"])
        assert any("figures, tables and drawings" in line for line in said["not_checked"])


def test_signatures_are_told_from_the_pdf_alone_and_their_absence_too(
    reports: Reports, told: Told
) -> None:
    said = {s["party"]: s["status"] for s in told(reports.pdf("pass.en"))["signatures"]}
    assert said == {"buyer": "valid", "vendor": "unsigned"}
    assert told(reports.pdf("pass.en"), "--signed-by", "buyer")["problems"] == []
    assert told(reports.pdf("pass.en"), "--signed-by", "vendor")["problems"]
    allowed = reports.root / "allowed"
    allowed.write_text(f"buyer {(reports.root / 'vendor.pub').read_text()}")
    problems = told(reports.pdf("pass.en"), "--allowed-signers", allowed)["problems"]
    assert [p.split(": ")[:3] for p in problems] == [
        ["signature.buyer.sig", "untrusted", "other-key"]
    ]


def test_the_contract_that_was_signed_is_held_against_the_report(
    reports: Reports, told: Told, tmp_path: Path
) -> None:
    terms = (reports.root / "g1-001/contract.toml").read_bytes()
    own = tmp_path / "own.toml"
    own.write_bytes(terms)
    said = told(reports.pdf("pass.en"), "--contract", own)
    assert said["problems"] == []
    assert not any("whose the keys are" in line for line in said["not_checked"])
    own.write_bytes(terms.replace(b"weeks = 10", b"weeks = 11"))
    assert any(p.startswith("contract: ") for p in told(reports.pdf("pass.en"), "--contract", own)[
        "problems"])  # fmt: skip


def test_every_careless_change_is_found(reports: Reports) -> None:
    good = reports.pdf("pass.en")
    assert checksum_fault(good) is None
    chance = random.Random(11)
    for n in range(2_000):
        data = bytearray(good)
        at = chance.randrange(len(data))
        if n % 4 == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif n % 4 == 1:
            del data[at : at + chance.randint(1, 4000)]
        elif n % 4 == 2:
            data[at:at] = chance.randbytes(chance.randint(1, 40))
        else:
            size = chance.randint(1, 500)
            to = chance.randrange(len(data) - size)
            data[to : to + size] = data[at : at + size]
        if bytes(data) != good:
            assert checksum_fault(bytes(data)) is not None, (n, at)


def _body(name: str, change: Callable[[bytes], bytes]) -> Change:
    def edit(writer: Writer) -> None:
        files = Attachments(writer)
        files.replace(name, change(files.body(name)))

    return edit


def _worse(data: bytes) -> bytes:
    return data.replace(b'"PASS"', b'"FAIL"').replace(b'"PROCEED"', b'"STOP-LOSS"')


def _page_from(other: bytes) -> Change:
    def change(writer: Writer) -> None:
        pages = pypdf.PdfReader(io.BytesIO(other)).pages
        writer.insert_page(pages[0], 0)
        writer.remove_page(1)

    return change


def _annotation(subtype: str) -> Change:
    def change(writer: Writer) -> None:
        note = action("Launch")
        note[NameObject("/Subtype")] = NameObject(f"/{subtype}")
        reference = writer._add_object(note)
        writer.pages[0][NameObject("/Annots")] = ArrayObject([reference])

    return change


def _root(key: str, value: Any) -> Change:
    return lambda writer: writer.root_object.update({NameObject(key): value})


def _other_stream(writer: Writer) -> None:
    files = Attachments(writer)
    spec = files.spec("verdict.json")
    spec["/EF"][NameObject("/F")] = files._stream(b"{}")


def _script_by_name(writer: Writer) -> None:
    root: Any = writer.root_object
    names = ArrayObject([TextStringObject("x"), action("JavaScript", JS="app.alert(1)")])
    tree = DictionaryObject({NameObject("/Names"): names})
    root["/Names"][NameObject("/JavaScript")] = tree


def _not_associated(writer: Writer) -> None:
    root: Any = writer.root_object
    root["/AF"].clear()


CAREFUL: list[tuple[str, str, Change]] = [
    ("verdict replaced", "verdict.json: changed", _body("verdict.json", _worse)),
    ("verdict no JSON", "verdict.json: changed", _body("verdict.json", lambda _: b"\xff")),
    ("verdict no object", "verdict.json: changed", _body("verdict.json", lambda _: b"[]")),
    ("manifest edited", "manifest.json: c",
     _body("manifest.json", lambda d: d.replace(b"0.1.0", b"9.9.9"))),
    ("manifest empty", "manifest.json: changed", _body("manifest.json", lambda _: b"")),
    ("contract edited", "contract.toml: changed",
     _body("contract.toml", lambda d: d.replace(b"0.25", b"0.05"))),
    ("signature of nothing", "signature.buyer.sig: invalid: malformed",
     _body("signature.buyer.sig", lambda _: b"x")),
    ("verdict removed", "verdict.json: removed",
     lambda w: Attachments(w).remove("verdict.json")),
    ("manifest removed", "manifest.json: removed",
     lambda w: Attachments(w).remove("manifest.json")),
    ("contract removed", "contract.toml: removed",
     lambda w: Attachments(w).remove("contract.toml")),
    ("file added", "evil.exe: added", lambda w: Attachments(w).add("evil.exe", b"MZ")),
    ("second verdict", "verdict.json: added",
     lambda w: Attachments(w).add("verdict.json", b"{}")),
    ("run added", "verdict-g1-run7.json: changed",
     lambda w: Attachments(w).add("verdict-g1-run7.json", b"[]")),
    ("stranger's signature", "signature.mallory.sig: invalid",
     lambda w: Attachments(w).add("signature.mallory.sig", b"x")),
    ("listed under another name", "different names",
     lambda w: Attachments(w).add("verdict-g1-run7.json", b"{}", key="verdict.json")),
    ("shown under another name", "different names",
     lambda w: Attachments(w).add("verdict-g1-run7.json", b"{}", f="verdict.json")),
    ("two contents", "several contents", _other_stream),
    ("hidden file", "belong to no attachment", lambda w: Attachments(w).hide(b"MZ")),
    ("not associated", "not associated", _not_associated),
    ("script", "active", _root("/OpenAction", action("JavaScript", JS="app.alert(1)"))),
    ("script by name", "JavaScript", _script_by_name),
    ("automatic action", "active", _root("/AA", action("Named"))),
    ("launch", "the action Launch", _annotation("Link")),
    ("film", "annotation RichMedia", _annotation("RichMedia")),
    ("another language", "page 1", _root("/Lang", TextStringObject("zh-CN"))),
    ("no language of ours", "page 1", _root("/Lang", TextStringObject("fr"))),
    ("blank page before", "page 1", lambda w: w.insert_blank_page(index=0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "change"), [row[1:] for row in CAREFUL], ids=[row[0] for row in CAREFUL]
)
def test_a_careful_change_of_what_the_pdf_holds_is_named(
    reports: Reports, told: Told, named: str, change: Change
) -> None:
    problems = told(forged(reports.slim, change))["problems"]
    assert any(named in problem for problem in problems), problems
    assert not any("bytes were changed" in problem for problem in problems)


def test_page_one_of_another_verdict_is_named(reports: Reports, told: Told) -> None:
    data = forged(reports.pdf("fail.en"), _page_from(reports.pdf("pass.en")))
    problems = told(data)["problems"]
    assert any("page 1 says PASS as verdict of the gate, not FAIL" in p for p in problems), problems


def test_evidence_of_another_run_under_the_same_names_is_named(
    reports: Reports, told: Told
) -> None:
    other = pypdf.PdfReader(io.BytesIO(reports.pdf("pass.en"))).attachments

    def swap(*names: str) -> Change:
        def change(writer: Writer) -> None:
            for name in names:
                Attachments(writer).replace(name, other[name][0])

        return change

    assert told(forged(reports.pdf("fail.en"), swap("verdict.json")))["problems"]
    assert told(forged(reports.pdf("fail.en"), swap("manifest.json")))["problems"]
    both = told(forged(reports.pdf("fail.en"), swap("verdict.json", "manifest.json")))["problems"]
    assert any("page 1" in p for p in both)


def test_a_signature_over_another_manifest_is_named(reports: Reports, told: Told) -> None:
    signature = (reports.root / "g1-001/signatures/buyer.sig").read_bytes()
    data = forged(
        reports.pdf("fail.en"), lambda w: Attachments(w).add("signature.buyer.sig", signature)
    )
    problems = told(data)["problems"]
    assert any(p.startswith("signature.buyer.sig: invalid: other-manifest") for p in problems)


def _reforged(writer: Writer) -> None:
    """A better verdict, a manifest that agrees with it, and no signature: all that a forger who
    has no key can do to the attachments."""
    files = Attachments(writer)
    verdict = files.body("verdict.json").replace(b"SIM-FX100-0001", b"SIM-FX100-9999")
    verdict = verdict.replace(b'"pairs_measured": 0', b'"pairs_measured": 9')
    manifest = json.loads(files.body("manifest.json"))
    for entry in manifest["files"]:
        if entry["path"] == "verdict.json":
            entry |= {"sha256": sha256_hex(verdict), "size_bytes": len(verdict)}
    again = chained(parse_manifest(canonical_json(manifest), "test")).to_bytes()
    files.replace("verdict.json", verdict)
    files.replace("manifest.json", again)


def test_a_forgery_that_agrees_with_itself_needs_a_signature_or_a_digest_from_elsewhere(
    reports: Reports, told: Told
) -> None:
    true = sha256_hex((reports.root / "g1-001/manifest.json").read_bytes())
    data = forged(reports.slim, _reforged)
    problems = told(data)["problems"]
    # The buyer's signature is still in it, and no longer over this manifest.
    assert any("signature.buyer.sig: invalid: other-manifest" in p for p in problems), problems
    assert any("swapped" in p for p in told(data, "--expect", true)["problems"])
    assert any("manifest's digest" in p for p in problems)


def test_what_a_page_shows_can_be_told_with_the_bundle_only(reports: Reports, told: Told) -> None:
    data = forged(reports.pdf("pass.en"), lambda w: w.pages[2].pop("/Contents"))
    assert told(data)["problems"] == []
    said = told(data, "--bundle", reports.root / "g1-001")
    assert any("pages 3 say something else" in p for p in said["problems"]), said
    same = told(reports.pdf("pass.zh"), "--bundle", reports.root / "g1-001")
    assert same["problems"] == []
    assert any("byte for byte" in line for line in same["checked"])
    other = told(reports.pdf("pass.en"), "--bundle", reports.root / "g1-002")
    assert any("other runs" in p for p in other["problems"])


def test_a_report_rendered_before_somebody_signed_is_still_the_same(
    reports: Reports, told: Told, tmp_path: Path
) -> None:
    for name in ("g1-001", "g1-002"):
        shutil.copytree(reports.root / name, tmp_path / name)
    sign(tmp_path / "g1-001", reports.root / "vendor", "vendor")
    said = told(reports.pdf("pass.zh"), "--bundle", tmp_path / "g1-001")
    assert said["problems"] == []
    assert any("byte for byte" in line for line in said["checked"])
    assert "signatures made since the report: vendor" in said["not_checked"]


def test_the_command_itself_reads_the_pdf_in_a_process_of_its_own(
    reports: Reports, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(reports.path("both.en"))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(f"manifest {_digest(reports, 'g1-002')}")
    assert "signature of buyer: unsigned" in " ".join(lines)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kvgate.evidence.pdf_parts"],
        input=reports.pdf("pass.en"), capture_output=True, check=True,
    )  # fmt: skip
    assert {f["name"] for f in json.loads(done.stdout)["files"]} >= {"verdict.json"}


def _digest(reports: Reports, run: str) -> str:
    return sha256_hex((reports.root / run / "manifest.json").read_bytes())
