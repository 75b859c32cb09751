"""The client knows its own error on this host."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kvgate.errors import CannotMeasure
from kvgate.load.calibrate import BudgetLimits, ErrorBudget, calibrate, check_client


def test_a_calibration_compares_every_request_with_the_truth(tmp_path: Path) -> None:
    found = calibrate(4, tmp_path, rounds=3, output_tokens=10, ttft_s=0.01, gap_s=0.002)
    assert found.n_requests == found.n_ok == 12
    assert found.report.max_in_flight == 4
    # Signs, not speed: nothing arrives before it was written, or is sent after it was received.
    assert found.first_token_lag_p50_ms is not None
    assert found.first_token_lag_p50_ms >= 0
    assert found.ttft_error_p50_ms is not None
    assert found.ttft_error_p50_ms >= 0
    assert found.itl_error_p99_ms is not None
    assert found.cpu_s_per_1000_tokens is not None


def test_a_level_that_the_host_cannot_carry_is_said_before_anybody_is_blamed(
    tmp_path: Path,
) -> None:
    with pytest.raises(CannotMeasure, match="client_fault"):
        calibrate(50_000_000, tmp_path, rounds=1)


GOOD = ErrorBudget(
    level=16,
    requests=32,
    failed=0,
    ttft_error_p99_ms=0.4,
    first_token_lag_p99_ms=0.05,
    itl_error_p99_ms=0.001,
    held=15.9,
    cpu_share=0.1,
    loop_stall_p99_ms=0.2,
    took_s=1.9,
)


def test_a_budget_holds_up_to_the_level_that_was_tried() -> None:
    assert GOOD.holds(16)
    assert GOOD.holds(8)
    assert not GOOD.holds(17)


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ({"failed": 1}, "failed"),
        ({"requests": 0}, "failed"),
        ({"ttft_error_p99_ms": 10.1}, "TTFT error"),
        ({"ttft_error_p99_ms": None}, "TTFT error p99, ms missing"),
        ({"first_token_lag_p99_ms": 5.1}, "lag"),
        ({"held": 15.0}, "in flight 15.0"),
        ({"held": None}, "in flight missing"),
        ({"cpu_share": 0.95}, "core"),
    ],
)
def test_each_figure_breaks_the_budget_alone_and_a_missing_one_never_holds(
    broken: dict[str, float | None], word: str
) -> None:
    budget = msgspec.structs.replace(GOOD, **broken)
    (said,) = budget.broken(16)
    assert word in said
    assert not budget.holds(16)


def test_limits_may_be_given_and_widen_with_the_level() -> None:
    strict = BudgetLimits(ttft_error_p99_ms=0.1, first_token_lag_p99_ms=0.1)
    assert not GOOD.holds(16, strict)
    assert BudgetLimits.at(1024).ttft_error_p99_ms > BudgetLimits.at(256).ttft_error_p99_ms


def test_a_check_before_a_block_tries_its_level(tmp_path: Path) -> None:
    budget = check_client(4, tmp_path / "check")
    assert (budget.level, budget.requests, budget.failed) == (4, 8, 0)
    assert None not in msgspec.structs.astuple(budget)


def test_row_19_long_prompts_and_answers_do_not_slow_the_client(tmp_path: Path) -> None:
    """50,000 tokens a prompt: every byte goes out, every token is stamped, and what the client
    itself took is on record before a side is blamed."""
    found = calibrate(
        4, tmp_path, rounds=2, prompt_tokens=50_000, output_tokens=400, ttft_s=0.05, gap_s=0.001
    )
    assert found.n_ok == 8
    assert found.report.max_in_flight == 4
    assert found.cpu_s_per_1000_tokens is not None
    assert found.report.loop_stall_p99_ns is not None
    assert found.report.receive_lag_p99_ns is not None
    assert found.first_token_lag_p99_ms is not None
