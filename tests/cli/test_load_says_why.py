"""What `kvgate load` says of failures and of a run too short to have a throughput."""

from __future__ import annotations

import pandas as pd
import pytest

from kvgate.commands.load_reasons import first_errors, said_by_server


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
