"""Numbers of a block, from hand-written records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from kvgate.analyse.block import block_statistics
from kvgate.evidence.tables import read_requests, write_requests
from kvgate.record import (
    Outcome,
    RequestRecord,
    chunk_gaps_s,
    e2e_s,
    token_gaps_s,
    tpot_s,
    ttft_s,
    ttft_text_s,
)

MS = 1_000_000


def record(number: int = 0, start_ms: int = 0, **fields: Any) -> RequestRecord:
    """A good request: first token 100 ms after it was sent, then one each 10 ms, five in all."""
    sent = (1 + start_ms) * MS
    tokens = [sent + (100 + 10 * i) * MS for i in range(5)]
    given: dict[str, Any] = {
        "request_id": f"r{number}",
        "load_host": "h",
        "prompt_digest": f"d{number}",
        "intended_ns": sent,
        "scheduled_ns": sent,
        "connected_ns": 1,
        "sent_ns": sent,
        "first_byte_ns": sent + MS,
        "first_token_ns": tokens[0],
        "first_text_ns": tokens[0],
        "last_token_ns": tokens[-1],
        "end_ns": tokens[-1],
        "token_ns": tokens,
        "prompt_tokens": 7,
        "output_tokens": 5,
        "cached_tokens": 0,
        "finish_reason": "length",
        "outcome": Outcome.OK,
        "client_lag_ns": 1000,
    }
    return RequestRecord(**(given | fields))


def table(tmp_path: Path, records: list[RequestRecord]) -> pd.DataFrame:
    """Through the file, as in a campaign."""
    lines = tmp_path / "r.jsonl"
    lines.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    assert write_requests(lines, tmp_path / "r.parquet") == len(records)
    return read_requests(tmp_path / "r.parquet")


FAILED: dict[str, Any] = {
    "first_token_ns": None,
    "first_text_ns": None,
    "last_token_ns": None,
    "token_ns": [],
    "output_tokens": None,
    "cached_tokens": None,
    "finish_reason": None,
}


def test_every_latency_has_one_formula() -> None:
    one = record(first_text_ns=121 * MS)
    assert ttft_s(one) == pytest.approx(0.100)
    assert ttft_text_s(one) == pytest.approx(0.120)
    assert e2e_s(one) == pytest.approx(0.140)
    assert tpot_s(one) == pytest.approx(0.010)
    assert token_gaps_s(one) == pytest.approx([0.01] * 4)
    assert chunk_gaps_s(one) == pytest.approx([0.01] * 4)


def test_row_05_zero_ttft_or_zero_tokens_never_enter_a_percentile(tmp_path: Path) -> None:
    zero_ttft = record(1, first_token_ns=1 * MS, first_byte_ns=1 * MS)
    no_tokens = record(2, **(FAILED | {"output_tokens": 0}))
    found = block_statistics(table(tmp_path, [zero_ttft, no_tokens, record(3)]), 1)
    assert (found.n_requests, found.n_ok, found.n_impossible) == (3, 1, 2)
    assert found.ttft_p50_s == pytest.approx(0.1)


def test_row_06_a_run_that_completed_without_a_token_is_impossible(tmp_path: Path) -> None:
    rows = [record(i, **(FAILED | {"output_tokens": 0})) for i in range(4)]
    found = block_statistics(table(tmp_path, rows), 2)
    assert found.n_impossible == 4
    assert found.n_ok == 0
    assert found.ttft_p50_s is None
    assert found.output_tok_per_s is None
    assert found.output_tokens is None


def test_row_10_a_missing_or_backward_time_is_counted_and_never_averaged(tmp_path: Path) -> None:
    rows = [record(i) for i in range(5)]
    rows.append(record(5, first_token_ns=None))
    rows.append(record(6, first_token_ns=0))
    found = block_statistics(table(tmp_path, rows), 1)
    assert found.n_impossible == 2
    assert found.ttft_p50_s == found.ttft_p99_s == pytest.approx(0.1)
    assert ttft_s(rows[5]) is None
    assert ttft_s(rows[6]) is None


def test_row_11_failed_requests_are_counted_beside_and_blended_into_nothing(
    tmp_path: Path,
) -> None:
    slow = {"first_token_ns": 5000 * MS, "last_token_ns": 9000 * MS, "end_ns": 9000 * MS}
    rows = [
        record(0),
        record(1, outcome=Outcome.TRUNCATED, **slow),
        record(2, outcome=Outcome.HTTP_5XX, **FAILED),
        record(3, outcome=Outcome.HTTP_5XX, **FAILED),
    ]
    found = block_statistics(table(tmp_path, rows), 1)
    assert found.failed_by_outcome == {"http_5xx": 2, "truncated": 1}
    assert (found.n_requests, found.n_ok) == (4, 1)
    assert found.ttft_p99_s == pytest.approx(0.1)
    assert found.e2e_p99_s == pytest.approx(0.14)
    assert found.output_tokens == 5


def test_row_13_tpot_divides_by_the_servers_count() -> None:
    # One hundred spaces: a retokenised text would have 7 tokens.
    assert tpot_s(record(output_tokens=101)) == pytest.approx(0.04 / 100)
    assert tpot_s(record(output_tokens=None)) is None
    assert tpot_s(record(output_tokens=1)) is None


def test_row_15_chunks_of_several_tokens_have_chunk_gaps_and_no_itl(tmp_path: Path) -> None:
    packed = record(0, output_tokens=33)
    assert token_gaps_s(packed) == []
    assert chunk_gaps_s(packed) == pytest.approx([0.01] * 4)
    found = block_statistics(table(tmp_path, [packed]), 1)
    assert found.itl_p50_s is None
    assert found.itl_share == 0
    assert found.chunk_gap_p50_s == pytest.approx(0.01)
    assert found.tpot_p50_s == pytest.approx(0.04 / 32)


def test_coalesced_tokens_give_no_zero_gaps_and_hide_no_pause(tmp_path: Path) -> None:
    sent = 1 * MS
    times = [sent + t * MS for t in (100, 110, 310, 310, 320)]
    bunched = record(0, token_ns=times, coalesced=[2, 3], last_token_ns=times[-1], end_ns=times[-1])
    assert token_gaps_s(bunched) == pytest.approx([0.01])
    assert chunk_gaps_s(bunched) == pytest.approx([0.01, 0.2, 0.01])
    found = block_statistics(table(tmp_path, [bunched]), 1)
    assert found.itl_p99_s == pytest.approx(0.01)
    assert found.chunk_gap_p99_s == pytest.approx(0.01 + 0.19 * 0.98)
    assert found.coalesced_share == pytest.approx(0.4)


def test_throughput_counts_the_tokens_between_the_level_th_end_and_the_last_issue(
    tmp_path: Path,
) -> None:
    # One slot: requests at 0, 150, 300 ms, each ends 140 ms after it was sent.
    rows = [record(i, start_ms=150 * i) for i in range(3)]
    found = block_statistics(table(tmp_path, rows), 1)
    # From the first end (141 ms) to the last issue (301 ms): the five tokens of the second.
    assert found.window_s == pytest.approx(0.160)
    assert found.output_tok_per_s == pytest.approx(5 / 0.160)
    assert found.mean_in_flight_in_window == pytest.approx(0.140 / 0.160)
    assert block_statistics(table(tmp_path, rows), 3).output_tok_per_s is None


def test_no_data_is_none_and_never_zero(tmp_path: Path) -> None:
    found = block_statistics(table(tmp_path, []), 8)
    assert found.n_requests == 0
    assert found.ttft_p50_s is None
    assert found.output_tok_per_s is None
    assert found.client_lag_p99_ns is None
    assert found.cached_tokens is None


def test_one_request_that_does_not_know_makes_the_sum_unknown(tmp_path: Path) -> None:
    rows = [record(0), record(1, cached_tokens=None)]
    assert block_statistics(table(tmp_path, rows), 1).cached_tokens is None
