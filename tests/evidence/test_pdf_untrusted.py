"""A hostile PDF is one line, within bounds of memory and time, and nothing in it is run."""

from __future__ import annotations

import io
import resource
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pypdf
import pytest

from kvgate.cli import main
from kvgate.errors import CannotMeasure
from kvgate.evidence import pdf_parts
from kvgate.evidence.pdf import is_pdf, read_pdf

GIB = 1 << 30


def document(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1 (the catalogue); a right cross-reference table."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n%\xf0\x9f\x96\xa4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n" % number + body + b"\nendobj\n")
    at = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % offset for offset in offsets))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer))
    out.write(b"startxref\n%d\n%%%%EOF\n" % at)
    return out.getvalue()


def stream(data: bytes, head: bytes = b"") -> bytes:
    return b"<< %s /Length %d >>\nstream\n" % (head, len(data)) + data + b"\nendstream"


PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
PLAIN = b"<< /Type /Catalog /Pages 2 0 R /Lang (en) >>"
ATTACHING = (
    b"<< /Type /Catalog /Pages 2 0 R /Lang (en) /AF [5 0 R] "
    b"/Names << /EmbeddedFiles << /Names [(verdict.json) 5 0 R] >> >> >>"
)
SPEC = b"<< /Type /Filespec /F (verdict.json) /UF (verdict.json) /EF << /F 6 0 R /UF 6 0 R >> >>"


@cache
def _zeros(size: int) -> bytes:
    packer = zlib.compressobj(1)
    piece = bytes(1 << 20)
    return b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()


def attached_bomb() -> bytes:
    bomb = stream(_zeros(GIB), b"/Type /EmbeddedFile /Filter /FlateDecode")
    return document(ATTACHING, PAGES, PAGE, stream(b""), SPEC, bomb)


def bomb_in_a_bomb() -> bytes:
    twice = zlib.compress(_zeros(GIB), 9)
    bomb = stream(twice, b"/Type /EmbeddedFile /Filter [/FlateDecode /FlateDecode]")
    return document(ATTACHING, PAGES, PAGE, stream(b""), SPEC, bomb)


def page_bomb() -> bytes:
    return document(PLAIN, PAGES, PAGE, stream(_zeros(GIB), b"/Filter /FlateDecode"))


def many_attachments() -> bytes:
    specs = [SPEC] * (pdf_parts.MAX_ATTACHED + 1)
    body = stream(b"{}", b"/Type /EmbeddedFile")
    return document(ATTACHING, PAGES, PAGE, stream(b""), SPEC, body, *specs)


def nested() -> bytes:
    deep = b"[" * 5_000 + b"]" * 5_000
    return document(PLAIN, PAGES, PAGE, stream(b""), deep)


def endless_pages() -> bytes:
    return document(PLAIN, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>")


def endless_names() -> bytes:
    loop = b"<< /Kids [3 0 R] >>"
    catalogue = b"<< /Type /Catalog /Pages 2 0 R /Names << /EmbeddedFiles 3 0 R >> >>"
    return document(catalogue, PAGES, loop, stream(b""))


def claimed_length() -> bytes:
    return document(PLAIN, PAGES, PAGE, b"<< /Length 99999999999 >>\nstream\nx\nendstream")


def encrypted() -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(9, 9)
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def no_pages() -> bytes:
    return document(PLAIN, b"<< /Type /Pages /Kids [] /Count 0 >>")


HOSTILE: dict[str, Callable[[], bytes]] = {
    "attached bomb": attached_bomb,
    "bomb in a bomb": bomb_in_a_bomb,
    "page bomb": page_bomb,
    "many attachments": many_attachments,
    "nested": nested,
    "endless pages": endless_pages,
    "endless names": endless_names,
    "claimed length": claimed_length,
    "encrypted": encrypted,
    "no pages": no_pages,
    "head alone": lambda: b"%PDF-1.7\n",
    "zeros": lambda: b"%PDF-1.7\n" + bytes(1 << 20),
    "cut off": lambda: document(PLAIN)[:-20],
    "no catalogue": lambda: document(b"null"),
    "empty catalogue": lambda: document(b"<< /Type /Catalog >>"),
    "wild offset": lambda: b"%PDF-1.7\nstartxref\n99999999999999999999\n%%EOF",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pdf_is_one_line(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(HOSTILE[kind]())
    code = main(["verify", str(path)])
    said = capsys.readouterr()
    assert code == 11
    lines = said.err.splitlines() or said.out.splitlines()
    assert lines and "Traceback" not in said.err + said.out
    assert len(said.err.splitlines()) <= 1
    assert str(path) in lines[-1]


def test_reading_stays_within_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(attached_bomb())
    with pytest.raises(CannotMeasure):
        read_pdf(path)
    # The largest of all processes that this one has waited for, in KiB.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < (GIB + (GIB >> 1)) >> 10


def test_a_file_larger_than_a_report_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    with path.open("wb") as out:
        out.write(b"%PDF-1.7\n")
        out.truncate(1 << 40)
    with pytest.raises(CannotMeasure, match="larger than 64 MiB"):
        read_pdf(path)


def test_an_encrypted_pdf_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(encrypted())
    with pytest.raises(CannotMeasure, match="is encrypted; a report never is"):
        read_pdf(path)


def test_a_pdf_of_somebody_else_carries_no_evidence(tmp_path: Path) -> None:
    path = tmp_path / "letter.pdf"
    path.write_bytes(document(PLAIN, PAGES, PAGE, stream(b"")))
    kinds = {(p.path, p.kind) for p in read_pdf(path).problems}
    assert ("verdict.json", "removed") in kinds


def test_what_is_a_pdf_is_told_by_its_first_bytes_or_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"%PDF-1.7")
    (tmp_path / "b.PDF").write_bytes(b"hello")
    (tmp_path / "c").write_bytes(b"hello")
    (tmp_path / "d.pdf").mkdir()
    assert [is_pdf(tmp_path / n) for n in ("a", "b.PDF", "c", "d.pdf", "e.pdf")] == [
        True, True, False, False, False,
    ]  # fmt: skip
