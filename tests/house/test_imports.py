"""Data flows one way: who may import whom, read from the sources themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kvgate"
CONCEPTS = {
    "canonical", "cells", "reuse", "contract", "contract_gates", "contract_lines", "contract_rules",
    "contract_tables", "criterion", "errors",
    "causes", "inventory", "numbers", "reason", "record", "verdict", "waiver",
}  # fmt: skip
# Whom a room may import beside the concepts; rooms that are not named here may import any.
MAY_IMPORT: dict[str, set[str]] = {
    **{concept: set() for concept in CONCEPTS},
    "campaign": set(),
    "plan": set(),
    "talk": set(),
    "progress": set(),
    "analyse": {"plan"},
    "decide": {"analyse", "plan", "campaign"},
    "planning": {"analyse", "decide", "plan", "planning_cost"},
    "planning_cost": set(),
    "evidence": set(),
    "observe": {"talk"},
    "imports": {"campaign", "evidence", "observe", "plan"},
    "load": {"analyse", "evidence", "talk"},
    "rehearsal": set(),
    "drive": {"talk"},
    "adjudicate": {"analyse", "campaign", "decide", "evidence", "plan"},
    "report": {"adjudicate", "analyse", "campaign", "evidence", "plan", "planning"},
}
SIMULATES = {"boundary", "characteristic", "noise"}
CROSSING = {"cli", "commands", "conduct", "pytest_plugin"}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            if node.module == "kvgate":
                yield from (f"kvgate.{alias.name}" for alias in node.names)


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.name != "__init__.py" or p.parent != SOURCE)
ROOMS = sorted({room(p) for p in FILES})


def of(name: str) -> list[Path]:
    return [p for p in FILES if room(p) == name]


def test_every_room_is_known() -> None:
    assert set(ROOMS) == set(MAY_IMPORT) | CROSSING


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_stands_below_it(name: str) -> None:
    allowed = MAY_IMPORT[name] | CONCEPTS | {name, "__version__"}
    for path in of(name):
        ours = {m.split(".")[1] for m in imported(path) if m.startswith("kvgate.")}
        assert ours <= allowed, f"{path.name} imports {sorted(ours - allowed)}"


def test_concepts_do_not_go_round_in_circles() -> None:
    below: dict[str, set[str]] = {
        name: {
            m.split(".")[1] for p in of(name) for m in imported(p) if m.startswith("kvgate.")
        } - {name}
        for name in CONCEPTS
    }  # fmt: skip
    while below:
        free = [name for name, needs in below.items() if not needs & set(below)]
        assert free, f"a circle among {sorted(below)}"
        for name in free:
            del below[name]


def users_of(*packages: str) -> set[str]:
    return {
        room(p) for p in FILES for m in imported(p) if m.split(".")[0] in packages
    }  # fmt: skip


def test_only_drive_talks_to_ansible_and_ssh() -> None:
    assert users_of("ansible_runner", "ansible", "paramiko") <= {"drive"}


def test_the_judge_has_no_clock_network_process_or_chance() -> None:
    forbidden = {
        "time", "socket", "urllib", "http", "subprocess", "random", "secrets", "os", "threading",
        "asyncio", "pathlib", "ansible_runner", "pyarrow",
    }  # fmt: skip
    for name in ("decide", "verdict", "reason", "criterion"):
        for path in of(name):
            found = {m.split(".")[0] for m in imported(path)} & forbidden
            assert not found, f"{name}/{path.name} imports {sorted(found)}"
    # What simulates campaigns draws numbers; everything else that analyses evidence must not.
    for path in of("analyse"):
        found = {m.split(".")[0] for m in imported(path)} & forbidden
        assert not found or path.stem in SIMULATES, f"analyse/{path.name} imports {sorted(found)}"


def test_the_load_process_carries_no_tables_and_no_arrays() -> None:
    script = (
        "import sys, kvgate.load.client\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'scipy', 'rich', 'typer'}\n"
        "print(','.join(sorted(heavy & set(sys.modules))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
