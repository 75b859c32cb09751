"""The client knows its own error on this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.errors import CannotMeasure
from kvgate.load.calibrate import calibrate


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
