"""A contract that would too often stop a good appliance is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.conduct import gate as gate_module
from kvgate.conduct.risks import check_risks
from kvgate.contract import Contract, parse_contract
from kvgate.errors import UsageError
from kvgate.planning import assumed_spread, chance_at_design

from .stage import Stage, refused

CONTRACTS = Path(__file__).parents[2] / "gates" / "contracts"


def contract(name: str, **changed: str) -> Contract:
    text = (CONTRACTS / f"{name}.toml").read_text()
    for key, value in changed.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{key} = "))
        text = text.replace(line, f"{key} = {value}")
    return parse_contract(text.encode(), name=name)


def test_the_contracts_for_real_hardware_keep_their_risks() -> None:
    for name in ("fx100-mi308x", "fx100-ascend910b", "real-engine"):
        check_risks(contract(name))


def test_a_contract_that_cannot_keep_them_is_refused() -> None:
    noisy = contract("fx100-ascend910b", pair_sd="0.12")
    with pytest.raises(UsageError, match=r"G3 would accept an appliance at the design effects in"):
        check_risks(noisy)


def test_the_chance_is_the_one_that_the_plan_prints() -> None:
    terms = contract("fx100-ascend910b")
    chance = chance_at_design(terms, 3, assumed_spread(terms))
    assert chance is not None
    assert f"{100 * chance:.1f}" == "99.3"
    assert chance_at_design(terms, 1, assumed_spread(terms)) is None


def test_it_is_asked_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)

    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "check_risks", _refuse)
        assert "risks cannot be kept" in refused(stage)
        assert not stage.bundle().exists()
    stage.run()  # a rehearsal is not asked: it accepts nothing
    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "check_risks", _refuse)
        stage.run()  # nor is a campaign that has begun


def test_an_engineering_run_before_does_not_spare_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    stage.run(engineering=True)
    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "check_risks", _refuse)
        assert "risks cannot be kept" in refused(stage)


def _refuse(_contract: Contract) -> None:
    raise UsageError("its risks cannot be kept")
