"""What the truth server sends, act by act; each misbehaviour breaks exactly one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

KINDS: Final = (
    "no_usage",  # the last chunk with the usage is missing
    "usage_each",  # a usage in every chunk
    "no_done",  # finish and usage, but no [DONE]
    "no_finish",  # everything but the finish reason
    "truncated",  # a clean end of the body half-way
    "cut",  # the connection closes inside the body
    "reset",  # the connection is reset half-way
    "error_event",  # an in-band error half-way, then a clean end
    "named_error",  # the same by the event's name
    "abort",  # finish reason "abort"
    "hang",  # half of the answer, then silence
    "silent",  # no byte at all
    "empty",  # a complete answer without a token
    "short",  # one token less than asked for
    "long",  # one token more than asked for
    "http_500",
    "http_429",
    "not_streamed",  # one JSON body
    "bad_json",  # an event that is no JSON
    "bad_chunk",  # a chunk size that is no number
    "garbage",  # no HTTP at all
    "close_before",  # the connection closes before any byte
    "coalesced",  # five events in a write
    "packed",  # five tokens in an event, with their ids
    "packed_bare",  # five tokens in an event, uncounted
    "byte_by_byte",  # each byte a write of its own
    "crlf",  # events end with CR LF, with comments and other fields between
    "until_close",  # no length: the body ends with the connection
    "blank",  # every third token decodes to nothing
    "blank_first",  # a chunk without text before the first token
    "role_late",  # the role chunk early, the first token on time (chat)
    "reasoning",  # half of the tokens are reasoning (chat)
    "tool_call",  # all tokens are a tool call (chat)
)


class Act(NamedTuple):
    """Send ``data`` so long after the act before it; then perhaps end the connection.

    ``end``: ``""``, ``close``, ``reset`` or ``hang``.
    """

    after_s: float
    data: bytes = b""
    token: bool = False
    end: str = ""


Script = Iterator[Act]

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_END: Final = b"0\r\n\r\n"
_DONE: Final = b"data: [DONE]\n\n"


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def count_prompt(body: dict[str, Any]) -> int:
    """Tokens of a request's prompt: ids, or words, and seven for a chat template."""
    if "messages" in body:
        return 7 + sum(len(str(said["content"]).split()) for said in body["messages"])
    prompt = body.get("prompt") or ""
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


class _Writer:
    """Chunks of one answer in the form of one endpoint."""

    def __init__(self, kind: str, body: dict[str, Any], chat: bool, name: str) -> None:
        self.kind = kind
        self.name = name
        self.chat = chat
        self.prompt_tokens = count_prompt(body)
        self.ids = bool(body.get("return_token_ids")) or kind == "packed"
        self.logprobs = body.get("logprobs") not in (None, False)
        self.made = 0
        self._plain: bytes | None = None

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.made,
            "total_tokens": self.prompt_tokens + self.made,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def chunk(self, choice: dict[str, Any] | None) -> bytes:
        fields: dict[str, Any] = {
            "id": self.name,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": 0,
            "model": "truth",
            "choices": [] if choice is None else [{"index": 0, **choice}],
        }
        if self.kind == "usage_each":
            fields["usage"] = self.usage()
        return _event(fields)

    def says(self, text: str, **more: Any) -> dict[str, Any]:
        if self.chat:
            return {"delta": {"content": text}, "finish_reason": None, **more}
        return {"text": text, "finish_reason": None, **more}

    def token(self, number: int, total: int, count: int) -> bytes:
        """Event with ``count`` tokens, the first of them number ``number``."""
        self.made += count
        last = number + count >= total
        special = self.ids or self.logprobs or self.chat or last
        if not special and self.kind in ("", "coalesced", "byte_by_byte", "crlf"):
            # The usual chunk is always the same: the server must not be slower than its clients.
            if self._plain is None:
                self._plain = self.chunk(self.says(" tok"))
            return self._plain
        text = " tok" * count
        if self.kind == "blank" and number % 3 == 2:
            text = ""
        choice = self.says(text)
        if self.kind == "reasoning" and number < total // 2:
            choice["delta"] = {"reasoning_content": text}
        if self.kind == "tool_call":
            call = {"index": 0, "function": {"arguments": text}}
            if number == 0:
                call = {"index": 0, "id": "call_0", "function": {"name": "f", "arguments": text}}
            choice["delta"] = {"tool_calls": [call]}
        if self.ids:
            choice["token_ids"] = list(range(number, number + count))
        if self.logprobs:
            choice["logprobs"] = self._logprobs(count)
        if last and self.kind != "no_finish":
            choice["finish_reason"] = "abort" if self.kind == "abort" else "length"
        return self.chunk(choice)

    def _logprobs(self, count: int) -> dict[str, Any]:
        if self.chat:
            top = [{"token": " tok", "logprob": -0.25}, {"token": " x", "logprob": -1.75}]
            one = {"token": " tok", "logprob": -0.25, "top_logprobs": top}
            return {"content": [one] * count}
        return {
            "tokens": [" tok"] * count,
            "token_logprobs": [-0.25] * count,
            "top_logprobs": [{" tok": -0.25, " x": -1.75}] * count,
        }


def script_for(
    kind: str,
    body: dict[str, Any],
    *,
    chat: bool,
    ttft_s: float,
    gap_s: float,
    tokens: int,
    name: str = "truth",
) -> Script:
    """The acts of one answer of ``tokens`` tokens; ``kind`` is one of KINDS or ``""``.

    ``name`` is the id that its events carry.
    """
    whole = {
        "http_500": (b"500 Internal Server Error", {"error": {"message": "engine is dead"}}),
        "http_429": (b"429 Too Many Requests", {"error": {"message": "slow down"}}),
        "not_streamed": (b"200 OK", {"choices": [{"text": "all", "finish_reason": "length"}]}),
    }
    if kind in whole:
        status, answer = whole[kind]
        data = msgspec.json.encode(answer)
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return iter([Act(ttft_s, head % (status, len(data)) + data)])
    if kind == "garbage":
        return iter([Act(0, b"SSH-2.0-OpenSSH_9.2\r\n", end="close")])
    if kind == "close_before":
        return iter([Act(0, end="close")])
    if kind == "silent":
        return iter([Act(0, end="hang")])
    acts = _answer(kind, _Writer(kind, body, chat, name), ttft_s, gap_s, tokens)
    if kind == "byte_by_byte":
        return _split(acts)
    if kind == "until_close":
        return _unframed(acts)
    return acts


def _answer(kind: str, write: _Writer, ttft_s: float, gap_s: float, tokens: int) -> Script:
    if kind == "short":
        tokens -= 1
    elif kind == "long":
        tokens += 1
    yield Act(0, _HEAD)
    if write.chat:
        role = {"delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        yield Act(0, _framed(write.chunk(role)))
    if kind == "blank_first":
        yield Act(0, _framed(write.chunk(write.says(""))))
    if kind != "empty":
        yield from _tokens(kind, write, ttft_s, gap_s, tokens)
        if kind in ("hang", "cut", "reset", "truncated", "error_event", "named_error"):
            return
    else:
        yield Act(ttft_s, _framed(write.chunk(write.says("") | {"finish_reason": "stop"})))
    tail = b""
    if kind == "bad_json":
        tail += b"data: {not json\n\n"
    if kind != "no_usage":
        tail += _event({"choices": [], "usage": write.usage()})
    if kind != "no_done":
        tail += _DONE
    if kind == "bad_chunk":
        yield Act(0, b"zz\r\n" + tail)
        return
    # The end comes apart from the last token, as engines send it.
    yield Act(0, _framed(tail) + _END)


def _tokens(kind: str, write: _Writer, ttft_s: float, gap_s: float, tokens: int) -> Script:
    per_event = 5 if kind in ("packed", "packed_bare") else 1
    per_write = 5 if kind == "coalesced" else 1
    half = tokens // 2
    after = ttft_s
    number = 0
    while number < tokens:
        data = b""
        for _ in range(per_write):
            if number < tokens:
                count = min(per_event, tokens - number)
                event = write.token(number, tokens, count)
                if kind == "crlf":
                    event = b": ping\r\nid: 1\r\n" + event.replace(b"\n", b"\r\n")
                data += _framed(event)
                number += count
        yield Act(after, data, token=True)
        after = gap_s * per_event * per_write
        if number >= half:
            if kind == "hang":
                yield Act(0, end="hang")
                return
            if kind in ("cut", "reset"):
                yield Act(gap_s, b"", end="close" if kind == "cut" else "reset")
                return
            if kind == "truncated":
                yield Act(gap_s, _END)
                return
            if kind in ("error_event", "named_error"):
                yield Act(gap_s, _framed(_error(kind)) + _framed(_DONE) + _END)
                return


def _error(kind: str) -> bytes:
    if kind == "named_error":
        return b'event: error\ndata: {"detail": "lost the cache"}\n\n'
    return _event({"error": {"message": "lost the cache", "code": 500}})


def _split(acts: Script) -> Script:
    """Each byte a write of its own; the pauses stay before the first byte of an act."""
    for act in acts:
        for i in range(len(act.data)):
            yield Act(act.after_s if i == 0 else 0, act.data[i : i + 1], token=act.token)
        if act.end:
            yield Act(0, b"", end=act.end)


def _unframed(acts: Script) -> Script:
    """The same body without chunks; the connection's end is its end."""
    first = True
    for act in acts:
        data = act.data
        if first:
            data = data.replace(b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n")
            first = False
        else:
            body = b""
            while data:
                size, _, data = data.partition(b"\r\n")
                body += data[: int(size, 16)]
                data = data[int(size, 16) + 2 :]
            data = body
        yield act._replace(data=data)
    yield Act(0, b"", end="close")
