"""The OpenAI-compatible surface: request bodies, and the shapes of streamed and whole answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kvgate.rehearsal.contents import (
    WORD_BYTES,
    WORDS,
    AnswerSource,
    json_text,
    tokenize,
)
from kvgate.rehearsal.scheduler import Sequence
from kvgate.rehearsal.wire import HttpConnection


class StreamOptions(msgspec.Struct, frozen=True):
    """``stream_options``."""

    include_usage: bool = False


class Message(msgspec.Struct, frozen=True):
    """One chat message; content parts of type text are joined."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        """The message as plain text."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class CompletionBody(msgspec.Struct, frozen=True):
    """Body of /v1/completions; unknown fields are ignored, as vLLM does."""

    prompt: str | list[int | str]
    model: str | None = None
    max_tokens: int | None = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    temperature: float | None = 0.0
    seed: int | None = None
    logprobs: int | None = None
    n: int = 1
    cache_salt: str = ""
    return_token_ids: bool = False


class ChatBody(msgspec.Struct, frozen=True):
    """Body of /v1/chat/completions."""

    messages: list[Message]
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    temperature: float | None = 0.0
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    n: int = 1
    cache_salt: str = ""
    return_token_ids: bool = False


class RefusedError(Exception):
    """The request cannot be served: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Generation:
    """What is asked for, whichever endpoint it came through."""

    tokens: list[int]
    output_limit: int
    chat: bool
    stream: bool
    usage_chunk: bool
    ignore_eos: bool
    variation: bytes
    logprobs: int | None
    cache_salt: str
    token_ids: bool


def error_body(status: int, message: str) -> dict[str, object]:
    """The error JSON of an OpenAI-compatible server."""
    kind = {404: "NotFoundError", 400: "BadRequestError"}.get(status, "Error")
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def prompt_tokens_of(prompt: str | list[int | str]) -> list[int]:
    """Token ids of a ``prompt`` field; raises ``RefusedError`` for more than one prompt or none."""
    if isinstance(prompt, str):
        return tokenize(prompt)
    if prompt and isinstance(prompt[0], str):
        if len(prompt) != 1:
            raise RefusedError(400, "one prompt a request is supported")
        return tokenize(prompt[0])
    tokens = [token for token in prompt if isinstance(token, int)]
    if tokens and (min(tokens) < 0 or max(tokens) > 0x7FFFFFFF):
        raise RefusedError(400, "token id out of vocabulary")
    return tokens


def chat_text(messages: list[Message]) -> str:
    """The chat template: each message after its role, then the assistant's turn."""
    turns = "".join(f"<|{message.role}|>{message.text()}" for message in messages)
    return turns + "<|assistant|>"


def read_generation(body: bytes, *, chat: bool, model: str, max_model_len: int) -> Generation:
    """Parse and check a request body.

    Raises ``RefusedError``: 400 for bad JSON, wrong types or too long, 404 for another model.
    """
    try:
        asked = msgspec.json.decode(body, type=ChatBody if chat else CompletionBody)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RefusedError(400, f"body: {error}") from error
    if asked.model not in (None, model):
        raise RefusedError(404, f"The model `{asked.model}` does not exist.")
    if asked.n != 1:
        raise RefusedError(400, "n: only 1 is supported")
    limit: int | None
    if isinstance(asked, ChatBody):
        tokens = tokenize(chat_text(asked.messages))
        limit = asked.max_completion_tokens or asked.max_tokens
        logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    else:
        tokens = prompt_tokens_of(asked.prompt)
        limit = asked.max_tokens
        logprobs = asked.logprobs
    if not tokens:
        raise RefusedError(400, "the prompt is empty")
    if limit is None:
        limit = max(1, min(256, max_model_len - len(tokens)))
    if limit < 1:
        raise RefusedError(400, "max_tokens must be at least 1")
    if len(tokens) + limit > max_model_len:
        raise RefusedError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {len(tokens)} prompt tokens and {limit} output tokens.",
        )
    if logprobs is not None and not 0 <= logprobs <= 20:
        raise RefusedError(400, "logprobs must be from 0 to 20")
    variation = b""
    if asked.temperature:
        variation = repr((asked.temperature, asked.seed)).encode()
    return Generation(
        tokens=tokens,
        output_limit=limit,
        chat=chat,
        stream=asked.stream,
        usage_chunk=asked.stream_options is not None and asked.stream_options.include_usage,
        ignore_eos=asked.ignore_eos,
        variation=variation,
        logprobs=logprobs,
        cache_salt=asked.cache_salt,
        token_ids=asked.return_token_ids,
    )


class AnswerSink:
    """Turns tokens into the answer of one request, streamed or whole.

    ``cut_after`` ends a stream cleanly after so many tokens with nothing more, ``error_after`` with
    an in-band error event: both are faults and None normally.
    """

    def __init__(
        self,
        connection: HttpConnection,
        asked: Generation,
        request_id: str,
        model: str,
        cut_after: int | None,
        error_after: int | None,
    ) -> None:
        self._connection = connection
        self._asked = asked
        self._cut_after = cut_after
        self._error_after = error_after
        self.sequence: Sequence | None = None
        self.on_done: Callable[[], None] | None = None
        kind = "chat.completion" if asked.chat else "text_completion"
        if asked.chat and asked.stream:
            kind += ".chunk"
        self._id = f"chatcmpl-{request_id}" if asked.chat else f"cmpl-{request_id}"
        self._created = int(time.time())
        self._kind = kind
        self._model = model
        self._extra = b"x-request-id: %s\r\n" % request_id.encode("latin-1", "replace")
        self._prefix = b'data: {"id":%s,"object":"%s","created":%d,"model":%s,"choices":[' % (
            json_text(self._id),
            kind.encode(),
            self._created,
            json_text(model),
        )

    def begin(self) -> None:
        """Send what precedes the first token: the head and, in a chat, the role."""
        if not self._asked.stream:
            return
        self._connection.begin_stream(self._extra)
        if self._asked.chat:
            self._connection.write(
                self._prefix + b'{"index":0,"delta":{"role":"assistant","content":""},'
                b'"logprobs":null,"finish_reason":null}]}\n\n'
            )

    def token(self, answer: AnswerSource, at: int, last: str | None) -> bool:
        """Write output token ``at``; False when a fault ends the stream here."""
        if self._asked.stream:
            if at == self._error_after:
                self._send_error()
                return False
            if at == self._cut_after:
                self._connection.end_stream()
                return False
            self._send_token(answer, at, last)
        if last is not None:
            if self._asked.stream:
                self._end_stream(at + 1)
            else:
                self._send_whole(answer, at + 1, last)
            if self.on_done is not None:
                done, self.on_done = self.on_done, None
                done()
        return True

    def _send_token(self, answer: AnswerSource, at: int, last: str | None) -> None:
        text = WORD_BYTES[answer.word(at)]
        reason = b"null" if last is None else b'"%s"' % last.encode()
        logprobs = b"null"
        if self._asked.logprobs is not None:
            logprobs = msgspec.json.encode(self._logprobs(answer, at, at + 1))
        ids = b',"token_ids":[%d]' % answer.token_id(at) if self._asked.token_ids else b""
        shape = (
            b'%s{"index":0,"delta":{"content":"%s"},"logprobs":%s,"finish_reason":%s%s}]}\n\n'
            if self._asked.chat
            else b'%s{"index":0,"text":"%s","logprobs":%s,"finish_reason":%s%s}]}\n\n'
        )
        self._connection.write(shape % (self._prefix, text, logprobs, reason, ids))

    def _end_stream(self, output_tokens: int) -> None:
        if self._asked.usage_chunk:
            usage = msgspec.json.encode(self._usage(output_tokens))
            self._connection.write(self._prefix + b'],"usage":%s}\n\n' % usage)
        self._connection.write(b"data: [DONE]\n\n")
        self._connection.end_stream()

    def _send_error(self) -> None:
        message = error_body(500, "EngineCore encountered an issue (simulated)")
        self._connection.write(b"data: %s\n\n" % msgspec.json.encode(message))
        self._connection.write(b"data: [DONE]\n\n")
        self._connection.end_stream()

    def _usage(self, output_tokens: int) -> dict[str, object]:
        prompt = len(self._asked.tokens)
        cached = self.sequence.cached_tokens if self.sequence is not None else 0
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output_tokens,
            "completion_tokens": output_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _logprobs(self, answer: AnswerSource, start: int, end: int) -> dict[str, object]:
        # An engine that computed on wrong content yields no finite log probabilities.
        tainted = self.sequence is not None and self.sequence.taint != b""
        count = self._asked.logprobs or 0
        rows = [
            [
                (WORDS[word], None if tainted else value)
                for word, value in answer.alternatives(at, max(1, count))
            ]
            for at in range(start, end)
        ]
        if self._asked.chat:
            entries = [
                [
                    {"token": token, "logprob": value, "bytes": list(token.encode())}
                    for token, value in row
                ]
                for row in rows
            ]
            return {"content": [{**row[0], "top_logprobs": row[:count]} for row in entries]}
        offset = len("".join(WORDS[answer.word(at)] for at in range(start)))
        offsets = []
        for row in rows:
            offsets.append(offset)
            offset += len(row[0][0])
        return {
            "text_offset": offsets,
            "token_logprobs": [row[0][1] for row in rows],
            "tokens": [row[0][0] for row in rows],
            "top_logprobs": [dict(row) for row in rows],
        }

    def _send_whole(self, answer: AnswerSource, output_tokens: int, last: str) -> None:
        text = "".join(WORDS[answer.word(at)] for at in range(output_tokens))
        logprobs = None
        if self._asked.logprobs is not None:
            logprobs = self._logprobs(answer, 0, output_tokens)
        choice: dict[str, object] = {"index": 0, "logprobs": logprobs, "finish_reason": last}
        if self._asked.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        if self._asked.token_ids:
            choice["token_ids"] = [answer.token_id(at) for at in range(output_tokens)]
        body = {
            "id": self._id,
            "object": self._kind,
            "created": self._created,
            "model": self._model,
            "choices": [choice],
            "usage": self._usage(output_tokens),
        }
        self._connection.send_json(200, body, self._extra)
