"""A turn contains the answer before it, and waits for its end."""

from __future__ import annotations

import hashlib
from array import array
from pathlib import Path

import msgspec
import pytest

from kvgate.errors import CannotMeasure
from kvgate.load.job import Conversation, Prompts
from kvgate.load.prompts import ids_digest, prompt_tokens
from kvgate.load.run import run_load
from kvgate.load.texts import fetch_texts
from kvgate.record import Outcome, RequestRecord

from .conftest import Engine, MakeJob, StartEngine, run_job

TALK = Prompts(seed="s", pool="p", count=9, tokens=8, shape=Conversation(3, 4))


def turns_of(records: list[RequestRecord], conversation: int) -> list[RequestRecord]:
    by_number = {int(r.request_id.rpartition("-")[2]): r for r in records}
    return [by_number[conversation * 3 + turn] for turn in range(3)]


def test_the_next_turn_holds_prompt_answer_and_what_the_user_adds(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, prompts=TALK, concurrency=2, output_tokens=5, ask_token_ids=True)
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK] * 9
    for conversation in range(3):
        ids: list[int] = []
        for turn, record in enumerate(turns_of(run.records, conversation)):
            number = conversation * 3 + turn
            pool, length = ("p/user", 4) if turn else ("p", 8)
            ids += prompt_tokens("s", pool, number, length, 1000, 30000)
            assert record.prompt_tokens == len(ids) == 8 + turn * (5 + 4)
            assert record.prompt_digest == ids_digest(ids)
            # The truth server numbers an answer's tokens from 0.
            ids += range(5)
            answer = hashlib.sha256(array("I", range(5)).tobytes()).hexdigest()
            assert record.answer_digest == answer


def test_a_turn_is_wanted_when_the_one_before_it_ended_and_never_sent_before(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.02", "--gap-s", "0.001")
    shape = Conversation(3, 4, think_s=0.05)
    prompts = msgspec.structs.replace(TALK, shape=shape)
    job = make_job(slow.url, prompts=prompts, concurrency=3, ask_token_ids=True)
    run = run_job(job, tmp_path)
    truths = slow.truths()
    for conversation in range(3):
        first, *later = turns_of(run.records, conversation)
        before = first
        for record in later:
            assert record.intended_ns == before.end_ns + 50_000_000
            assert record.sent_ns is not None
            assert record.sent_ns >= record.intended_ns
            received = truths[record.request_id].received_ns
            written = truths[before.request_id].last_write_ns
            assert written is not None
            assert received > written
            before = record
    assert run.result.report is not None
    assert run.result.report.max_in_flight <= 3


def test_turns_after_a_failed_one_are_not_sent_and_are_counted(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, prompts=TALK, model="misbehave:truncated", ask_token_ids=True)
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.TRUNCATED] * 3
    report = run.result.report
    assert report is not None
    assert (report.requests_planned, report.requests_done, report.requests_skipped) == (9, 3, 6)


def test_turns_that_the_time_did_not_suffice_for_are_counted(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    slow = start_engine("--ttft-s", "0.05", "--gap-s", "0.001")
    prompts = msgspec.structs.replace(TALK, shape=Conversation(3, 4, think_s=60.0), count=3)
    job = make_job(slow.url, prompts=prompts, ask_token_ids=True, duration_s=0.2)
    run = run_job(job, tmp_path)
    assert run.result.complete
    report = run.result.report
    assert report is not None
    assert (report.requests_done, report.requests_skipped) == (1, 2)


def test_an_engine_without_token_ids_cannot_go_on_and_says_the_remedy(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(engine.url, prompts=TALK)
    with pytest.raises(CannotMeasure, match="--endpoint chat"):
        run_load(job, tmp_path, deadline_s=30)


def test_a_chat_goes_on_with_messages_and_checked_texts(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    prompts = msgspec.structs.replace(TALK, tokens=12)
    job = make_job(
        engine.url, prompts=prompts, endpoint="chat", output_tokens=5, texts_path=str(texts)
    )
    fetch_texts(job, texts)
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK] * 9
    # The simulated template has seven tokens in all; each answer is five words.
    for conversation in range(3):
        lengths = [r.prompt_tokens for r in turns_of(run.records, conversation)]
        assert lengths == [12, 12 + 5 + 4, 12 + 2 * (5 + 4)]


def test_a_text_goes_on_as_one_text(engine: Engine, make_job: MakeJob, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    job = make_job(engine.url, prompts=TALK, output_tokens=5, texts_path=str(texts))
    fetch_texts(job, texts)
    run = run_job(job, tmp_path)
    assert [r.prompt_tokens for r in turns_of(run.records, 0)] == [8, 17, 26]
