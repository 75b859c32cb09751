"""Each format gives the times it holds, in seconds, and names every guarantee it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.errors import UsageError
from kvgate.imports.imported import Imported, Source, number, read_source
from kvgate.imports.manifest import FORMATS
from kvgate.record import Lack, Outcome, ttft_s

from . import made


def read(name: str, path: Path, part: int | None = None) -> Imported:
    return FORMATS[name](read_source(path), part)


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "evalscope"])
def test_a_time_to_first_token_of_200_ms_is_read_as_such(name: str, tmp_path: Path) -> None:
    run = read(name, made.every_format(tmp_path)[name])
    good = [r for r in run.records if r.outcome is Outcome.OK]
    assert len(good) == made.N
    assert [ttft_s(r) for r in good] == [pytest.approx(0.2, abs=1e-6)] * made.N
    assert {r.prompt_tokens for r in good} == {64}


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_proves_coldness_or_the_health_of_its_client(name: str, tmp_path: Path) -> None:
    run = read(name, made.every_format(tmp_path)[name])
    assert {Lack.COUNTERS, Lack.CLIENT_HEALTH} <= run.lacks


def test_the_missing_guarantees_of_each_format(tmp_path: Path) -> None:
    lacks = {
        name: {lack.value for lack in read(name, path).lacks} - {"counters", "client_health"}
        for name, path in made.every_format(tmp_path).items()
    }
    assert lacks == {
        "vllm-bench": {"prompt_identity", "token_counts", "whole_answers"},
        "sglang-bench": {"prompt_identity", "token_counts", "whole_answers"},
        "aiperf": {"prompt_identity", "whole_answers", "clock"},
        "guidellm": {"prompt_identity", "whole_answers", "clock", "token_times"},
        "inference-perf": set(),
        "evalscope": {
            "requests", "issue_times", "token_times", "token_counts", "prompt_identity",
            "whole_answers",
        },
        "lmcache-multi-round": {
            "token_times", "token_counts", "prompt_identity", "whole_answers", "clock",
        },
    }  # fmt: skip


def test_totals_without_requests_are_no_requests(tmp_path: Path) -> None:
    path = made.write(tmp_path / "totals.json", made.vllm_run(detailed=False))
    run = read("vllm-bench", path)
    assert run.records == ()
    assert Lack.REQUESTS in run.lacks
    assert run.totals["ttft_p50_s"] == pytest.approx(0.2)
    path = made.write(tmp_path / "g.json", made.guidellm_file(groups=False))
    run = read("guidellm", path)
    assert run.records == () and Lack.REQUESTS in run.lacks


def test_row_05_zero_ttft_or_no_token_is_a_failed_request(tmp_path: Path) -> None:
    file = made.vllm_run(n=3) | {"ttfts": [0, 0, 0.05], "output_lens": [0, 0, 5], "completed": 3}
    run = read("vllm-bench", made.write(tmp_path / "zero.json", file))
    assert [r.outcome for r in run.records] == [Outcome.EMPTY, Outcome.EMPTY, Outcome.OK]
    assert run.notes == ("the tool counted 3 completed requests, 1 have tokens",)


def test_row_10_a_negative_time_to_first_token_is_none(tmp_path: Path) -> None:
    file = made.vllm_run(n=2) | {"ttfts": [-1.7e9, 0.2]}
    run = read("vllm-bench", made.write(tmp_path / "negative.json", file))
    assert run.records[0].outcome is Outcome.EMPTY
    assert run.records[0].first_token_ns is None


def test_row_11_errored_requests_keep_their_outcome(tmp_path: Path) -> None:
    run = read("guidellm", made.write(tmp_path / "g.json", made.guidellm_file()))
    assert [r.outcome for r in run.records if r.request_id == "bad"] == [Outcome.ERROR_EVENT]


def test_row_17_a_run_without_streaming_has_no_first_token(tmp_path: Path) -> None:
    file = made.vllm_run() | {"itls": [[] for _ in range(made.N)]}
    run = read("vllm-bench", made.write(tmp_path / "whole.json", file))
    assert {r.outcome for r in run.records} == {Outcome.NOT_STREAMED}


def test_without_start_times_nothing_says_when(tmp_path: Path) -> None:
    file = made.vllm_run()
    del file["start_times"]
    run = read("vllm-bench", made.write(tmp_path / "old.json", file))
    assert Lack.ISSUE_TIMES in run.lacks


def test_a_truncated_stream_is_seen_where_the_answer_is_kept(tmp_path: Path) -> None:
    rows = [made.inference_perf_row(0), made.inference_perf_row(1, end="")]
    run = read("inference-perf", made.write(tmp_path / "p.json", rows))
    assert [r.outcome for r in run.records] == [Outcome.OK, Outcome.TRUNCATED]


def test_units_are_read_and_warm_up_is_left_out(tmp_path: Path) -> None:
    seconds = made.aiperf_line(1, unit="s")
    seconds["metrics"]["time_to_first_token"]["value"] = 0.2
    seconds["metrics"]["inter_chunk_latency"]["value"] = [0.01] * 4
    lines = [made.aiperf_line(0, phase="warmup"), seconds]
    run = read("aiperf", made.write(tmp_path / "a.jsonl", lines))
    assert [ttft_s(r) for r in run.records] == [pytest.approx(0.2)]
    assert run.notes == ("1 warm-up requests left out",)
    unknown = made.aiperf_line(1, unit="fortnights")
    run = read("aiperf", made.write(tmp_path / "b.jsonl", [unknown]))
    assert [r.outcome for r in run.records] == [Outcome.EMPTY]


def test_of_several_runs_in_a_file_one_must_be_named(tmp_path: Path) -> None:
    path = made.write(tmp_path / "s.jsonl", [made.vllm_run(), made.vllm_run(ttft_s=0.4)])
    with pytest.raises(UsageError, match=r"holds 2 runs.*part"):
        read("sglang-bench", path)
    assert ttft_s(read("sglang-bench", path, 1).records[0]) == pytest.approx(0.4)
    with pytest.raises(UsageError, match="not among them"):
        read("sglang-bench", path, 2)


BROKEN = {
    "empty": b"",
    "blank": b" \n ",
    "null": b"null",
    "nan": b"NaN",
    "infinity": b"Infinity",
    "number": b"7",
    "list": b"[]",
    "object": b"{}",
    "cut off": b'{"ttfts": [0.1, 0.2',
    "binary": b"\x00\xff\xfe\x80",
    "text": b"hello, world",
    "deep": b"[" * 100_000,
    "nulls": b'{"ttfts": null, "benchmarks": null, "metadata": null}',
    "uneven": b'{"ttfts": [0.1, 0.2], "itls": [[0.1]], "output_lens": [2, 2]}',
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_one_line(name: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        FORMATS[name](Source(tmp_path / "file", BROKEN[what]), None)
    assert str(told.value).startswith(str(tmp_path / "file"))
    assert "\n" not in str(told.value)


def test_infinity_in_a_field_that_nobody_needs_is_no_fault(tmp_path: Path) -> None:
    line = json.dumps(made.vllm_run() | {"request_rate": float("inf")}) + "\n"
    assert "Infinity" in line
    run = read("sglang-bench", made.write(tmp_path / "s.jsonl", line))
    assert len(run.records) == made.N


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "ttfts",
                    "itls",
                    "output_lens",
                    "benchmarks",
                    "requests",
                    "metadata",
                    "metrics",
                    "successful",
                    "start_time",
                    "value",
                    "unit",
                    "errors",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=json_values, name=st.sampled_from(sorted(FORMATS)))
def test_whatever_stands_in_a_file_it_is_read_or_refused(value: object, name: str) -> None:
    source = Source(Path("file"), json.dumps(value).encode())
    try:
        run = FORMATS[name](source, None)
    except UsageError:
        return
    assert all(r.first_token_ns is not None for r in run.records if r.outcome is Outcome.OK)


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "evalscope"])
def test_times_of_a_date_stay_in_order_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    for r in read(name, made.every_format(tmp_path)[name]).records:
        if r.outcome is Outcome.OK:
            assert r.sent_ns is not None and r.last_token_ns is not None
            assert r.intended_ns <= r.sent_ns < r.last_token_ns + 1 <= r.end_ns + 1


def test_nanoseconds_of_a_date_are_exact(tmp_path: Path) -> None:
    lines = [made.aiperf_line(i) for i in range(made.N)]
    records = read("aiperf", made.write(tmp_path / "a.jsonl", lines)).records
    starts = [line["metadata"]["request_start_ns"] for line in lines]
    assert [r.sent_ns for r in records] == starts
    assert [r.end_ns - (r.last_token_ns or 0) for r in records] == [0] * made.N


@pytest.mark.parametrize("value", [10**400, -(10**400), True, None, "7", float("nan"), [1]])
def test_what_is_no_number_is_no_measurement(value: object) -> None:
    assert number(value) is None


_CSV = made.LMCACHE.partition("\n")[0]


@pytest.mark.parametrize("row", [
    "64,5,0.2,0.1,0,0,1e300,100.3", "64,5,1e300,0.1,0,0,100,100.3", "64,5,0.2,0.1,0,0,100,1e200",
    "1e300,5,0.2,0.1,0,0,100,100.3", "64,1e30,0.2,0.1,0,0,100,100.3",
])  # fmt: skip
def test_a_number_that_no_table_holds_is_one_line(row: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="beyond 64 bits"):
        read("lmcache-multi-round", made.write(tmp_path / "r.csv", f"{_CSV}\n{row}\n"))


def test_fewer_tokens_than_none_are_no_answer(tmp_path: Path) -> None:
    path = made.write(tmp_path / "r.csv", f"{_CSV}\n64,-5,0.2,0.1,0,0,100,100.3\n")
    assert [r.outcome for r in read("lmcache-multi-round", path).records] == [Outcome.EMPTY]
