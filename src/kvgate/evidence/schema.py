"""JSON Schemas of what a machine reads from sealed evidence, made from the types that write it.

Canonical JSON writes every field, so every property is required and none may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kvgate.evidence import layout
from kvgate.evidence.manifest import Manifest
from kvgate.verdict import GateVerdict

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SHA256: Final = {"pattern": "^[0-9a-f]{64}$"}
_NOT_NEGATIVE: Final = {"minimum": 0}

# What the types do not say; (type, field) -> further keywords.
_MORE: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("GateVerdict", "gate"): {"minimum": 1, "maximum": 4},
    ("GateVerdict", "run"): {"minimum": 1},
    ("GateVerdict", "contract_digest"): _SHA256,
    ("GateVerdict", "pairs_measured"): _NOT_NEGATIVE,
    ("GateVerdict", "blocks_measured"): _NOT_NEGATIVE,
    ("Figure", "n"): _NOT_NEGATIVE,
    ("Exclusion", "block"): _NOT_NEGATIVE,
    ("Manifest", "format"): {"const": layout.FORMAT},
    ("Manifest", "contract_sha256"): _SHA256,
    ("Manifest", "chain"): _SHA256,
    ("ManifestEntry", "sha256"): _SHA256,
    ("ManifestEntry", "chain"): _SHA256,
    ("ManifestEntry", "size_bytes"): {"minimum": 0, "maximum": layout.MAX_FILE_BYTES},
}


def verdict_schema() -> dict[str, Any]:
    """The schema of ``verdict.json``."""
    return _schema(GateVerdict, "urn:kvgate:verdict:1", "verdict.json of a kvgate evidence bundle")


def manifest_schema() -> dict[str, Any]:
    """The schema of ``manifest.json``; digests, chain and order are for ``kvgate verify``."""
    title = "manifest.json of a kvgate evidence bundle"
    return _schema(Manifest, f"urn:{layout.FORMAT.replace('/', ':')}:manifest", title)


def _schema(kind: type, name: str, title: str) -> dict[str, Any]:
    made = msgspec.json.schema(kind)
    for type_name, table in made["$defs"].items():
        table["description"] = " ".join(table.get("description", "").replace("``", "'").split())
        if table.get("type") != "object" or "properties" not in table:
            continue
        table["additionalProperties"] = False
        table["required"] = sorted(table["properties"])
        for field, terms in table["properties"].items():
            terms.pop("default", None)
            terms.update(_MORE.get((type_name, field), {}))
    return {"$schema": DIALECT, "$id": name, "title": title, **made}
