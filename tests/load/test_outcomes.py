"""One thing is broken at a time, and the record names that thing (rows 5, 6, 11, 17)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvgate.record import Outcome, tpot_s, ttft_s

from .conftest import Engine, MakeJob, StartEngine, run_job

GOOD = ["", "usage_each", "coalesced", "packed", "packed_bare", "byte_by_byte", "crlf"]
GOOD += ["until_close", "blank", "blank_first"]

BROKEN = {
    "no_usage": Outcome.NO_USAGE,
    "no_done": Outcome.TRUNCATED,
    "no_finish": Outcome.TRUNCATED,
    "truncated": Outcome.TRUNCATED,
    "cut": Outcome.TRUNCATED,
    "reset": Outcome.RESET,
    "error_event": Outcome.ERROR_EVENT,
    "named_error": Outcome.ERROR_EVENT,
    "abort": Outcome.ERROR_EVENT,
    "empty": Outcome.EMPTY,
    "short": Outcome.SHORT,
    "long": Outcome.LONG,
    "http_500": Outcome.HTTP_5XX,
    "http_429": Outcome.HTTP_4XX,
    "not_streamed": Outcome.NOT_STREAMED,
    "bad_json": Outcome.BAD_STREAM,
    "bad_chunk": Outcome.BAD_STREAM,
    "garbage": Outcome.BAD_STREAM,
    "close_before": Outcome.RESET,
    "hang": Outcome.TIMEOUT,
    "silent": Outcome.TIMEOUT,
}


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("kind", GOOD)
def test_a_good_answer_is_good_however_it_is_written(
    kind: str, endpoint: str, engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, requests=2, model=f"misbehave:{kind}", endpoint=endpoint)
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK, Outcome.OK], run.records[0].error
    for record in run.records:
        assert record.output_tokens == 10
        truth = engine.truths()[record.request_id]
        assert truth.first_write_ns is not None
        assert record.first_token_ns is not None
        # Never before the token was written, and never the role chunk ahead of it.
        assert record.first_token_ns >= truth.first_write_ns
        assert ttft_s(record) is not None
        assert tpot_s(record) is not None


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer_is_counted_by_kind(
    kind: str, engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    deadline = 0.5 if kind in ("hang", "silent") else 20.0
    job = make_job(engine.url, model=f"misbehave:{kind}", request_deadline_s=deadline)
    run = run_job(job, tmp_path)
    assert run.only.outcome is BROKEN[kind]
    assert run.only.error
    assert run.result.report is not None
    assert run.result.report.requests_failed == 1
    # A failed request has no latency, whatever stamps it collected on its way.
    assert ttft_s(run.only) is None


@pytest.mark.parametrize("kind", ["reasoning", "tool_call"])
def test_row_09_other_kinds_of_tokens_are_tokens(
    kind: str, engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    record = run_job(
        make_job(engine.url, model=f"misbehave:{kind}", endpoint="chat"), tmp_path
    ).only
    assert record.outcome is Outcome.OK
    assert len(record.token_ns) == 10
    if kind == "reasoning":
        assert record.first_text_ns is not None
        assert record.first_token_ns is not None
        assert record.first_text_ns > record.first_token_ns
    else:
        assert record.first_text_ns is None


def test_row_17_an_answer_in_one_body_has_no_first_token(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    record = run_job(make_job(engine.url, model="misbehave:not_streamed"), tmp_path).only
    assert record.outcome is Outcome.NOT_STREAMED
    assert record.first_token_ns is None


def test_silence_is_found_before_the_requests_deadline(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, model="misbehave:hang", stall_deadline_s=0.3)
    record = run_job(job, tmp_path).only
    assert record.outcome is Outcome.TIMEOUT
    assert record.error == "no byte for 0.3 s"
    assert record.token_ns


def test_a_broken_connection_is_replaced_and_the_next_request_is_served(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    half = start_engine("--ttft-s", "0.005", "--gap-s", "0.001", "--misbehave", "reset=0.4")
    run = run_job(make_job(half.url, requests=20, concurrency=2), tmp_path)
    kinds = {r.outcome for r in run.records}
    assert kinds == {Outcome.OK, Outcome.RESET}
    assert run.result.report is not None
    assert run.result.report.connections_opened > 2
    assert len({r.request_id for r in run.records}) == 20
