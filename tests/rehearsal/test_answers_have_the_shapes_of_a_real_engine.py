"""The OpenAI-compatible surface, read from raw sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from .machine import (
    HOST,
    WAIT_S,
    Machine,
    call,
    metrics,
    prompt,
    read_answer,
    send_request,
    wait_until,
)

CHAT = {
    "messages": [{"role": "user", "content": "What is cold?"}],
    "max_tokens": 4,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine(arm="recompute") as started:
        yield started


def test_a_completion_stream_ends_with_reason_usage_and_done(machine: Machine) -> None:
    answer = machine.stream(prompt(1))
    events = answer.events()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.complete
    assert events[-1] == "[DONE]"
    usage, tokens = events[-2], events[:-2]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(tokens) == 8
    assert usage["usage"]["prompt_tokens"] == 2048
    assert all(event["choices"][0]["text"] for event in tokens)
    reasons = [event["choices"][0]["finish_reason"] for event in tokens]
    assert reasons == [None] * 7 + ["length"]


def test_a_chat_stream_sends_the_role_before_any_content(machine: Machine) -> None:
    events = call(machine.port, "POST", "/v1/chat/completions", {**CHAT, "stream": True}).events()
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(delta["content"] and "role" not in delta for delta in deltas[1:])
    assert len(deltas) == 5
    assert "usage" not in events[-2]
    assert events[-1] == "[DONE]"


def test_whole_and_streamed_answers_are_the_same_text(machine: Machine) -> None:
    whole = machine.complete(prompt(2)).json()
    events = machine.stream(prompt(2)).events()
    streamed = "".join(event["choices"][0]["text"] for event in events[:-2])
    assert whole["choices"][0]["text"] == streamed
    assert whole["usage"]["completion_tokens"] == 8
    message = call(machine.port, "POST", "/v1/chat/completions", CHAT).json()["choices"][0]
    assert message["message"]["role"] == "assistant"
    assert message["message"]["content"].split()


def test_logprobs_have_one_entry_per_token(machine: Machine) -> None:
    found = machine.complete(prompt(3), logprobs=2).json()["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == 8
    assert all(value < 0 for value in found["token_logprobs"])
    assert all(len(row) == 2 for row in found["top_logprobs"])
    asked = {**CHAT, "logprobs": True, "top_logprobs": 3}
    chat = call(machine.port, "POST", "/v1/chat/completions", asked).json()
    entries = chat["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [3] * 4


def test_without_ignore_eos_an_answer_may_stop_by_itself(machine: Machine) -> None:
    answer = machine.complete(prompt(4, 300), max_tokens=1000, ignore_eos=False).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 1000


def test_text_prompts_count_as_tokenize_says(machine: Machine) -> None:
    text = "A cold restore, measured twice."
    asked = {"prompt": text, "max_tokens": 3, "return_token_ids": True}
    counted = call(machine.port, "POST", "/tokenize", {"prompt": text}).json()
    answer = call(machine.port, "POST", "/v1/completions", asked).json()
    assert answer["usage"]["prompt_tokens"] == counted["count"] == len(counted["tokens"])
    again = call(machine.port, "POST", "/tokenize", {"prompt": answer["choices"][0]["text"]}).json()
    assert again["tokens"] == answer["choices"][0]["token_ids"]


def test_every_answer_says_that_it_is_simulated(machine: Machine) -> None:
    answers = [
        call(machine.port, "GET", path)
        for path in ("/health", "/version", "/v1/models", "/metrics")
    ]
    answers += [machine.stream(prompt(5)), call(machine.port, "GET", "/nowhere")]
    assert all(answer.headers["x-kvgate-simulated"] == "true" for answer in answers)
    assert answers[1].json()["simulated"] is True
    assert answers[2].json()["data"][0]["id"].endswith("-simulated")


def test_the_request_id_is_echoed(machine: Machine) -> None:
    body = {"prompt": prompt(6), "max_tokens": 1}
    answer = call(machine.port, "POST", "/v1/completions", body, {"x-request-id": "r-17"})
    assert answer.headers["x-request-id"] == "r-17"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{not json", 400),
        (b'{"prompt": 7}', 400),
        (b'{"prompt": []}', 400),
        (b'{"prompt": "x", "model": "another"}', 404),
        (b'{"prompt": "x", "max_tokens": 8193}', 400),
        (b'{"prompt": "x", "max_tokens": 0}', 400),
        (json.dumps({"prompt": [1] * 8192, "max_tokens": 1}).encode(), 400),
        (b'{"prompt": [-1]}', 400),
        (b'{"prompt": "x", "n": 2}', 400),
        (b'{"prompt": "x", "logprobs": 99}', 400),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(machine: Machine, body: bytes, status: int) -> None:
    answer = call(machine.port, "POST", "/v1/completions", body)
    assert answer.status == status
    assert answer.json()["error"]["message"]


def test_a_connection_is_kept_for_the_next_request(machine: Machine) -> None:
    with socket.create_connection((HOST, machine.port), timeout=WAIT_S) as connection:
        for _ in range(3):
            send_request(connection, "GET", "/v1/models", b"", {})
            assert read_answer(connection).status == 200
        connection.sendall(b"nonsense\r\n\r\n")
        assert read_answer(connection).status == 400
        assert connection.recv(1) == b""


def test_a_chunked_request_body_is_read(machine: Machine) -> None:
    body = json.dumps({"prompt": "one two", "max_tokens": 1}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection((HOST, machine.port), timeout=WAIT_S) as connection:
        connection.sendall(head + b"5\r\n" + body[:5] + b"\r\n")
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 5, body[5:]))
        assert read_answer(connection).status == 200


def test_a_client_that_leaves_frees_its_slot() -> None:
    with Machine(arm="recompute", time_scale=1.0) as slow:
        with socket.create_connection((HOST, slow.port), timeout=WAIT_S) as connection:
            body = json.dumps({"prompt": prompt(7), "stream": True}).encode()
            send_request(connection, "POST", "/v1/completions", body, {})
            wait_until(
                lambda: metrics(slow.port)["vllm:num_requests_running"] == 1, "a running request"
            )
        wait_until(lambda: metrics(slow.port)["vllm:num_requests_running"] == 0, "a free slot")
        assert metrics(slow.port)["vllm:request_success_total{abort}"] == 1
