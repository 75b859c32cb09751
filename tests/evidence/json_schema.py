"""JSON Schema, as far as our own schemas use it; an unknown keyword is an error of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_SAID: Final = {"$schema", "$id", "$defs", "title", "description"}
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "object": dict, "array": list, "string": str, "null": type(None), "boolean": bool,
    "integer": int, "number": (int, float),
}  # fmt: skip


def errors(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """Where ``value`` does not keep ``schema``; ``root`` holds the definitions."""
    found: list[str] = []
    for keyword, terms in schema.items():
        if keyword not in _SAID:
            found += _CHECKS[keyword](value, terms, schema, root, at)
    return found


def _type(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    right = isinstance(value, _TYPES[terms])
    if isinstance(value, bool) and terms in ("integer", "number"):
        right = False
    if not right:
        yield f"{at} is no {terms}"


def _properties(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in value.keys() & terms.keys():
            yield from errors(value[key], terms[key], root, f"{at}.{key}")


def _additional(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in sorted(value.keys() - schema.get("properties", {}).keys()):
            if terms is False:
                yield f"{at} has {key}, which is not allowed"
            else:
                yield from errors(value[key], terms, root, f"{at}.{key}")


def _required(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key in sorted(set(terms) - value.keys()):
            yield f"{at} lacks {key}"


def _items(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from errors(item, terms, root, f"{at}[{n}]")


def _any_of(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if all(errors(value, choice, root, at) for choice in terms):
        yield f"{at} is none of its kinds"


def _reference(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    yield from errors(value, root["$defs"][terms.removeprefix("#/$defs/")], root, at)


def _enum(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if value not in terms:
        yield f"{at} is none of {terms}"


def _const(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if value != terms:
        yield f"{at} is not {terms}"


def _pattern(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(terms, value):
        yield f"{at} does not match {terms}"


def _minimum(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and value < terms:
        yield f"{at} is below {terms}"


def _maximum(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and value > terms:
        yield f"{at} is above {terms}"


def _length(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, list) and len(value) < terms:
        yield f"{at} has fewer than {terms} items"


def _most(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, list) and len(value) > terms:
        yield f"{at} has more than {terms} items"


def _prefix(value: Any, terms: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for n, (item, part) in enumerate(zip(value, terms, strict=False)):
            yield from errors(item, part, root, f"{at}[{n}]")


_CHECKS: Final = {
    "type": _type, "properties": _properties, "additionalProperties": _additional,
    "required": _required, "items": _items, "anyOf": _any_of, "$ref": _reference, "enum": _enum,
    "const": _const, "pattern": _pattern, "minimum": _minimum, "maximum": _maximum,
    "minItems": _length, "maxItems": _most, "prefixItems": _prefix,
}  # fmt: skip
