"""What counts as a token, a first token and a success."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from kvgate.load.answer import Answer
from kvgate.record import Outcome


def completion(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, **more}]}


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def usage(prompt: int, made: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": made}}


def play(*events: dict[str, Any] | str, keep_tokens: bool = False) -> Answer:
    """Each event at its own nanosecond: 1, 2, 3 ..."""
    answer = Answer(keep_tokens=keep_tokens)
    for stamp, event in enumerate(events, 1):
        data = event.encode() if isinstance(event, str) else msgspec.json.encode(event)
        answer.event(data, stamp)
    answer.settle()
    return answer


def test_row_07_a_role_chunk_is_never_the_first_token() -> None:
    answer = play(delta(role="assistant", content=""), delta(content="a"), delta(content="b"))
    assert answer.token_ns == [2, 3]
    assert answer.first_text_ns == 2


def test_row_07_a_role_chunk_is_not_counted_even_where_the_usage_would_fit() -> None:
    events: list[dict[str, Any] | str] = [
        delta(content="a"),
        delta(role="assistant", content=""),
        delta("length", content="b"),
        usage(1, 3),
        "[DONE]",
    ]
    assert play(*events).token_ns == [1, 3]


def test_row_09_reasoning_is_the_first_token_and_text_has_a_time_of_its_own() -> None:
    for name in ("reasoning", "reasoning_content"):
        answer = play(
            delta(role="assistant", content=""),
            delta(**{name: "hm"}),
            delta(**{name: "so"}),
            delta(content="yes"),
        )
        assert answer.token_ns == [2, 3, 4]
        assert answer.first_text_ns == 4


def test_a_tool_call_is_a_token() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    answer = play(delta(role="assistant"), delta(tool_calls=[call]), delta(tool_calls=[more]))
    assert answer.token_ns == [2, 3]
    assert answer.first_text_ns is None


def test_a_blank_chunk_between_tokens_counts_where_the_usage_proves_it() -> None:
    middle = [completion("a"), completion(""), completion("b", finish_reason="length")]
    assert play(*middle, usage(1, 3), "[DONE]").token_ns == [1, 2, 3]
    assert play(*middle, usage(1, 2), "[DONE]").token_ns == [1, 3]


def test_a_blank_chunk_before_the_first_token_needs_token_ids() -> None:
    tail: list[dict[str, Any] | str] = [
        completion("b", finish_reason="length"),
        usage(1, 2),
        "[DONE]",
    ]
    assert play(completion(""), *tail).token_ns == [2]
    answer = play(completion("", token_ids=[5]), completion("b", token_ids=[6]))
    assert answer.token_ns == [1, 2]
    assert answer.first_text_ns == 2


def test_row_15_several_tokens_in_an_event_share_a_stamp_and_are_marked() -> None:
    answer = play(completion("a", token_ids=[1]), completion("bcd", token_ids=[2, 3, 4]))
    assert answer.token_ns == [1, 2, 2, 2]
    assert answer.coalesced == [1, 2, 3]


def test_row_15_several_uncounted_tokens_in_an_event_are_one_chunk() -> None:
    answer = play(completion("abc"), completion("def", finish_reason="length"), usage(1, 6))
    assert answer.token_ns == [1, 2]
    assert answer.output_tokens == 6


def test_a_usage_in_every_chunk_counts_its_tokens() -> None:
    events = [
        completion(text) | {"usage": {"prompt_tokens": 4, "completion_tokens": made}}
        for text, made in [("a", 1), ("", 2), ("cde", 5)]
    ]
    assert play(*events).token_ns == [1, 2, 3, 3, 3]


def test_a_usage_in_the_last_chunk_alone_is_a_total_and_not_its_share() -> None:
    last = completion("c", finish_reason="length")
    last["usage"] = {"prompt_tokens": 4, "completion_tokens": 3}
    answer = play(completion("a"), completion("b"), last, "[DONE]")
    assert answer.token_ns == [1, 2, 3]
    assert answer.judge(3, exact=True) == (Outcome.OK, None)


def test_events_in_one_read_share_its_stamp() -> None:
    answer = Answer()
    for stamp in (1, 2, 2, 3):
        answer.event(msgspec.json.encode(completion("a")), stamp)
    answer.unsure(3)
    answer.settle()
    assert answer.coalesced == [1, 2, 3]


def test_missing_cached_tokens_are_missing_and_not_zero() -> None:
    assert play(usage(4, 1)).cached_tokens is None
    told = usage(4, 1)
    told["usage"]["prompt_tokens_details"] = {"cached_tokens": 0}
    assert play(told).cached_tokens == 0


def test_the_answers_digest_is_that_of_its_ids_or_else_of_its_text() -> None:
    text = play(completion("a"), completion("é"))
    assert text.digest == hashlib.sha256("aé".encode()).hexdigest()
    ids = play(completion("a", token_ids=[1]), completion("b", token_ids=[258]))
    assert ids.digest == hashlib.sha256(b"\x01\0\0\0\x02\x01\0\0").hexdigest()
    assert play(usage(1, 0)).digest is None


def test_probes_keep_tokens_logprobs_and_the_margin_of_the_best_two() -> None:
    told = {
        "tokens": [" a", " b"],
        "token_logprobs": [-0.5, None],
        "top_logprobs": [{" a": -0.5, " c": -2.0}, None],
    }
    answer = play(completion(" a b", logprobs=told), keep_tokens=True)
    assert answer.tokens == [" a", " b"]
    assert answer.logprobs == [-0.5, None]
    assert answer.margins == [1.5, None]
    assert answer.token_ns == [1, 1]
    entry = {
        "token": "x",
        "logprob": -1.0,
        "top_logprobs": [{"token": "x", "logprob": -1.0}, {"token": "y", "logprob": -1.25}],
    }
    chat = {"choices": [{"delta": {"content": "x"}, "logprobs": {"content": [entry]}}]}
    answer = play(chat, keep_tokens=True)
    assert (answer.tokens, answer.logprobs, answer.margins) == (["x"], [-1.0], [0.25])


def test_an_error_in_any_form_is_an_error() -> None:
    for event in (
        {"error": {"message": "gone"}},
        {"error": "gone"},
        {"object": "error", "message": "gone"},
    ):
        answer = play(completion("a"), event, "[DONE]")
        assert answer.judge(1, exact=True) == (Outcome.ERROR_EVENT, "error event: gone")


def test_null_fields_are_no_error() -> None:
    quiet = completion("a", logprobs=None, finish_reason="length", stop_reason=None)
    answer = play(quiet | {"error": None, "usage": None}, usage(1, 1), "[DONE]")
    assert answer.judge(1, exact=True) == (Outcome.OK, None)


def test_events_after_the_end_and_several_choices_are_a_bad_stream() -> None:
    late = play(completion("a", finish_reason="stop"), usage(1, 1), "[DONE]", completion("b"))
    assert late.judge(1, exact=True)[0] is Outcome.BAD_STREAM
    two = {"choices": [{"text": "a"}, {"text": "b"}]}
    assert play(two, "[DONE]").judge(1, exact=True)[0] is Outcome.BAD_STREAM


def test_an_answer_may_stop_early_only_where_the_length_is_not_forced() -> None:
    answer = play(completion("a", finish_reason="stop"), usage(1, 1), "[DONE]")
    assert answer.judge(5, exact=False)[0] is Outcome.OK
    assert answer.judge(5, exact=True)[0] is Outcome.SHORT


@pytest.mark.parametrize(
    "event",
    [
        usage(1, -4), usage(-1, 4), usage(1, 2**53), usage(2**70, 4),
        {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": -5}}},
        completion("a", token_ids=[-1]), completion("a", token_ids=[2**32]),
        '{"error":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"choices":' + "[" * 100_000,
    ],
)  # fmt: skip
def test_a_lie_costs_the_answer_and_never_the_client(event: dict[str, Any] | str) -> None:
    answer = play(completion("a"), event, completion("b", finish_reason="length"), "[DONE]")
    outcome, why = answer.judge(4, exact=True)
    assert outcome is Outcome.BAD_STREAM
    assert why
    assert len(answer.token_ns) < 4


def test_a_usage_that_jumps_is_not_that_many_tokens_at_one_moment() -> None:
    jumps = [{**completion("a"), "usage": {"completion_tokens": made}} for made in (1, 10**12)]
    answer = play(*jumps, completion("", finish_reason="length"), "[DONE]")
    assert answer.judge(4, exact=True)[0] is Outcome.BAD_STREAM
    assert len(answer.token_ns) == 1


def test_a_stream_that_never_ends_does_not_fill_the_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr("kvgate.load.answer._MAX_TOKENS", 10)
    answer = play(*[completion("a")] * 50)
    assert len(answer.token_ns) == 10
    assert answer.judge(10, exact=True)[0] is Outcome.BAD_STREAM


def test_a_usage_that_its_own_token_ids_belie_is_a_bad_stream() -> None:
    """Few tokens sent and many claimed would be a throughput that nobody saw."""
    for ids in ([7], list(range(9))):
        answer = play(completion("a", token_ids=ids, finish_reason="length"), usage(8, 4), "[DONE]")
        assert answer.judge(4, exact=True) == (
            Outcome.BAD_STREAM,
            f"{len(ids)} token ids, but a usage of 4",
        )
    honest = play(completion("a", token_ids=[7, 8, 9]), completion("", token_ids=[5]),
                  completion("", finish_reason="length"), usage(8, 4), "[DONE]")  # fmt: skip
    assert honest.judge(4, exact=True) == (Outcome.OK, None)
