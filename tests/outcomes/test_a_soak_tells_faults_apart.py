"""What goes wrong in a long run is held against the appliance only where evidence shows it: through
the real path, each fault in its own run of a minute or two."""

from __future__ import annotations

from pathlib import Path

import pytest

from .play import run
from .test_late_faults import soak_alone


def test_a_quiet_soak_passes_with_its_canaries_and_its_fault(tmp_path: Path) -> None:
    result = run(tmp_path, gate=4, contract=soak_alone(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.clause("G4.9")["figures"][0]["value"] == 0
    assert result.clause("G4.5")["verdict"] == "PASS"
    assert result.clause("G4.12")["figures"][0]["value"] > 0
    assert not result.conditions()


def test_wrong_answers_in_a_soak_fail_it(tmp_path: Path) -> None:
    result = run(tmp_path, "wrong-answers", gate=4, contract=soak_alone(tmp_path))
    assert result.exit_code == 1
    assert result.clause("G4.9")["verdict"] == "FAIL"
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("FAIL", "STOP-LOSS")


@pytest.mark.parametrize(
    ("fault", "clause", "condition"),
    [("never-hits", "G4.8", "declared_source"), ("engine-restart=400", "G4.4", None)],
)
def test_what_is_not_shown_to_be_the_appliances_is_invalid(
    tmp_path: Path, fault: str, clause: str, condition: str | None
) -> None:
    result = run(tmp_path, fault, gate=4, contract=soak_alone(tmp_path))
    assert result.exit_code == 1
    assert result.verdict is not None
    assert result.verdict["verdict"] == "INVALID", result.output
    assert result.clause(clause)["verdict"] == "INVALID"
    assert condition is None or condition in result.conditions()


def test_a_store_that_hangs_between_two_healthy_references_fails(tmp_path: Path) -> None:
    result = run(tmp_path, "hang", gate=4, contract=soak_alone(tmp_path))
    assert result.exit_code == 1
    assert result.clause("G4.1")["verdict"] == "FAIL"
