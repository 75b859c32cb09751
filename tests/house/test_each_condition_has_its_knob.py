"""The table in docs/validity.md: each condition that can break a block, with the test of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/validity.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and "`test_" in line
]
KNOBS = [
    ROOT / "tests/outcomes/test_each_knob_breaks_its_condition.py",
    ROOT / "tests/outcomes/test_engines_serve_our_requests.py",
    ROOT / "tests/outcomes/test_each_workload_is_a_cell.py",
    ROOT / "tests/hosts/test_load_over_ssh.py",
]
TESTS = {
    node.name: ast.unparse(node)
    for path in KNOBS
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef)
}
MAKERS = {"Condition", "at_most", "at_least", "check"}
BESIDE_THE_TABLE = {
    "responses_possible",
    "client_faults",
    "records_of_client",
    "simulator_on_time",
    "file_has_",
}


def conditions_of_a_block() -> Iterator[str]:
    """The names that the code of the conditions gives, as far as they are written out."""
    for name in (
        "validity",
        "counted",
        "served",
        "setup",
        "calibration",
        "paired",
        "foreign",
        "records_of_client",
    ):
        tree = ast.parse((ROOT / f"src/kvgate/analyse/{name}.py").read_text())
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id in MAKERS and call.args:
                yield from _written(call.args[0])
        for loop in ast.walk(tree):
            # Conditions that are made in a loop over their names.
            if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple):
                for row in loop.iter.elts:
                    if isinstance(row, ast.Tuple) and row.elts:
                        yield from _written(row.elts[0])


def _written(name: ast.expr) -> Iterator[str]:
    if isinstance(name, ast.IfExp):
        yield from _written(name.body)
        yield from _written(name.orelse)
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value
    elif isinstance(name, ast.JoinedStr):
        first = name.values[0]
        if isinstance(first, ast.Constant):
            yield str(first.value)
        else:
            yield from (f"{column}_as_planned" for column in ("prompt_tokens", "output_tokens"))


COUNTERS_IN_LOOPS = {"bytes_read", "loads", "hit_tokens", "lookups"}
CONDITIONS = sorted(set(conditions_of_a_block()) - COUNTERS_IN_LOOPS | {"bytes_read"})


def test_the_conditions_are_found_in_the_code() -> None:
    assert {"client_stall", "fabric_clean", "bytes_read", "fill_level", "untouched_",
            "prompt_tokens_as_planned", "prompts_alike", "client_holds_level"} <= set(
        CONDITIONS
    )  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_stands_in_the_table_with_whom_it_speaks_about(name: str) -> None:
    if name in BESIDE_THE_TABLE:
        assert f"`{name}" in TEXT
        return
    rows = [row for row in ROWS if row[1].startswith(f"`{name}")]
    assert len(rows) == 1, f"{name}: {len(rows)} rows in docs/validity.md"
    assert re.search("instrument|environment|appliance|owner", rows[0][2])


@pytest.mark.parametrize("row", ROWS, ids=[row[1].strip("`") for row in ROWS])
def test_a_row_names_a_test_that_breaks_its_condition(row: list[str]) -> None:
    names = re.findall(r"`(test_\w+)`", row[4])
    assert names
    condition = re.findall(r"`([a-z_]+)", row[1])[0]
    for name in names:
        assert name in TESTS, f"{name} is no test of {[path.name for path in KNOBS]}"
        assert condition in TESTS[name], f"{name} says nothing of {condition}"
