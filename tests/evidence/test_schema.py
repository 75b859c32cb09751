"""The published schemas are those of the types, and real files keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.canonical import canonical_json
from kvgate.cli import main
from kvgate.evidence.schema import manifest_schema, verdict_schema

from .json_schema import errors
from .judged import ROOT, write_run

SCHEMAS = {"verdict": verdict_schema, "manifest": manifest_schema}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_the_one_of_the_types(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "docs" / "schema" / f"{name}.schema.json"
    assert main(["schema", name]) == 0
    printed = capsys.readouterr().out
    assert path.read_text() == printed, f"kvgate schema {name} > {path.relative_to(ROOT)}"
    assert printed.encode() == canonical_json(SCHEMAS[name]())


@pytest.mark.parametrize("serial", ["SIM-FX100-0001", "ANOTHER"])
def test_real_verdicts_and_manifests_keep_their_schema(tmp_path: Path, serial: str) -> None:
    write_run(tmp_path / "g1-001", serial=serial)
    for name, schema in SCHEMAS.items():
        value = json.loads((tmp_path / "g1-001" / f"{name}.json").read_bytes())
        assert errors(value, schema(), schema()) == []


@pytest.mark.parametrize(
    ("name", "key", "wrong"),
    [
        ("verdict", "verdict", "MAYBE"),
        ("verdict", "gate", 5),
        ("verdict", "gate", True),
        ("verdict", "clauses", [{}]),
        ("verdict", "surprise", 1),
        ("verdict", "reason", None),
        ("verdict", "contract_digest", "5"),
        ("manifest", "format", "kvgate-bundle/2"),
        ("manifest", "files", [{"path": "x"}]),
        ("manifest", "chain", "x"),
    ],
)
def test_what_is_no_verdict_or_manifest_does_not_keep_it(
    tmp_path: Path, name: str, key: str, wrong: Any
) -> None:
    write_run(tmp_path / "g1-001")
    value = json.loads((tmp_path / "g1-001" / f"{name}.json").read_bytes())
    schema = SCHEMAS[name]()
    assert errors({**value, key: wrong}, schema, schema) != []
    if key in value:
        del value[key]
        assert errors(value, schema, schema) == [f"$ lacks {key}"]
