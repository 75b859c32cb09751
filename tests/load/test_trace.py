"""Recorded traces: their times, their lengths, and the blocks that they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.errors import UsageError
from kvgate.load.job import Prompts, Replay, Shard, Trace, contradiction
from kvgate.load.shapes import token_ids
from kvgate.load.trace import import_trace, read_trace, trace_parts, trace_times
from kvgate.load.workloads import expectation
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, run_job

MOONCAKE = [
    {"timestamp": 27000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 27500, "input_length": 1024, "output_length": 3, "hash_ids": [0, 1]},
    {"timestamp": 27250, "input_length": 600, "output_length": 0, "hash_ids": [0, 9]},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,12,4
2023-11-16 18:17:04.0319600,7,2
"""


def mooncake(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_mooncakes_lines_are_brought_into_order_and_begin_at_zero(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found = import_trace(mooncake(tmp_path, MOONCAKE), out, limit=None, longest=None)
    assert (found.requests, found.lasts_s, found.longest_input, found.longest_output) == (
        3, 0.5, 1030, 5,
    )  # fmt: skip
    lines = [line for _, line in read_trace(str(out))]
    assert [line.at_ns for line in lines] == [0, 250_000_000, 500_000_000]
    # One token where the trace has none: a request that makes nothing has no first token.
    assert [line.output_tokens for line in lines] == [5, 1, 3]


def test_equal_hash_ids_are_equal_tokens_and_others_are_not(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    import_trace(mooncake(tmp_path, MOONCAKE), out, limit=None, longest=None)
    prompts = Prompts(seed="s", pool="p", count=3, tokens=1030, shape=Trace(str(out)))
    assert isinstance(prompts.shape, Trace)
    ids = [
        token_ids(prompts, trace_parts(prompts, prompts.shape, n, line))
        for n, line in read_trace(str(out))
    ]
    assert [len(i) for i in ids] == [1030, 600, 1024]
    assert ids[0][:1024] == ids[2]
    assert ids[0][:512] == ids[1][:512]
    assert ids[0][512:520] != ids[1][512:520]
    other = Prompts(seed="s", pool="q", count=3, tokens=1030, shape=prompts.shape)
    (_, line), *_ = read_trace(str(out))
    assert token_ids(other, trace_parts(other, prompts.shape, 0, line))[:8] != ids[0][:8]
    expected = expectation(prompts, 16)
    assert (expected.tokens, expected.repeated_tokens) == (1030 + 600 + 1024, 512 + 1024)
    assert expected.unique == 3


def test_tokens_without_a_block_belong_to_their_request_alone(tmp_path: Path) -> None:
    lines = [
        {"timestamp": i, "input_length": 700, "output_length": 1, "hash_ids": [4]} for i in (0, 1)
    ]
    out = tmp_path / "out.jsonl"
    import_trace(mooncake(tmp_path, lines), out, limit=None, longest=None)
    shape = Trace(str(out))
    prompts = Prompts(seed="s", pool="p", count=2, tokens=700, shape=shape)
    first, second = (
        token_ids(prompts, trace_parts(prompts, shape, n, line)) for n, line in read_trace(str(out))
    )
    assert first[:512] == second[:512]
    assert first[512:520] != second[512:520]


def test_azures_table_shares_nothing_and_keeps_its_seventh_digit(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("\ufeff" + AZURE)
    out = tmp_path / "out.jsonl"
    assert import_trace(path, out, limit=None, longest=None).requests == 2
    lines = [line for _, line in read_trace(str(out))]
    assert [line.at_ns for line in lines] == [0, 52_000_000]
    assert [(line.input_tokens, line.output_tokens) for line in lines] == [(12, 4), (7, 2)]


def test_a_speed_changes_times_alone_and_shards_divide_them(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    import_trace(mooncake(tmp_path, MOONCAKE), out, limit=None, longest=None)
    trace = Trace(str(out))
    assert list(trace_times(Replay(2.0), trace, None)) == [0, 125_000_000, 250_000_000]
    parts = [list(trace_times(Replay(1.0), trace, Shard(i, 2))) for i in range(2)]
    assert parts == [[0, 500_000_000], [250_000_000]]


def test_a_replay_sends_each_request_at_its_time_with_its_lengths(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    import_trace(mooncake(tmp_path, MOONCAKE), out, limit=None, longest=None)
    prompts = Prompts(seed="s", pool="p", count=3, tokens=1030, shape=Trace(str(out)))
    job = make_job(engine.url, arrival=Replay(5.0, 8), prompts=prompts)
    run = run_job(job, tmp_path)
    report = run.result.report
    assert report is not None
    asked = sorted((r.intended_ns - report.started_ns, r.prompt_tokens, r.output_tokens)
                   for r in run.records)  # fmt: skip
    assert asked == [(0, 1030, 5), (50_000_000, 600, 1), (100_000_000, 1024, 3)]
    assert [r.outcome for r in run.records] == [Outcome.OK] * 3
    assert contradiction(make_job(engine.url, arrival=Replay(1.0)))


def test_limits_leave_out_and_say_so(tmp_path: Path) -> None:
    source = mooncake(tmp_path, MOONCAKE)
    found = import_trace(source, tmp_path / "a.jsonl", limit=None, longest=1027)
    assert (found.requests, found.left_out) == (2, 1)
    found = import_trace(source, tmp_path / "b.jsonl", limit=2, longest=None)
    assert (found.requests, found.left_out) == (2, 0)
    with pytest.raises(UsageError, match="3 left out as too long"):
        import_trace(source, tmp_path / "c.jsonl", limit=None, longest=10)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ":1"),
        ("a,b\n1,2\n", ":1"),
        (AZURE + "2023-11-16 18:17:05,x,1\n", ":4"),
        (AZURE + "2023-11-16 18:17:05,0,1\n", ":4"),
        (AZURE + "yesterday,5,1\n", ":4"),
        (AZURE + "2023-11-16 18:17:05,5\n", ":4"),
        ('{"timestamp": 1, "input_length": 3, "output_length": 1}\n{"timestamp": 2}\n', ":2"),
        ('{"timestamp": -1, "input_length": 3, "output_length": 1}\n', ":1"),
        ('{"timestamp": 1, "input_length": 0, "output_length": 1}\n', ":1"),
        ('{"timestamp": NaN, "input_length": 3, "output_length": 1}\n', ":1"),
        ("{\n", ":1"),
    ],
)
def test_what_is_no_trace_is_one_line_with_its_place(text: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        import_trace(path, tmp_path / "out.jsonl", limit=None, longest=None)
    assert f"{path}{where}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the trace"):
        import_trace(tmp_path / "none", tmp_path / "out.jsonl", limit=None, longest=None)
