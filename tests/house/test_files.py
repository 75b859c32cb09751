"""What holds for every file of the project."""

from __future__ import annotations

import ast
import functools
import re
import string
import subprocess
from pathlib import Path

import pytest

from kvgate.contract import Contract, load_contract
from kvgate.reason import TEXTS

ROOT = Path(__file__).parents[2]
MOST_LINES = 450
UNFINISHED = re.compile(
    "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3 + r"\b", "NotImplemented" + "Error"))
)
# Hosts that belong to somebody's machine or mirror and never into a file; the public index of a
# language is named by no file either, since a lock is installed from wherever one is.
HOSTS = re.compile(
    r"(?i)\b(?:pypi\.org|files\.pythonhosted\.org|[a-z0-9.-]*(?:artifactory|nexus|devpi|mirror)"
    r"[a-z0-9-]*\.[a-z0-9.-]+\.[a-z]{2,}|huggingface\.co/[a-z]|hf-mirror)"
)


def tracked() -> list[Path]:
    """Files that the project keeps; without git (an unpacked archive), what lies in its folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "tests", "gates", "playbooks", "inventories", "reports", "docs")
        return [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file()]
    return [p for name in listed.split("\0") if name and (p := ROOT / name).is_file()]


FILES = tracked()
PYTHON = [p for p in FILES if p.suffix == ".py"]


def text_of(path: Path) -> str:
    """The file's text; empty where it is none."""
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        return ""
    return data.decode("utf-8", "replace")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_look_at() -> None:
    assert len(PYTHON) > 100


def test_no_python_file_is_longer_than_a_person_reads_at_once() -> None:
    long = {
        name_of(p): n for p in PYTHON if (n := len(text_of(p).splitlines())) > MOST_LINES
    }  # fmt: skip
    assert long == {}


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{name_of(p)}:{number}"
        for p in FILES
        if p != Path(__file__) and p.suffix not in {".lock", ".svg"}
        for number, line in enumerate(text_of(p).splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_no_file_names_a_registry_or_a_mirror() -> None:
    found = [
        f"{name_of(p)}:{number}: {match[0]}"
        for p in FILES
        for number, line in enumerate(text_of(p).splitlines(), 1)
        if p != Path(__file__) and (match := HOSTS.search(line))
    ]
    assert found == []


# --- what a reader is told -----------------------------------------------------------------------


def fields_of(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_a_reason_says_the_same_in_both_languages(code: str) -> None:
    english, chinese = TEXTS[code]
    assert fields_of(english) == fields_of(chinese)
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert not re.search(r"[\u4e00-\u9fff]", english)


@functools.cache
def reasons_made() -> list[tuple[str, str, frozenset[str] | None]]:
    """(file, code, the names given) of every ``Reason(...)`` whose code stands there in full; the
    names are None where they are put together elsewhere."""
    made = []
    for path in (p for p in PYTHON if "src" in p.parts):
        for node in ast.walk(ast.parse(text_of(path))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason"):
                continue
            codes = node.args[0]
            options = [codes.body, codes.orelse] if isinstance(codes, ast.IfExp) else [codes]
            given: frozenset[str] | None = frozenset()
            if len(node.args) > 1:
                given = None
                if isinstance(node.args[1], ast.Dict):
                    keys = node.args[1].keys
                    given = frozenset(str(k.value) for k in keys if isinstance(k, ast.Constant))
            made += [
                (name_of(path), str(o.value), given) for o in options if isinstance(o, ast.Constant)
            ]
    return made


def test_every_reason_that_is_given_has_its_sentence_and_its_figures() -> None:
    made = reasons_made()
    assert len(made) > 30
    for where, code, given in made:
        assert code in TEXTS, f"{where}: {code}"
        if given is not None:
            needed = set(fields_of(TEXTS[code][0]))
            assert needed <= given, f"{where}: {code} lacks {sorted(needed - given)}"


def test_no_sentence_is_left_that_nobody_says() -> None:
    said = {code for _, code, _ in reasons_made()}
    source = "".join(
        text_of(p) for p in PYTHON if "src" in p.parts and p.name not in {"reason.py", "causes.py"}
    )
    unsaid = {code for code in TEXTS if code not in said and f'"{code}"' not in source}
    assert unsaid == set()


# --- contracts and their tests -------------------------------------------------------------------

CONTRACTS = sorted((ROOT / "gates" / "contracts").glob("*.toml"))


def contracts() -> list[Contract]:
    return [load_contract(path) for path in CONTRACTS]


def suites() -> dict[str, tuple[str, str]]:
    """clause -> (marker of its module, name of the test), from the sources of the suites."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted((ROOT / "gates").glob("gate*/test_*.py")):
        tree = ast.parse(path.read_text())
        marks = [
            node.value.attr
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Attribute)
            and getattr(node.targets[0], "id", "") == "pytestmark"
        ]
        assert len(marks) == 1, f"{path.name} needs one pytestmark"
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            clauses = [
                str(d.args[0].value)
                for d in node.decorator_list
                if isinstance(d, ast.Call)
                and getattr(d.func, "id", "") == "clause"
                and isinstance(d.args[0], ast.Constant)
            ]
            assert len(clauses) == 1, f"{path.name}: {node.name} stands for no clause"
            assert clauses[0] not in found, f"{clauses[0]} has two tests"
            found[clauses[0]] = (marks[0], node.name)
    return found


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda p: str(p.stem))
def test_every_clause_of_a_shipped_contract_has_a_test(path: Path) -> None:
    contract = load_contract(path)
    clauses = {c.id for gate in contract.gates for c in contract.gate(gate).clause}
    assert clauses <= set(suites())


def test_every_test_carries_the_marker_of_its_clauses_gate_and_stands_in_some_contract() -> None:
    known = {c.id for k in contracts() for gate in k.gates for c in k.gate(gate).clause}
    for clause, (mark, name) in suites().items():
        assert mark == f"gate{clause[1]}", name
        assert clause in known, f"{name} stands for {clause}, which no shipped contract has"


def test_a_gates_test_reads_like_the_contract_and_holds_no_number() -> None:
    for path in (ROOT / "gates").glob("gate*/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                (statement,) = node.body
                assert ast.unparse(statement) == "assert verdict.accepted, verdict.reason"
