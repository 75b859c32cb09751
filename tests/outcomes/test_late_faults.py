"""Drift, hanging restores and a slow start: each ends in its own verdict, through the real path."""

from __future__ import annotations

import re
from pathlib import Path

from .play import CONTRACT, ROOT, run

TWO_PAIRS = {"min_pairs": 2, "planned_pairs": 2, "spare_pairs": 0}
# The drift of the last edge against the first one is seen in 24 campaign minutes as well.
SHORT_SOAK = {"duration_s": 1440.0, "window_s": 120.0, "warmup_s": 120.0, "edge_s": 240.0}


def with_numbers(text: str, **numbers: float) -> str:
    """``text`` with other numbers in its lines ``key = number``."""
    for key, number in numbers.items():
        text, changed = re.subn(rf"(?m)^{key} = [0-9.]+", f"{key} = {number}", text)
        assert changed, key
    return text


def two_pairs(tmp_path: Path) -> Path:
    """The quick contract with two pairs: enough for what fails by counting."""
    path = tmp_path / "two-pairs.toml"
    path.write_text(with_numbers(CONTRACT.read_text(), **TWO_PAIRS))
    return path


def soak_alone(tmp_path: Path) -> Path:
    """The rehearsal's contract with its last gate alone, and a shorter run."""
    text = (ROOT / "gates/contracts/rehearsal.toml").read_text()
    head, gate4 = text[: text.index("\n[gate1]")], text[text.index("\n[gate4]") :]
    gate4 = with_numbers(gate4, **SHORT_SOAK)
    path = tmp_path / "soak.toml"
    # Only the agreed duration is a number of four digits.
    gate4, floors = re.subn(r"floor = [0-9]{4}\b", f"floor = {SHORT_SOAK['duration_s']:g}", gate4)
    assert floors == 1
    path.write_text(head + gate4)
    return path


def test_restores_that_hang_beside_a_healthy_baseline_fail(tmp_path: Path) -> None:
    result = run(tmp_path, "hang=0.02", contract=two_pairs(tmp_path))
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("FAIL", "STOP-LOSS")
    assert result.clause("G3.6")["verdict"] == "FAIL"
    assert "deadline" in result.output or "timeout" in result.output, result.output


def test_restores_that_hang_in_both_arms_are_invalid(tmp_path: Path) -> None:
    faults = "hang=0.02@baseline+appliance"
    result = run(tmp_path, faults, contract=two_pairs(tmp_path))
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("INVALID", "RERUN")
    assert result.clause("G3.6")["verdict"] == "INVALID"


def test_an_appliance_that_starts_slowly_passes_all_the_same(tmp_path: Path) -> None:
    result = run(tmp_path, "slow-start=2@appliance")
    assert result.exit_code == 0, result.output
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("PASS", "PROCEED")


def test_an_appliance_that_grows_slower_fails_the_drift_clause(tmp_path: Path) -> None:
    result = run(tmp_path, "drift=0.02", gate=4, contract=soak_alone(tmp_path))
    assert result.exit_code == 1
    assert result.verdict is not None
    assert (result.verdict["verdict"], result.verdict["decision"]) == ("FAIL", "STOP-LOSS")
    (drift,) = result.clause("G4.2")["figures"]
    assert result.clause("G4.2")["verdict"] == "FAIL"
    assert drift["value"] > drift["threshold"] == 0.10
