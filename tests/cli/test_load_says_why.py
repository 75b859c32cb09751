"""What `kvgate load` says of failures and of a run too short to have a throughput."""

from __future__ import annotations

import pandas as pd
import pytest

from kvgate.analyse.block import block_statistics
from kvgate.commands.load_reasons import first_errors, no_throughput, said_by_server


@pytest.mark.parametrize("error, said", [
    ('HTTP 404: {"error":{"message":"The model `x` does not exist.","code":404}}',
     "HTTP 404: The model `x` does not exist."),
    ('HTTP 400: {"object":"error","message":"too\\nlong"}', "HTTP 400: too long"),
    ('HTTP 422: {"detail":"no field"}', "HTTP 422: no field"),
    ('HTTP 400: {"error":{"message":"cut off in the mid', "HTTP 400: cut off in the mid"),
    ("HTTP 502: <html>\x1b[2J\u202ebad</html>", "HTTP 502: <html> [2J bad</html>"),
    ("connection reset", "connection reset"),
    ('HTTP 500: {"error":{}}', 'HTTP 500: {"error":{}}'),
])  # fmt: skip
def test_a_servers_error_is_one_clean_line(error: str, said: str) -> None:
    assert said_by_server(error) == said


def test_a_long_error_is_cut() -> None:
    line = said_by_server("HTTP 400: " + "x" * 5000)
    assert len(line) == 160 and line.endswith("...")


def test_of_each_kind_the_most_frequent_error_is_told() -> None:
    table = pd.DataFrame({
        "outcome": ["ok", "http_4xx", "http_4xx", "http_4xx", "reset"],
        "error": [None, "HTTP 404: a", "HTTP 401: b", "HTTP 401: b", None],
    })  # fmt: skip
    assert first_errors(table) == {"http_4xx": "HTTP 401: b"}


def run_of(starts_ms: list[int], lasts_ms: int = 100) -> pd.DataFrame:
    """Good requests of two tokens each, at these times."""
    rows = []
    for i, start in enumerate(starts_ms):
        sent, end = (1_000 + start) * 1_000_000, (1_000 + start + lasts_ms) * 1_000_000
        rows.append({
            "request_id": f"r{i}", "load_host": "h", "prompt_digest": f"p{i}", "intended_ns": sent,
            "scheduled_ns": sent, "connected_ns": sent, "sent_ns": sent, "first_byte_ns": end,
            "first_token_ns": end, "first_text_ns": end, "last_token_ns": end, "end_ns": end,
            "token_ns": [end, end], "coalesced": [], "prompt_tokens": 8, "output_tokens": 2,
            "cached_tokens": 0, "finish_reason": "length", "outcome": "ok", "error": None,
            "client_lag_ns": 1, "answer_digest": "d", "tokens": None, "token_logprobs": None,
            "top2_margin": None,
        })  # fmt: skip
    frame = pd.DataFrame(rows)
    whole = [c for c in frame.columns if c.endswith("_ns") and c != "token_ns"]
    return frame.astype(dict.fromkeys([*whole, "prompt_tokens", "output_tokens"], "Int64"))


def test_a_run_without_a_steady_window_says_how_many_requests_give_one() -> None:
    requests = run_of([0, 0, 0, 0])
    told = no_throughput(block_statistics(requests, 4), requests, open_loop=False)
    assert told is not None and "at least 12 requests" in told
    long = run_of([0, 0, 50, 110, 160, 220])
    assert no_throughput(block_statistics(long, 2), long, open_loop=False) is None


def test_an_open_loop_tells_what_was_served_and_no_steady_rate() -> None:
    requests = run_of([0, 100, 200, 300])
    told = no_throughput(block_statistics(requests, 1024), requests, open_loop=True)
    assert told is not None and "20 tok/s were served over 0.4 s" in told
