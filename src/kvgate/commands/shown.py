"""How commands print: lines for a person, one canonical JSON document for a machine."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal obeys instead of showing: controls, directions, surrogates."""


def say(text: str = "") -> None:
    """A line on stdout."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """A line on stderr, beside a document on stdout."""
    _write(sys.stderr, text)


def harmless(text: str) -> str:
    """``text`` with what a terminal would obey spelled out: names come from strangers."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNSEEN else c
        for c in text
    )


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    line = harmless(text).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(f"{line}\n")


def document(value: object) -> None:
    """One JSON document on stdout, and nothing else: keys sorted, floats to six digits."""
    from kvgate.canonical import canonical_json

    sys.stdout.write(canonical_json(value).decode())


def table(rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """Rows with aligned columns; nothing is cut, however narrow the terminal."""
    kept = [tuple(row) for row in rows]
    if not kept:
        return
    widths = [max(_width(row[i]) for row in kept) for i in range(len(kept[0]))]
    for row in kept:
        cells = (cell + " " * (w - _width(cell)) for cell, w in zip(row, widths, strict=True))
        say(" " * indent + "  ".join(cells).rstrip())


def _width(text: str) -> int:
    """Columns on a terminal: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
