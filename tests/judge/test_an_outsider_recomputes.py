"""The script in docs/evidence.md: a third party gets the verdict's effects with pandas alone."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgate.adjudicate import adjudicate
from kvgate.evidence.seal import seal
from kvgate.evidence.tables import REQUESTS_SCHEMA
from kvgate.evidence.verify import verify

from .builders import ROOT
from .test_bundle import healthy

__all__ = ["healthy"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (ROOT / "docs" / "evidence.md").read_text()
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1
    path = tmp_path_factory.mktemp("outsider") / "recompute.py"
    path.write_text(found[0])
    return path


@pytest.fixture
def sealed(healthy: Path, tmp_path: Path) -> Path:
    """The bundle with its verdict, sealed."""
    root = tmp_path / "g3-001"
    shutil.copytree(healthy, root)
    (root / "verdict.json").write_bytes(adjudicate(root).verdict_json)
    seal(root, previous_manifest_sha256=None, kvgate_version="0.0.test")
    assert verify(root) == []
    return root


def run(script: Path, bundle: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), str(bundle)],
        capture_output=True, text=True, check=False, cwd=script.parent, timeout=120,
    )  # fmt: skip


def test_the_script_imports_nothing_of_ours(script: Path) -> None:
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(script.read_text()))
        for alias in (node.names if isinstance(node, ast.Import | ast.ImportFrom) else [])
    }
    modules = {
        (node.module or "").split(".")[0]
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert modules <= {"pathlib"}
    assert names <= {"hashlib", "json", "math", "sys", "Path", "pandas"}


def test_the_script_gives_the_effects_of_the_verdict(script: Path, sealed: Path) -> None:
    done = run(script, sealed)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "files as sealed, manifest" in lines[0]
    assert {line.split()[0] for line in lines[1:]} == {"G3.1", "G3.2", "G3.8"}
    for line in lines[1:]:
        assert line.split()[2] in line.split("verdict")[1]


def two_hosts(root: Path, ahead: int) -> None:
    """The same blocks as two load hosts would have seen them, one clock ``ahead`` of the other."""
    for folder in sorted((root / "blocks").iterdir()):
        block = json.loads((folder / "block.json").read_text())
        rows = pq.read_table(folder / "requests.parquet").to_pylist()
        level = block["cell"]["level"]
        names = ("load-1", "load-2")[:level]  # a host without a stream is left out
        for i, row in enumerate(rows):
            row["load_host"] = names[i % len(names)]
            for key, found in row.items():
                if (
                    i % len(names)
                    and key.endswith("_ns")
                    and key != "client_lag_ns"
                    and found is not None
                ):
                    row[key] = [t + ahead for t in found] if key == "token_ns" else found + ahead
        (folder / "requests.parquet").unlink()
        table = pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)
        pq.write_table(table, folder / "requests.parquet")
        level, end = (
            block["cell"]["level"],
            {"uncertainty_ns": 1000, "round_trips": 9, "agreed": True},
        )
        (attempt,) = block["calibration"]["attempts"]
        block["load_hosts"] = {
            name: {
                "host": name, "level": share, "host_level": share, "state": "done", "fault": None,
                "requests": len(rows[i :: len(names)]), "records": len(rows[i :: len(names)]),
                "client": block["client"] | {"start_late_ns": 0},
                "clock": dict.fromkeys(("before", "after"), end | {"offset_ns": ahead * i}),
                "calibration": {"attempts": [attempt | {"level": share, "held": float(share)}]},
            }
            for i, name in enumerate(names)
            for share in [len(range(i, level, len(names)))]
        }  # fmt: skip
        (folder / "block.json").write_text(json.dumps(block))


def test_two_load_hosts_with_clocks_of_their_own_give_the_same_effects(
    script: Path, healthy: Path, tmp_path: Path
) -> None:
    root = tmp_path / "g3-001"
    shutil.copytree(healthy, root)
    alone = adjudicate(root)
    two_hosts(root, 7_000_000_000_000)
    judged = adjudicate(root)
    assert [c.verdict for c in judged.verdict.clauses] == [c.verdict for c in alone.verdict.clauses]
    assert judged.verdict.exclusions == alone.verdict.exclusions
    for mine, theirs in zip(judged.verdict.clauses, alone.verdict.clauses, strict=True):
        assert [f.value for f in mine.figures] == [f.value for f in theirs.figures]
    (root / "verdict.json").write_bytes(judged.verdict_json)
    seal(root, previous_manifest_sha256=None, kvgate_version="0.0.test")
    done = run(script, root)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[1:]
    assert {line.split()[0] for line in lines} == {"G3.1", "G3.2", "G3.8"}
    for line in lines:
        assert line.split()[2] in line.split("verdict")[1]


def test_the_script_stops_at_a_file_that_was_changed(script: Path, sealed: Path) -> None:
    path = sealed / "blocks/0/block.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    done = run(script, sealed)
    assert done.returncode == 1
    assert "blocks/0/block.json was changed" in done.stderr
