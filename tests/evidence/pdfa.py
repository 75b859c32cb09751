# ruff: noqa: SIM905
"""Rules of PDF/A-3a that can be read off a parsed file. No validator is packaged for Python; these
are our own checks of ISO 19005-3, one sentence for each clause that is broken."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree

import pypdf
from pypdf.generic import ContentStream, IndirectObject

_RDF: Final = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_PDFAID: Final = "{http://www.aiim.org/pdfa/ns/id/}"
_XMP: Final = "{http://ns.adobe.com/xap/1.0/}"
_DC: Final = "{http://purl.org/dc/elements/1.1/}"
_PDF: Final = "{http://ns.adobe.com/pdf/1.3/}"
_LANG: Final = re.compile(r"[a-zA-Z]{2,3}(-[a-zA-Z0-9]+)*")
_FORBIDDEN_ACTIONS: Final = {
    "/JavaScript", "/Launch", "/Sound", "/Movie", "/ResetForm", "/ImportData", "/Hide",
    "/SetOCGState", "/Rendition", "/Trans", "/GoTo3DView", "/SubmitForm",
}  # fmt: skip
_FORBIDDEN_ANNOTATIONS: Final = {"/3D", "/Sound", "/Screen", "/Movie", "/RichMedia"}
_OPERATORS: Final = frozenset(
    "b B b* B* BDC BI BMC BT BX c cm CS cs d d0 d1 Do DP EI EMC ET EX f F f* G g gs h i ID j J K k "
    "l m M MP n q Q re RG rg ri s S SC sc SCN scn sh T* Tc Td TD Tf Tj TJ TL Tm Tr Ts Tw Tz v w W "
    "W* y ' \"".split()
)
_STANDARD: Final = frozenset(
    "Document Part Art Sect Div BlockQuote Caption TOC TOCI Index NonStruct Private P H H1 H2 H3 "
    "H4 H5 H6 L LI Lbl LBody Table TR TH TD THead TBody TFoot Span Quote Note Reference BibEntry "
    "Code Link Annot Ruby RB RT RP Warichu WT WP Figure Formula Form".split()
)


def faults(data: bytes) -> list[str]:
    """What is wrong with ``data`` as PDF/A-3a; empty where nothing was found."""
    reader = pypdf.PdfReader(io.BytesIO(data), strict=True)
    root: Any = reader.trailer["/Root"]
    return [
        *_file(data, reader),
        *_metadata(reader, root),
        *_colour(root),
        *_structure(root),
        *_attachments(root),
        *(fault for page in reader.pages for fault in _page(page)),
        *(fault for value in _values(reader) for fault in _value(value)),
    ]


def _file(data: bytes, reader: pypdf.PdfReader) -> Iterator[str]:
    head, comment, _ = data.split(b"\n", 2)
    if head != b"%PDF-1.7":
        yield "6.1.2 the header is not that of PDF 1.7"
    if not (comment.startswith(b"%") and len(comment) >= 5 and min(comment[1:5]) > 127):
        yield "6.1.2 no comment of four bytes above 127 follows the header"
    if not re.search(rb"%%EOF\r?\n?$", data):
        yield "6.1.3 something follows the end of the file"
    if "/Encrypt" in reader.trailer:
        yield "6.1.3 the file is encrypted"
    identifiers = reader.trailer.get("/ID")
    if not identifiers or len(identifiers) != 2 or not all(identifiers):
        yield "6.1.3 the file has no identifier"


def _metadata(reader: pypdf.PdfReader, root: Any) -> Iterator[str]:
    if "/Metadata" not in root:
        yield "6.6.2.1 there is no XMP metadata"
        return
    stream = root["/Metadata"]
    if (stream.get("/Type"), stream.get("/Subtype")) != ("/Metadata", "/XML"):
        yield "6.6.2.1 the metadata stream is not one of XML"
    text = stream.get_data().decode("utf-8")
    if re.search(r"<\?xpacket begin=[^>]*(bytes|encoding)=", text):
        yield "6.6.2.1 the packet names bytes or encoding"
    tree = ElementTree.fromstring(text)
    about: dict[str, str] = {}
    for described in tree.iter(f"{_RDF}Description"):
        about.update(described.attrib)
        for child in described:
            about[child.tag] = "".join(child.itertext()).strip()
    if (about.get(f"{_PDFAID}part"), about.get(f"{_PDFAID}conformance")) != ("3", "A"):
        yield "6.6.4 it does not say that it is PDF/A-3a"
    info: Any = reader.trailer.get("/Info", {})
    for key, name in (("/CreationDate", "CreateDate"), ("/ModDate", "ModifyDate")):
        if key in info and _stamp(str(info[key])) != _stamp(about.get(f"{_XMP}{name}", "")):
            yield f"6.6.3 {key} is not the {name} of the metadata"
    for key, name in (("/Title", f"{_DC}title"), ("/Producer", f"{_PDF}Producer"),
                      ("/Creator", f"{_XMP}CreatorTool")):  # fmt: skip
        if key in info and str(info[key]) != about.get(name, ""):
            yield f"6.6.3 {key} is not that of the metadata"


def _stamp(text: str) -> str:
    """The digits of a time in UTC, whichever way it is written; empty where it is none."""
    return "".join(re.findall(r"[0-9]", text))[:14] if text.endswith("Z") else ""


def _colour(root: Any) -> Iterator[str]:
    profiles = []
    for intent in root.get("/OutputIntents", []):
        intent = intent.get_object()
        if intent.get("/S") == "/GTS_PDFA1" and "/DestOutputProfile" in intent:
            profiles.append(intent["/DestOutputProfile"])
    if len(profiles) != 1:
        yield "6.2.3 there is not exactly one output intent with a profile"
        return
    body = profiles[0].get_data()
    if profiles[0].get("/N") != 3 or body[36:40] != b"acsp" or body[16:20] != b"RGB ":
        yield "6.2.3 the output profile is none for RGB"


def _structure(root: Any) -> Iterator[str]:
    if not _LANG.fullmatch(str(root.get("/Lang", ""))):
        yield "6.7.4 the document names no natural language"
    if root.get("/MarkInfo", {}).get("/Marked") is not True and not (
        root.get("/MarkInfo", {}).get("/Marked")
    ):
        yield "6.7.2 the document is not marked as tagged"
    if "/StructTreeRoot" not in root:
        yield "6.7.3 there is no structure tree"
        return
    tree = root["/StructTreeRoot"]
    if "/K" not in tree or "/ParentTree" not in tree:
        yield "6.7.3 the structure tree is empty"
    roles = {str(k)[1:]: str(v)[1:] for k, v in tree.get("/RoleMap", {}).items()}
    kinds = set(_kinds(tree.get("/K"), 0))
    for kind in sorted(kinds):
        if roles.get(kind, kind) not in _STANDARD:
            yield f"6.7.3.4 the structure type {kind} is no standard one and maps to none"
    if not kinds & {"H", "H1", "H2"}:
        yield "6.7.3 there is no heading"


def _kinds(node: Any, depth: int) -> Iterator[str]:
    assert depth < 200
    plain = node.get_object() if isinstance(node, IndirectObject) else node
    if isinstance(plain, list):
        for item in plain:
            yield from _kinds(item, depth + 1)
    elif isinstance(plain, dict):
        if "/S" in plain and plain.get("/Type", "/StructElem") == "/StructElem":
            yield str(plain["/S"])[1:]
        if "/K" in plain:
            yield from _kinds(plain["/K"], depth + 1)


def _attachments(root: Any) -> Iterator[str]:
    names = root.get("/Names", {}).get("/EmbeddedFiles", {}).get("/Names", [])
    keys = [str(key) for key in names[::2]]
    if keys != sorted(keys):
        yield "ISO 32000 7.9.6 the names of the attachments are not sorted"
    associated = {item.idnum for item in list.__iter__(root.get("/AF", []))}
    if len(associated) != len(root.get("/AF", [])):
        yield "6.8 a file is associated twice"
    for key, reference in zip(keys, list(list.__iter__(names))[1::2], strict=True):
        spec = reference.get_object()
        if reference.idnum not in associated:
            yield f"6.8 {key} is not associated"
        if spec.get("/AFRelationship") not in ("/Source", "/Data", "/Alternative", "/Supplement"):
            yield f"6.8 {key} has no relationship"
        if not spec.get("/F") or not spec.get("/UF") or spec.get("/Type") != "/Filespec":
            yield f"6.8 {key} lacks a name"
        stream = spec["/EF"]["/F"]
        if not re.fullmatch(r"/[a-z]+/[a-z0-9.+-]+", str(stream.get("/Subtype", ""))):
            yield f"6.8 {key} has no media type"
        if "/ModDate" not in stream.get("/Params", {}):
            yield f"6.8 {key} has no time"


def _page(page: Any) -> Iterator[str]:
    if "/StructParents" not in page:
        yield "6.7.3 a page is not in the structure tree"
    for annotation in page.get("/Annots", []):
        flags = annotation.get_object().get("/F", 0)
        if not flags & 4 or flags & (1 | 2 | 32 | 256):
            yield "6.3.2 an annotation is hidden or not printed"
    depth = deepest = 0
    contents = page.get_contents()
    operations = ContentStream(contents, page.pdf).operations if contents is not None else []
    for _, operator in operations:
        name = operator.decode()
        if name not in _OPERATORS:
            yield f"6.2.2 the operator {name} is none of PDF"
        if name in ("k", "K"):
            yield "6.2.4.3 a colour is of a printing press, the output intent is RGB"
        depth += (name == "q") - (name == "Q")
        deepest = max(deepest, depth)
    if deepest > 28:
        yield f"6.1.13 graphics states are nested {deepest} deep"


def _values(reader: pypdf.PdfReader) -> Iterator[Any]:
    numbers = {n for table in reader.xref.values() for n in table} | set(reader.xref_objStm)
    for number in sorted(numbers - {0}):
        yield from _inside(reader.get_object(number))


def _inside(value: Any) -> Iterator[Any]:
    yield value
    items: list[Any] = []
    if isinstance(value, dict):
        items = [dict.__getitem__(value, key) for key in value]
    elif isinstance(value, list):
        items = list(list.__iter__(value))
    for item in items:
        if not isinstance(item, IndirectObject):
            yield from _inside(item)


def _value(value: Any) -> Iterator[str]:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**31 - 1:
        yield "6.1.13 a number is too large"
    if not isinstance(value, dict):
        return
    if any(len(str(key).encode()) > 128 for key in value):
        yield "6.1.13 a name is too long"
    if value.get("/S") in _FORBIDDEN_ACTIONS and value.get("/Type", "/Action") == "/Action":
        yield f"6.5.1 the action {value['/S']} is forbidden"
    if "/AA" in value or "/JS" in value:
        yield "6.5.2 something is run"
    if value.get("/Subtype") in _FORBIDDEN_ANNOTATIONS:
        yield f"6.3.1 the annotation {value['/Subtype']} is forbidden"
    filters = value.get("/Filter", [])
    filters = filters if isinstance(filters, list) else [filters]
    if "/LZWDecode" in filters or "/Crypt" in filters:
        yield "6.1.7.2 a stream is packed in a forbidden way"
    if value.get("/Type") == "/XObject" and value.get("/Subtype") == "/PS":
        yield "6.2.9 there is PostScript"
    if value.get("/Subtype") == "/Image" and value.get("/Interpolate"):
        yield "6.2.8 an image is interpolated"
    if value.get("/Type") == "/ExtGState" and ({"/TR", "/HTP"} & set(value)):
        yield "6.2.5 a graphics state has a transfer function"
    if value.get("/Type") == "/Font":
        yield from _font(value)


def _font(font: Any) -> Iterator[str]:
    name = str(font.get("/BaseFont", "a font"))
    kind = font.get("/Subtype")
    if kind == "/Type0":
        if "/ToUnicode" not in font:
            yield f"6.2.11.7 {name} has no way back to Unicode"
        elif re.search(rb"<(0000|[fF][eE][fF][fF]|[fF][fF][fF][eE])>\s*$",
                       font["/ToUnicode"].get_data(), re.MULTILINE):  # fmt: skip
            yield f"6.2.11.7.2 {name} maps to a character that is none"
        if font.get("/Encoding") not in ("/Identity-H", "/Identity-V"):
            yield f"6.2.11.3 {name} has an encoding that is not embedded"
        return
    if kind == "/Type3":
        yield f"6.2.11 {name} is drawn, not a font of ours"
        return
    descriptor = font.get("/FontDescriptor", {})
    if not {"/FontFile", "/FontFile2", "/FontFile3"} & set(descriptor):
        yield f"6.2.11.4 {name} is not embedded"
    if kind == "/CIDFontType2" and "/CIDToGIDMap" not in font:
        yield f"6.2.11.3.2 {name} has no map to its glyphs"
    if kind in ("/TrueType", "/Type1") and "/ToUnicode" not in font:
        yield f"6.2.11.7 {name} has no way back to Unicode"
