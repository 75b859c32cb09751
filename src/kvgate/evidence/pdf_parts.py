"""Takes a stranger's PDF apart, in a process of its own with little memory and little time.

``python -m kvgate.evidence.pdf_parts [--every-page]`` reads a PDF on stdin and prints one JSON
object: what is attached, what is active, the text of the first page or of all. Started by
:mod:`kvgate.evidence.pdf` alone, so that whatever a PDF does to its reader ends with this process.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

MAX_PDF_BYTES: Final = 64 << 20
MAX_ATTACHED_BYTES: Final = 64 << 20
MAX_ATTACHED: Final = 512
MAX_OBJECTS: Final = 300_000
MAX_PAGES: Final = 2_000
MAX_DEPTH: Final = 64
MEMORY_BYTES: Final = 1 << 30
CPU_S: Final = 60

_ACTIONS: Final = frozenset(
    {"/JavaScript", "/Launch", "/SubmitForm", "/ImportData", "/Rendition", "/RichMediaExecute",
     "/GoToE", "/Movie", "/Sound", "/ResetForm", "/SetOCGState", "/Trans", "/GoTo3DView"}
)  # fmt: skip
"""Actions that PDF/A forbids: they run something or reach out of the file."""


class NotOurs(Exception):  # noqa: N818 - said to a person as it stands
    """A sentence: why this file is not read any further."""


def limit() -> None:
    """Bind this process to its memory and time; no file can be made and nothing dumped."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def read_parts(data: bytes, *, every_page: bool) -> dict[str, Any]:
    """The parts of a PDF as plain values. Raises NotOurs, and whatever the parser raises."""
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    if not data.startswith(b"%PDF-"):
        raise NotOurs("not a PDF")
    if len(data) > MAX_PDF_BYTES:
        raise NotOurs(f"larger than {MAX_PDF_BYTES >> 20} MiB")
    reader = pypdf.PdfReader(io.BytesIO(data), strict=True)
    if reader.is_encrypted:
        raise NotOurs("the PDF is encrypted; a report never is")
    root = reader.root_object
    irregular: list[str] = []
    if data.count(b"startxref") != 1 or "/Prev" in reader.trailer:
        irregular.append("it was written to again after it was made")
    active = [f"the document has {key[1:]}" for key in ("/OpenAction", "/AA") if key in root]
    if "/JavaScript" in _dictionary(root.get("/Names")):
        active.append("the document has JavaScript")
    listed = dict(_names(_dictionary(root.get("/Names")).get("/EmbeddedFiles"), 0))
    associated = {_number(item) or 0 for item in _array(root.get("/AF"))}
    specs: dict[int, Any] = {}
    streams: set[int] = set()
    for number, value in _objects(reader):
        kind = value.get("/Type") if isinstance(value, dict) else None
        if kind == "/EmbeddedFile":
            streams.add(number)
        elif kind == "/Filespec" or (isinstance(value, dict) and "/EF" in value):
            specs[number] = value
        active += [f"object {number} has {found}" for found in _active(value, 0)]
    files = _files(specs, listed, associated, streams, irregular)
    pages = len(reader.pages)
    if not 1 <= pages <= MAX_PAGES:
        raise NotOurs(f"it has {pages} pages")
    return {
        "files": files,
        "active": sorted(set(active))[:20],
        "irregular": irregular[:20],
        "lang": str(root.get("/Lang", "")),
        "pages": pages,
        "texts": [reader.pages[n].extract_text() for n in range(pages if every_page else 1)],
    }


def _files(
    specs: dict[int, Any],
    listed: dict[str, int],
    associated: set[int],
    streams: set[int],
    irregular: list[str],
) -> list[dict[str, Any]]:
    """Every attachment with its bytes; what a viewer could show otherwise is irregular."""
    if len(specs) > MAX_ATTACHED:
        raise NotOurs(f"it has more than {MAX_ATTACHED} attachments")
    files = []
    left = MAX_ATTACHED_BYTES
    for number, spec in sorted(specs.items()):
        name = str(spec.get("/UF", spec.get("/F", "")))
        embedded = _dictionary(spec.get("/EF"))
        keys = [key for key, at in listed.items() if at == number]
        targets = {_number(dict.__getitem__(embedded, key)) for key in embedded}
        if keys != [name] or str(spec.get("/F")) != name or "/UF" not in spec:
            irregular.append(f"attachment {name[:80]!r} goes by different names")
        if number not in associated:
            irregular.append(f"attachment {name[:80]!r} is not associated with the document")
        if len(targets) != 1 or None in targets:
            irregular.append(f"attachment {name[:80]!r} has several contents or none")
        streams -= {at for at in targets if at is not None}
        stream = next((embedded[key] for key in ("/F", "/UF") if key in embedded), None)
        body = b"" if stream is None else stream.get_data()
        left -= len(body)
        if left < 0:
            raise NotOurs(f"its attachments unfold to more than {MAX_ATTACHED_BYTES >> 20} MiB")
        files.append({"name": name, "data": base64.b64encode(body).decode()})
    if streams:
        irregular.append(f"{len(streams)} embedded files belong to no attachment")
    if len(listed) != len(specs):
        irregular.append("its list of attachments is not that of the files in it")
    return files


def _objects(reader: Any) -> Iterator[tuple[int, Any]]:
    numbers = {n for table in reader.xref.values() for n in table} | set(reader.xref_objStm)
    if len(numbers) > MAX_OBJECTS:
        raise NotOurs(f"it has more than {MAX_OBJECTS} objects")
    for number in sorted(numbers - {0}):
        yield number, reader.get_object(number)


def _active(value: Any, depth: int) -> Iterator[str]:
    """What runs or reaches out, directly inside one object (references have their own turn)."""
    if depth > MAX_DEPTH:
        raise NotOurs("its objects are nested too deeply")
    if isinstance(value, dict):
        action = value.get("/S")
        if action in _ACTIONS and value.get("/Type") in (None, "/Action"):
            yield f"the action {str(action)[1:]}"
        if "/JS" in value:
            yield "JavaScript"
        if "/AA" in value:
            yield "automatic actions"
        if value.get("/Subtype") in ("/FileAttachment", "/RichMedia", "/Screen", "/Movie", "/3D"):
            yield f"an annotation {str(value['/Subtype'])[1:]}"
        for key in value:
            yield from _active(_direct(dict.__getitem__(value, key)), depth + 1)
    elif isinstance(value, list):
        for item in list.__iter__(value):
            yield from _active(_direct(item), depth + 1)


def _direct(value: Any) -> Any:
    import pypdf.generic

    return None if isinstance(value, pypdf.generic.IndirectObject) else value


def _names(node: Any, depth: int) -> Iterator[tuple[str, int]]:
    if depth > MAX_DEPTH:
        raise NotOurs("its list of attachments is nested too deeply")
    tree = _dictionary(node)
    row = _array(tree.get("/Names"))
    for key, value in zip(row[::2], row[1::2], strict=False):
        yield str(key), _number(value) or 0
    for kid in _array(tree.get("/Kids")):
        yield from _names(kid, depth + 1)


def _dictionary(value: Any) -> Any:
    import pypdf.generic

    plain = value.get_object() if hasattr(value, "get_object") else value
    return plain if isinstance(plain, dict) else pypdf.generic.DictionaryObject()


def _array(value: Any) -> list[Any]:
    """Elements as they stand in the file, references unresolved."""
    plain = value.get_object() if hasattr(value, "get_object") else value
    return list(list.__iter__(plain)) if isinstance(plain, list) else []


def _number(value: Any) -> int | None:
    number = getattr(value, "idnum", None)
    return number if isinstance(number, int) else None


def main() -> int:
    """Read stdin, print the parts or one sentence; the exit code is 0 either way."""
    every_page = "--every-page" in sys.argv[1:]
    said: dict[str, Any]
    try:
        limit()
        said = read_parts(sys.stdin.buffer.read(MAX_PDF_BYTES + 1), every_page=every_page)
    except NotOurs as fault:
        said = {"fault": str(fault)}
    except MemoryError:
        said = {"fault": f"it needs more than {MEMORY_BYTES >> 20} MiB to be read"}
    except Exception as error:  # noqa: BLE001 - a stranger's file may break the parser in any way
        said = {"fault": f"it cannot be read as a PDF: {type(error).__name__}: {str(error)[:160]}"}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
