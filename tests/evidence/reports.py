"""Reports of sealed runs, and forgeries of them that a careful hand could make."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdf
from pypdf.generic import (
    ArrayObject,
    ByteStringObject,
    DecodedStreamObject,
    DictionaryObject,
    NameObject,
    NullObject,
    TextStringObject,
)

from kvgate.adjudicate import adjudicate
from kvgate.evidence.pdf_seal import with_checksum
from kvgate.report.publish import report_input
from kvgate.report.render import render_pdf

Writer = pypdf.PdfWriter
Change = Callable[[Writer], object]


def render(bundles: list[Path], lang: str, out: Path) -> Path:
    """The report of sealed bundles, without any history beside them."""
    return render_pdf([report_input(adjudicate(root), ()) for root in bundles], lang, out)


def forged(pdf: bytes, change: Change) -> bytes:
    """``pdf`` with a change, written whole and with a checksum that is right again."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf))
    change(writer)
    out = io.BytesIO()
    writer.write(out)
    data = out.getvalue()
    identifier = f"/ID [({'0' * 32}) ({'0' * 64})]".encode()
    at = data.rindex(b"trailer")
    tail, count = re.subn(rb"/ID \[.*?\]", lambda _: identifier, data[at:], flags=re.DOTALL)
    if count == 0:
        tail = data[at:].replace(b"<<", b"<<\n" + identifier, 1)
    return with_checksum(data[:at] + tail)


def slim(writer: Writer) -> None:
    """Page 1 alone and no structure: what many tests can take apart in little time."""
    while len(writer.pages) > 1:
        writer.remove_page(1)
    root: Any = writer.root_object
    for key in ("/StructTreeRoot", "/Outlines", "/Metadata"):
        root.pop(key, None)
    root["/Names"].pop("/Dests", None)
    for key in ("/Annots", "/StructParents"):
        writer.pages[0].pop(key, None)


@dataclass(frozen=True, slots=True)
class Attachments:
    """The attachments of an open writer, by name."""

    writer: Writer

    @property
    def names(self) -> ArrayObject:
        root: Any = self.writer.root_object
        names: ArrayObject = root["/Names"]["/EmbeddedFiles"]["/Names"]
        return names

    def spec(self, name: str) -> Any:
        names = self.names
        return names[[str(key) for key in names[::2]].index(name) * 2 + 1].get_object()

    def body(self, name: str) -> bytes:
        data: bytes = self.spec(name)["/EF"]["/F"].get_data()
        return data

    def replace(self, name: str, data: bytes) -> None:
        number = dict.__getitem__(self.spec(name)["/EF"], "/F").idnum
        stream = DecodedStreamObject()
        stream.set_data(data)
        stream[NameObject("/Type")] = NameObject("/EmbeddedFile")
        self.writer._objects[number - 1] = stream

    def remove(self, name: str) -> None:
        root: Any = self.writer.root_object
        at = [str(key) for key in self.names[::2]].index(name) * 2
        reference = list.__getitem__(self.names, at + 1)
        associated = root["/AF"]
        del associated[[r.idnum for r in list.__iter__(associated)].index(reference.idnum)]
        del self.names[at : at + 2]
        stream = dict.__getitem__(reference.get_object()["/EF"], "/F")
        for number in (reference.idnum, stream.idnum):
            self.writer._objects[number - 1] = NullObject()

    def add(self, name: str, data: bytes, *, key: str | None = None, f: str | None = None) -> None:
        root: Any = self.writer.root_object
        stream = self._stream(data)
        spec = DictionaryObject({
            NameObject("/Type"): NameObject("/Filespec"),
            NameObject("/F"): TextStringObject(f or name),
            NameObject("/UF"): TextStringObject(name),
            NameObject("/AFRelationship"): NameObject("/Data"),
            NameObject("/EF"): DictionaryObject(
                {NameObject("/F"): stream, NameObject("/UF"): stream}
            ),
        })  # fmt: skip
        reference = self.writer._add_object(spec)
        self.names.extend([TextStringObject(key or name), reference])
        root["/AF"].append(reference)

    def hide(self, data: bytes) -> None:
        """An embedded file that no list mentions."""
        self._stream(data)

    def _stream(self, data: bytes) -> Any:
        stream = DecodedStreamObject()
        stream.set_data(data)
        stream[NameObject("/Type")] = NameObject("/EmbeddedFile")
        return self.writer._add_object(stream)


def action(kind: str, **more: str) -> DictionaryObject:
    """A PDF action."""
    made = DictionaryObject({NameObject("/S"): NameObject(f"/{kind}")})
    for key, value in more.items():
        made[NameObject(f"/{key}")] = ByteStringObject(value.encode())
    return made
