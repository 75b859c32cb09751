"""Options and marks of pytest and its other plugins: what they leave out never passes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure

from .conftest import Gates, Run

pytest_plugins = ["pytester"]


def mark(where: str, line: str) -> None:
    """Put a mark above the first test of G1."""
    path = Path("gates/gate1_arrival/test_arrival.py")
    text = path.read_text()
    assert where in text
    path.write_text(text.replace(where, f"{line}\n{where}", 1))


@pytest.mark.parametrize(
    "line",
    ["@pytest.mark.skip(reason='later')", "@pytest.mark.skipif(True, reason='x')",
     "@pytest.mark.skipif(False, reason='x')", "@pytest.mark.xfail(reason='known')"],
)  # fmt: skip
def test_a_clause_whose_test_is_marked_is_not_asked_for(run: Run, gates: Gates, line: str) -> None:
    mark('@clause("G1.2")', line)
    result = run("-m", "gate1")
    assert result.ret == 1
    assert "G1.2" not in gates.asked[0][1]
    result.stdout.fnmatch_lines(["G1  INVALID  *", "*G1.2 INVALID: *"])


def test_a_test_that_leaves_by_itself_is_no_success(run: Run, gates: Gates) -> None:
    path = Path("gates/gate1_arrival/test_arrival.py")
    path.write_text(
        path.read_text().replace("    assert", "    pytest.skip('not today')\n    assert")
    )
    assert run("-m", "gate1").ret == 1
    assert len(gates.asked) == 1


@pytest.mark.parametrize("options", [("-x",), ("--maxfail=1",), ("--setup-show",), ("-s",),
                                     ("-p", "no:capture"), ("--ff",), ("--nf",)])  # fmt: skip
def test_options_that_leave_nothing_out_change_nothing(
    run: Run, gates: Gates, options: tuple[str, ...]
) -> None:
    if options[0] in {"--ff", "--nf"}:
        options = ("-p", "cacheprovider", *options)
    assert run("-m", "gate1", *options).ret == 0
    assert len(gates.asked[0][1]) == 7


@pytest.mark.parametrize(
    "options",
    [("--collect-only",), ("--co", "-q"), ("--setup-plan",), ("--setup-only", "-k", "G1"),
     ("--deselect", "gates/gate1_arrival/test_arrival.py::test_the_model_is_the_one_ordered"),
     ("-k", "serial"), ("-k", "nothing_at_all"), ("--ignore", "gates/gate1_arrival")],
)  # fmt: skip
def test_options_that_leave_something_out_never_end_with_zero(
    run: Run, options: tuple[str, ...]
) -> None:
    assert run("-m", "gate1", *options).ret != 0


def test_without_our_plugin_nothing_can_pass(run: Run, gates: Gates) -> None:
    assert run("-m", "gate1", "-p", "no:kvgate").ret != 0
    assert gates.asked == []


def test_several_processes_are_refused(run: Run, gates: Gates, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--processes', dest='numprocesses', type=int)\n"
    )
    result = run("-m", "gate1", "--processes", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert gates.asked == []
    assert "gates run in one process" in result.stderr.str() + result.stdout.str()


def test_a_run_that_something_else_broke_off_is_not_run_again(run: Run, gates: Gates) -> None:
    gates.error = pytest.fail.Exception("Timeout >1.0s")  # type: ignore[assignment]
    result = run("-m", "gate1")
    assert result.ret == 1
    assert len(gates.asked) == 1
    result.stdout.fnmatch_lines(["G1  NO VERDICT  the run of G1 was broken off*"])


def test_the_reason_of_a_gate_without_verdict_is_said_once(run: Run, gates: Gates) -> None:
    gates.error = CannotMeasure("the disk is full", where="/evidence", remedy="free space")
    result = run("-m", "gate1", "-q", "-r", "N")
    assert result.ret == 1
    said = [line for line in result.outlines if "the disk is full" in line]
    assert len(said) == 2  # at the first clause, and in the summary of the gates
    assert said[-1].startswith("G1  NO VERDICT  /evidence: ")


def test_a_full_disk_is_no_fault_of_ours(run: Run, gates: Gates) -> None:
    gates.error = OSError(errno.ENOSPC, "Error writing bytes to file")
    result = run("-m", "gate1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["G1  NO VERDICT  *: the disk is full; * -- free space*"])
