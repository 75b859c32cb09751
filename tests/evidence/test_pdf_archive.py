"""The report is PDF/A-3a with the sealed files inside, as far as our own checks can see."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pypdf
import pytest
from pypdf.generic import NameObject, TextStringObject

from kvgate.evidence.pdf_seal import Name, parse_name
from kvgate.report.system import missing_system_libraries

from .conftest import Reports
from .pdfa import faults
from .reports import Attachments, Writer, action, forged

pytestmark = pytest.mark.skipif(
    bool(missing_system_libraries()), reason="Pango is not installed here"
)


@pytest.mark.parametrize("name", ["pass.zh", "both.en"])
def test_a_report_keeps_the_rules_of_its_archive(reports: Reports, name: str) -> None:
    assert faults(reports.pdf(name)) == []


def test_what_is_attached_is_what_was_sealed_byte_for_byte(reports: Reports) -> None:
    reader = pypdf.PdfReader(io.BytesIO(reports.pdf("pass.en")))
    attached = dict(reader.attachments.items())
    bundle = reports.root / "g1-001"
    assert {name: bodies[0] for name, bodies in attached.items()} == {
        "verdict.json": (bundle / "verdict.json").read_bytes(),
        "manifest.json": (bundle / "manifest.json").read_bytes(),
        "contract.toml": (bundle / "contract.toml").read_bytes(),
        "signature.buyer.sig": (bundle / "signatures/buyer.sig").read_bytes(),
    }


def test_each_file_says_what_it_is_and_how_it_belongs_to_the_report(reports: Reports) -> None:
    reader = pypdf.PdfReader(io.BytesIO(reports.pdf("pass.en")))
    root: Any = reader.root_object
    said = {}
    for reference in root["/AF"]:
        spec = reference.get_object()
        stream = spec["/EF"]["/F"]
        assert spec["/EF"]["/UF"].get_data() == stream.get_data()
        said[str(spec["/UF"])] = (spec["/AFRelationship"], stream["/Subtype"])
        assert str(stream["/Params"]["/ModDate"]) == "D:20260301080000Z"
    assert said == {
        "contract.toml": ("/Source", "/application/toml"),
        "manifest.json": ("/Data", "/application/json"),
        "signature.buyer.sig": ("/Supplement", "/application/x-ssh-signature"),
        "verdict.json": ("/Data", "/application/json"),
    }


def test_a_report_of_several_runs_carries_each_under_its_own_name(reports: Reports) -> None:
    reader = pypdf.PdfReader(io.BytesIO(reports.pdf("both.en")))
    assert set(reader.attachments) == {
        "verdict-g1-run1.json", "manifest-g1-run1.json", "contract-g1-run1.toml",
        "signature-g1-run1.buyer.sig", "verdict-g1-run2.json", "manifest-g1-run2.json",
        "contract-g1-run2.toml",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [Name("verdict", ""), Name("manifest", "-g3-run12"), Name("contract", "-g1-run1-2"),
     Name("signature", "", "buyer"), Name("signature", "-g4-run1", "a.b@site-g1-run2")],
)  # fmt: skip
def test_a_name_is_read_as_it_was_written(name: Name) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize("name", ["verdict.json ", "verdict-g5-run1.json", "x/verdict.json", ""])
def test_a_name_that_is_none_of_ours_is_none(name: str) -> None:
    assert parse_name(name) is None


def _root(writer: Writer) -> Any:
    return writer.root_object


def _no_fonts(writer: Writer) -> None:
    for number in range(1, len(writer._objects) + 1):
        value = writer.get_object(number)
        if isinstance(value, dict):
            for key in ("/FontFile2", "/FontFile3", "/ToUnicode"):
                value.pop(key, None)


def _metadata(old: bytes, new: bytes) -> Callable[[Writer], None]:
    def change(writer: Writer) -> None:
        stream = _root(writer)["/Metadata"].get_object()
        data = stream.get_data()
        assert old in data
        stream.set_data(data.replace(old, new))

    return change


Breaks = list[tuple[str, Callable[[Writer], object]]]

STRUCTURE: Breaks = [
    ("6.7.4", lambda w: _root(w).pop("/Lang")),
    ("6.7.2", lambda w: _root(w).pop("/MarkInfo")),
    ("6.7.3 there is no", lambda w: _root(w).pop("/StructTreeRoot")),
    ("6.7.3 a page", lambda w: w.pages[0].pop("/StructParents")),
    ("6.2.3", lambda w: _root(w).pop("/OutputIntents")),
    ("6.2.11.4", _no_fonts),
    ("6.2.11.7", _no_fonts),
    ("6.5.1", lambda w: _root(w).update({NameObject("/OpenAction"): action("JavaScript", JS="1")})),
    ("6.5.2", lambda w: _root(w).update({NameObject("/AA"): action("Named")})),
    ("6.6.2.1", lambda w: _root(w).pop("/Metadata")),
]
FILES: Breaks = [
    ("6.8 verdict.json is not", lambda w: _root(w)["/AF"].pop()),
    ("6.8 verdict.json has no relationship",
     lambda w: Attachments(w).spec("verdict.json").pop("/AFRelationship")),
    ("6.8 verdict.json lacks", lambda w: Attachments(w).spec("verdict.json").pop("/UF")),
    ("6.8 verdict.json has no media type",
     lambda w: Attachments(w).spec("verdict.json")["/EF"]["/F"].pop("/Subtype")),
    ("7.9.6", lambda w: Attachments(w).add("a.json", b"{}")),
    ("6.6.4", _metadata(b'conformance="A"', b'conformance="B"')),
    ("6.6.3 /ModDate", _metadata(b"T08:00:00Z</xmp:Mod", b"T09:00:00Z</xmp:Mod")),
    ("6.6.3 /Title", lambda w: w.add_metadata({"/Title": TextStringObject("another")})),
]  # fmt: skip


@pytest.mark.parametrize("breaks", [STRUCTURE, FILES], ids=["structure", "files"])
def test_our_checks_see_what_breaks_a_rule(reports: Reports, breaks: Breaks) -> None:
    def change(writer: Writer) -> None:
        for _, broken in breaks:
            broken(writer)

    found = faults(forged(reports.pdf("pass.en"), change))
    for said, _ in breaks:
        assert any(said in fault for fault in found), said


def test_a_file_with_a_tail_breaks_a_rule(reports: Reports) -> None:
    assert any("6.1.3" in fault for fault in faults(reports.pdf("pass.en") + b"more"))
