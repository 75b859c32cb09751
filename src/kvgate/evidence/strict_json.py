"""JSON from strangers: no NaN, no duplicate keys, no overflow, no endless nesting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from kvgate.errors import CannotMeasure
from kvgate.evidence import layout
from kvgate.evidence.files import read_safely


class BadJson(CannotMeasure):
    """A JSON file of a bundle is not the JSON that we write."""


def parse_strict(data: bytes, where: str) -> Any:
    """The value in ``data`` (UTF-8). Raises BadJson with ``where`` for anything loose."""
    try:
        text = data.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError as error:
        raise _bad("nested too deeply", where) from error
    except ValueError as error:  # also UnicodeDecodeError and JSONDecodeError
        raise _bad(f"not strict JSON: {error}", where) from error


def read_object(root: Path, rel: str) -> dict[str, Any] | None:
    """The JSON object in ``rel``, None where the file is absent.

    Raises BadJson where it is no object or loose, UnsafeFile for links and oversized files.
    """
    try:
        data = read_safely(root, rel, layout.MAX_JSON_BYTES)
    except FileNotFoundError:
        return None
    value = parse_strict(data, str(root / rel))
    if not isinstance(value, dict):
        raise _bad("not a JSON object", str(root / rel))
    return value


def _bad(message: str, where: str) -> BadJson:
    return BadJson(message[:300], where=where, remedy="verify the bundle; ask for a clean copy")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} stands twice in one object")
    return seen


def _constant(name: str) -> NoReturn:
    raise ValueError(f"the constant {name} is no number")


def _int(text: str) -> int:
    # Beyond 64 bits no counter of ours goes, and arithmetic with floats would break.
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**63:
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value
