"""pytest as the console: what it says of each outcome, and that nothing passes unasked.

The gates' own tests run inside, on evidence of G1 made up here and judged by the real judge; no
engine is started.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.errors import CannotMeasure, GateClosed
from kvgate.verdict import GateVerdict, Verdict

from .conftest import Gates, Run

pytest_plugins = ["pytester"]


def ids(count: int = 7) -> tuple[str, ...]:
    return tuple(f"G1.{n}" for n in range(1, count + 1))


def test_a_gate_whose_clauses_all_pass_exits_with_0(run: Run, gates: Gates) -> None:
    result = run("-m", "gate1")
    assert result.ret == 0
    result.assert_outcomes(passed=7)
    assert gates.asked == [(1, ids(), ())]
    result.stdout.fnmatch_lines(["*gates*", "G1  PASS  PROCEED*REHEARSAL*"])
    assert "verdict.json" in result.outlines[-2]


def test_a_gate_is_run_once_however_many_clauses_it_has(run: Run, gates: Gates) -> None:
    run("-m", "gate1")
    assert len(gates.asked) == 1


def test_a_fail_is_a_failing_test_with_its_reason_alone(run: Run, gates: Gates) -> None:
    gates.values = {"device_model": "another"}
    result = run("-m", "gate1")
    assert result.ret == 1
    result.assert_outcomes(failed=1, passed=6)
    text = result.stdout.str()
    assert "G1.1 FAIL: found another, required FX100 (simulated)" in text
    assert "def test_" not in text


def test_an_invalid_clause_is_an_error_before_the_test(run: Run, gates: Gates) -> None:
    gates.values = {"memory": None}
    result = run("-m", "gate1")
    assert result.ret == 1
    result.assert_outcomes(errors=1, passed=6)
    assert "G1.6 INVALID: memory at e was not measured" in result.stdout.str()


def test_an_inconclusive_clause_is_a_failing_test(run: Run, gates: Gates) -> None:
    def open_(verdict: GateVerdict) -> GateVerdict:
        first = replace(verdict.clauses[0], verdict=Verdict.INCONCLUSIVE)
        return replace(
            verdict, verdict=Verdict.INCONCLUSIVE, clauses=(first, *verdict.clauses[1:])
        )  # fmt: skip

    gates.change = open_
    result = run("-m", "gate1")
    assert result.ret == 1
    result.assert_outcomes(failed=1, passed=6)
    assert "G1.1 INCONCLUSIVE" in result.stdout.str()


def test_clauses_that_pass_in_a_gate_that_does_not_exit_with_1(run: Run, gates: Gates) -> None:
    # The gate is decided from evidence, never from pytest's own count of passed tests.
    gates.change = lambda verdict: replace(verdict, verdict=Verdict.INVALID)
    result = run("-m", "gate1")
    result.assert_outcomes(passed=7)
    assert result.ret == 1


def test_an_engineering_run_never_ends_with_0(run: Run, gates: Gates) -> None:
    result = run("-m", "gate1", "--engineering")
    result.assert_outcomes(passed=7)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["G1  PASS  no decision*", "*an engineering run proves nothing*"])
    assert "verdict.json" in result.outlines[-2]


@pytest.mark.parametrize("error", [
    GateClosed("G1 does not open: reason", where="campaign", remedy="do this"),
    CannotMeasure("the host is gone", where="host e", remedy="bring it back"),
], ids=["closed", "cannot measure"])  # fmt: skip
def test_a_gate_without_a_verdict_is_an_error_of_each_test_and_run_once(
    run: Run, gates: Gates, error: Exception
) -> None:
    gates.error = error
    result = run("-m", "gate1")
    assert result.ret == 1
    result.assert_outcomes(errors=7)
    text = result.stdout.str()
    assert f"G1  NO VERDICT  {error}" in text
    assert text.count("ERROR at setup of") == 1
    assert text.count("\nERROR ") == 1
    assert "(so for all 7 clauses of G1)" in text
    assert "Traceback" not in text
    assert len(gates.asked) == 1


# --- selection -----------------------------------------------------------------------------------


@pytest.mark.parametrize("select", [
    ("-k", "not memory"),
    ("--deselect", "gates/gate1_arrival/test_arrival.py::test_engine_hosts_have_their_memory"),
], ids=["-k", "--deselect"])  # fmt: skip
def test_a_deselected_clause_is_invalid_and_so_is_its_gate(
    run: Run, gates: Gates, select: tuple[str, str]
) -> None:
    result = run("-m", "gate1", *select)
    assert result.ret == 1
    result.assert_outcomes(passed=6)
    assert gates.asked == [(1, tuple(i for i in ids() if i != "G1.6"), ())]
    text = result.stdout.str()
    assert "G1  INVALID  RERUN" in text
    assert "G1.6 INVALID: the clause was not selected in this run" in text


def test_one_clause_named_by_its_test_never_makes_a_gate(run: Run, gates: Gates) -> None:
    test = "gates/gate1_arrival/test_arrival.py::test_the_model_is_the_one_ordered"
    result = run(test)
    assert (result.ret, gates.asked) == (1, [(1, ("G1.1",), ())])


@pytest.mark.parametrize("args", [("-m", "gate9"), ("-k", "zzz"), ("-m", "gate1 and gate2")])
def test_nothing_selected_is_no_success(run: Run, gates: Gates, args: tuple[str, str]) -> None:
    result = run(*args)
    assert result.ret != 0
    assert gates.asked == []


def test_a_clause_of_the_contract_without_a_test_is_a_usage_error(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    suite = pytester.path / "gates" / "gate1_arrival" / "test_arrival.py"
    suite.write_text(suite.read_text().replace('@clause("G1.6")', '@clause("G1.66")'))
    result = run("-m", "gate1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "clauses without a test: G1.6" in result.stderr.str() + result.stdout.str()
    assert gates.asked == []


def test_a_missing_test_of_another_gate_stops_nobody(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    suite = pytester.path / "gates" / "gate4_stability" / "test_stability.py"
    suite.write_text(suite.read_text().replace('@clause("G4.6")', '@clause("G4.66")'))
    assert run("-m", "gate1").ret == 0


def test_a_gate_that_the_contract_lacks_is_said_to_be(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    contract = pytester.path / "gates" / "contracts" / "rehearsal.toml"
    text = contract.read_text()
    contract.write_text(text[: text.index("[gate4]")])
    result = run("-m", "gate4")
    assert result.ret == 1
    assert "no clause of the contract rehearsal was selected" in result.stdout.str()


def test_collecting_only_runs_nothing_and_moves_nothing(run: Run, gates: Gates) -> None:
    result = run("--collect-only", "-m", "gate1", "--new-campaign")
    # Collecting is no PASS: whoever waits for an exit of 0 must not take it for one.
    assert (result.ret, gates.asked) == (pytest.ExitCode.NO_TESTS_COLLECTED, [])
    result.stdout.fnmatch_lines(["no gate was run: nothing passed"])


# --- options -------------------------------------------------------------------------------------


def line_of(result: pytest.RunResult) -> str:
    """The one line of a usage error."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    lines = [s for s in (*result.errlines, *result.outlines) if s.startswith("ERROR")]
    assert len(lines) == 1
    return lines[0]


def test_an_unknown_fault_is_one_line(run: Run, gates: Gates) -> None:
    assert "slow-teir" in line_of(run("-m", "gate1", "--fault", "slow-teir"))
    assert gates.asked == []


def test_faults_reach_only_the_gates_from_which_they_are_played(run: Run, gates: Gates) -> None:
    run("-m", "gate1", "--fault", "slow-tier")
    run("-m", "gate1", "--fault", "slow-tier", "--fault-from", "1")
    assert [bool(faults) for _, _, faults in gates.asked] == [False, True]


def test_an_inventory_that_is_missing_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = line_of(run("-m", "gate1", "--inventory", "absent"))
    assert "absent: the inventory does not exist -- " in line


def test_a_malformed_contract_is_one_line_with_its_place(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    contract = pytester.path / "gates" / "contracts" / "rehearsal.toml"
    contract.write_text(contract.read_text().replace("consumer = 0.05", "consumer = 5"))
    line = line_of(run("-m", "gate1"))
    number = 1 + contract.read_text().splitlines().index("consumer = 5")
    assert f"rehearsal.toml:{number}: risk.consumer" in line


@pytest.mark.parametrize("args, says", [
    (("--contract", "none"), "no contract 'none'"),
    (("--contract", "none.toml"), "the contract cannot be read"),
    (("--campaign", "../up"), "campaign name '../up' is not usable"),
])  # fmt: skip
def test_a_name_that_is_none_is_one_line(
    run: Run, gates: Gates, args: tuple[str, str], says: str
) -> None:
    assert says in line_of(run("-m", "gate1", *args))


def test_a_new_campaign_is_begun_only_when_the_run_is_in_order(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    old = pytester.path / "var" / "campaigns" / "rehearsal"
    old.mkdir(parents=True)
    suite = pytester.path / "gates" / "gate1_arrival" / "test_arrival.py"
    text = suite.read_text()
    suite.write_text(text.replace('@clause("G1.6")', '@clause("G1.66")'))
    assert run("-m", "gate1", "--new-campaign").ret == pytest.ExitCode.USAGE_ERROR
    assert [p.name for p in old.parent.iterdir()] == ["rehearsal"]
    suite.write_text(text)
    assert run("-m", "gate1", "--new-campaign").ret == 0
    kept = [p.name for p in old.parent.iterdir()]
    assert len(kept) == 1 and kept[0].startswith("rehearsal.before-")


def test_tests_that_are_no_clauses_are_left_alone(
    run: Run, gates: Gates, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_own="def test_own():\n    assert sorted([2, 1]) == [1, 2]\n")
    result = run("test_own.py")
    assert (result.ret, gates.asked) == (0, [])
    assert "gates" not in result.stdout.str().replace("testpaths: gates", "")
