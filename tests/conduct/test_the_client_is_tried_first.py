"""Before a level is measured the load host shows that it can hold it; all attempts are kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kvgate.analyse.calibration import client_holds_level
from kvgate.conduct.calibration import Calibrations
from kvgate.contract import parse_contract
from kvgate.errors import CannotMeasure
from kvgate.load.calibrate import ErrorBudget

from .stage import contract_bytes

LIMITS = parse_contract(contract_bytes(), name="quick").validity
GOOD = ErrorBudget(
    level=8, requests=16, failed=0, ttft_error_p99_ms=1.0, first_token_lag_p99_ms=0.1,
    itl_error_p99_ms=0.01, held=7.9, cpu_share=0.1, loop_stall_p99_ms=0.2, took_s=2.0,
)  # fmt: skip
SLOW = msgspec.structs.replace(GOOD, ttft_error_p99_ms=5000.0)


class Host:
    """A load host that shows one figure after the other."""

    def __init__(self, *shown: ErrorBudget | str) -> None:
        self.left = list(shown)
        self.tried: list[int] = []

    def __call__(self, level: int, work_dir: Path) -> ErrorBudget:
        self.tried.append(level)
        one = self.left.pop(0)
        if isinstance(one, str):
            raise CannotMeasure(one)
        return one


def test_a_level_that_was_held_is_tried_once_in_a_run(tmp_path: Path) -> None:
    host = Host(GOOD)
    tried = Calibrations(LIMITS, tmp_path, host)
    assert not tried.known(8)
    assert tried.at(8) == tried.at(8)
    assert host.tried == [8] and tried.known(8)
    assert client_holds_level(LIMITS, tried.at(8), 8).ok is True


def test_one_bad_moment_is_granted_and_both_attempts_are_kept(tmp_path: Path) -> None:
    found = Calibrations(LIMITS, tmp_path, Host(SLOW, GOOD)).at(8)
    assert [a["ttft_error_p99_ms"] for a in found["attempts"]] == [5000.0, 1.0]
    assert client_holds_level(LIMITS, found, 8).ok is True


def test_a_level_that_was_not_held_is_tried_again_before_its_next_block(tmp_path: Path) -> None:
    host = Host(SLOW, SLOW, GOOD)
    tried = Calibrations(LIMITS, tmp_path, host)
    assert client_holds_level(LIMITS, tried.at(8), 8).ok is False
    assert client_holds_level(LIMITS, tried.at(8), 8).ok is True
    assert host.tried == [8, 8, 8]


def test_a_client_that_cannot_even_be_tried_holds_nothing(tmp_path: Path) -> None:
    found = Calibrations(LIMITS, tmp_path, Host("no memory", "no memory")).at(8)
    assert [a["error"] for a in found["attempts"]] == ["no memory", "no memory"]
    assert client_holds_level(LIMITS, found, 8).ok is None


def test_the_real_client_fills_in_every_figure(tmp_path: Path) -> None:
    found = Calibrations(LIMITS, tmp_path).at(2)
    assert client_holds_level(LIMITS, found, 2).value is not None
    assert list(tmp_path.iterdir()) == []
