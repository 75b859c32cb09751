"""What a load process wrote, line by line; it needs no tables, so it runs on any load host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvgate.errors import CannotMeasure
from kvgate.record import RequestRecord


def read_records(path: Path) -> Iterator[RequestRecord]:
    """The records of a load process, one at a time.

    A last line without its line end was cut off while it was written and is left out; any other
    unreadable line raises :class:`CannotMeasure` with its number.
    """
    decoder = msgspec.json.Decoder(RequestRecord)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as fault:
                raise CannotMeasure(
                    f"not a request record: {fault}",
                    where=f"{path}:{number}",
                    remedy="the file was changed after it was written; measure again",
                ) from None
