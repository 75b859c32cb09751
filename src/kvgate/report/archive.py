"""The PDF as an archive: PDF/A-3a with the evidence's own words inside as associated files.

Attached are, for each run, the verdict, the manifest, the contract and the signatures, byte for
byte as sealed: ``kvgate verify REPORT.pdf`` checks them without the bundle.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from kvgate.evidence.pdf_seal import MIME, Kind, Name, with_checksum
from kvgate.report.inputs import ReportInput
from kvgate.report.moments import moment

VARIANT: Final = "pdf/a-3a"


@dataclass(frozen=True, slots=True)
class Attached:
    """One associated file. ``at`` is the time that the PDF states for it, the verdict's own."""

    name: Name
    description: str
    relationship: Literal["Data", "Source", "Supplement"]
    data: bytes
    at: datetime


def attachments(inputs: Sequence[ReportInput]) -> list[Attached]:
    """What is attached for these runs, in the order of the names (a PDF's name tree is sorted)."""
    rows: list[Attached] = []
    tails: list[str] = []
    for source in inputs:
        v = source.verdict
        tail = "" if len(inputs) == 1 else f"-g{v.gate}-run{v.run}"
        again = tails.count(tail)
        tails.append(tail)
        tail += f"-{again + 1}" if again else ""
        what = f"gate {v.gate}, run {v.run}"
        at = moment(v.as_of)

        def add(
            kind: Kind,
            description: str,
            relationship: Literal["Data", "Source", "Supplement"],
            data: bytes | None,
            party: str = "",
            *,
            tail: str = tail,
            at: datetime = at,
        ) -> None:
            if data is not None:
                name = Name(kind, tail, party)
                rows.append(Attached(name, description, relationship, data, at))

        add("verdict", f"verdict of {what}", "Data", source.verdict_bytes)
        add("manifest", f"manifest of the evidence of {what}", "Data", source.manifest_json)
        add("contract", f"contract of {what}", "Source", source.contract_toml)
        for party, signature in sorted(source.signatures.items()):
            about = f"signature of {party} over the manifest of {what}"
            add("signature", about, "Supplement", signature, party)
    return sorted(rows, key=lambda row: str(row.name).encode())


def write_archive(document: Any, attached: Sequence[Attached]) -> bytes:
    """The bytes of a WeasyPrint HTML document as PDF/A-3a with ``attached``, checksum in place."""
    import weasyprint
    from weasyprint.text.fonts import FontConfiguration

    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    parts = [
        weasyprint.Attachment(
            string=row.data,
            name=str(row.name),
            description=row.description,
            created=row.at,
            modified=row.at,
        )
        for row in attached
    ]
    by_name = {str(row.name): row for row in attached}

    def finish(_: Any, pdf: Any) -> None:
        _tidy(pdf, by_name)

    with _no_collection():
        data: bytes = document.write_pdf(
            font_config=FontConfiguration(),
            pdf_variant=VARIANT,
            attachments=parts,
            finisher=finish,
        )
    return with_checksum(data)


def _tidy(pdf: Any, by_name: dict[str, Attached]) -> None:
    """Each file associated once, with its relationship (WeasyPrint finds it by content, which two
    runs may share) and a media type that does not depend on the machine's own list."""
    for item in pdf.objects:
        if isinstance(item, dict) and item.get("Type") == "/Filespec":
            stream = pdf.objects[int(item["EF"]["F"].split()[0])]
            row = by_name[item["UF"].string]
            item["AFRelationship"] = f"/{row.relationship}"
            stream.extra["Subtype"] = f"/{MIME[row.name.kind].replace('/', '#2F')}"
            # Readers older than the UF key look for F, newer ones for UF; both name one stream.
            item["EF"]["UF"] = item["EF"]["F"]
    if "AF" in pdf.catalog:
        pdf.catalog["AF"][:] = list(dict.fromkeys(pdf.catalog["AF"]))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without cyclic garbage collection: a quarter of the time goes into walking live boxes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
