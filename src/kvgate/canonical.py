"""One value, one sequence of bytes: the JSON that is hashed, sealed and compared.

The rule, in full: object keys sorted by code point; two spaces of indentation; UTF-8 without
escapes for non-ASCII text; integers exact; floats rounded to six significant digits and written in
Python's shortest form that reads back as that float (0.25, 3.0, 1e-09), -0.0 written as 0.0; one
newline at the end. Six digits, because the last bits of a mean differ between processors and a
verdict must not. What must stay exact (token counts, bytes, nanoseconds) is an integer.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence, Set
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

SIGNIFICANT_DIGITS: Final = 6
MAX_DEPTH: Final = 100
_READ_BYTES: Final = 1 << 20


def round_significant(value: float) -> float:
    """``value`` rounded to six significant digits; -0.0 becomes 0.0. NaN and infinity pass."""
    rounded = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return 0.0 if rounded == 0.0 else rounded


def canonical_json(value: object) -> bytes:
    """The canonical bytes of ``value`` (see the module's rule), newline at the end.

    Takes mappings, sequences, sets (sorted by their own canonical form), dataclasses, msgspec
    structs, enums (their value), paths (as text), dates (ISO 8601), numbers, text and None. Text
    that is not valid Unicode (lone surrogates from a hostile host) has U+FFFD in those places.

    Raises ValueError, naming the path inside the value, for NaN, infinity, a key that is not text,
    keys that become equal, nesting deeper than 100 and every other kind of object.
    """
    text = json.dumps(_plain(value, "$", 0), sort_keys=True, ensure_ascii=False, indent=2)
    return text.encode("utf-8") + b"\n"


def sha256_hex(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces of 1 MiB. Raises OSError as ``open`` does."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _plain(value: object, at: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{at} is nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, at, depth + 1)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, numbers.Real):
        return _number(value, at)
    if isinstance(value, PurePath | datetime.date | datetime.time):
        return _text(str(value) if isinstance(value, PurePath) else value.isoformat())
    return _container(value, at, depth)


def _container(value: object, at: str, depth: int) -> Any:
    if isinstance(value, msgspec.Struct):
        return _object(_struct_items(value), at, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
        return _object(fields, at, depth)
    if isinstance(value, Mapping):
        return _object(list(value.items()), at, depth)
    if isinstance(value, Set):
        plain = [_plain(item, f"{at}{{}}", depth + 1) for item in value]
        return sorted(plain, key=canonical_json)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, f"{at}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise ValueError(f"{at} ({type(value).__name__}) is of a kind canonical JSON lacks")


def _object(items: Sequence[tuple[object, object]], at: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in items:
        name = key.value if isinstance(key, enum.Enum) else key
        if type(name) is not bool and isinstance(name, numbers.Integral):
            name = str(int(name))
        if not isinstance(name, str):
            raise ValueError(f"{at} has the key {name!r}, which is not text")  # noqa: TRY004
        name = _text(name)
        if name in plain:
            raise ValueError(f"{at} has the key {name!r} twice")
        plain[name] = _plain(item, f"{at}.{name}", depth + 1)
    return plain


def _struct_items(value: msgspec.Struct) -> list[tuple[object, object]]:
    items: list[tuple[object, object]] = []
    config = value.__struct_config__
    if config.tag is not None and config.tag_field is not None:
        items.append((config.tag_field, config.tag))
    for name, shown in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if item is not msgspec.UNSET:
            items.append((shown, item))
    return items


def _number(value: numbers.Real, at: str) -> int | float:
    if isinstance(value, numbers.Integral):
        return int(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{at} is {number}, which is not a number that can be judged")
    return round_significant(number)


def _text(value: str) -> str:
    # Also turns a str subclass into plain text.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
