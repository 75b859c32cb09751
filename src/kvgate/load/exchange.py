"""One request in flight: what it was, what came back so far, and the record at its end."""

from __future__ import annotations

from typing import Final

from kvgate.load.answer import Answer
from kvgate.load.http import ResponseReader
from kvgate.load.requests import Request
from kvgate.load.sse import EventReader
from kvgate.record import Outcome, RequestRecord

_KEPT_BODY_BYTES: Final = 2_048


def _text(data: bytes) -> str:
    return " ".join(data.decode("utf-8", "replace").split())[:200]


class Exchange:
    """The life of one request, from its issue to its record."""

    __slots__ = (
        "answer",
        "body",
        "events",
        "first_byte_ns",
        "http",
        "intended_ns",
        "lag_ns",
        "last_byte_ns",
        "request",
        "scheduled_ns",
        "sent_ns",
        "streamed",
    )

    def __init__(
        self, request: Request, intended_ns: int, scheduled_ns: int, *, keep_tokens: bool
    ) -> None:
        self.request = request
        self.intended_ns = intended_ns
        self.scheduled_ns = scheduled_ns
        self.sent_ns: int | None = None
        self.first_byte_ns: int | None = None
        self.last_byte_ns = scheduled_ns
        self.lag_ns: int | None = None
        self.streamed: bool | None = None
        self.body = b""
        self.http = ResponseReader()
        self.events = EventReader()
        self.answer = Answer(keep_tokens=keep_tokens, keep_answer=request.said is not None)

    def take(self, data: bytes, stamp_ns: int) -> None:
        """Take bytes of the response, received at ``stamp_ns``. Raises ProtocolFault."""
        self.last_byte_ns = stamp_ns
        if self.first_byte_ns is None:
            self.first_byte_ns = stamp_ns
        http = self.http
        body = http.feed(data)
        if not body:
            return
        if self.streamed is None:
            self.streamed = http.status == 200 and "json" not in http.content_type
        if self.streamed:
            answer = self.answer
            for payload in self.events.feed(body):
                answer.event(payload, stamp_ns)
        elif len(self.body) < _KEPT_BODY_BYTES:
            self.body += body[:_KEPT_BODY_BYTES]

    def judge_end(self, *, exact: bool) -> tuple[Outcome, str | None]:
        """The outcome of a response that is whole; ``exact`` where its length is forced."""
        status = self.http.status or 0
        if status != 200:
            if 400 <= status < 500:
                kind = Outcome.HTTP_4XX
            elif 500 <= status < 600:
                kind = Outcome.HTTP_5XX
            else:
                kind = Outcome.HTTP_OTHER
            return kind, f"HTTP {status}: {_text(self.body)}"
        if self.streamed is False:
            return Outcome.NOT_STREAMED, f"one body of {self.http.content_type[:60]!r}, no stream"
        self.answer.settle()
        named = self.events.named_error
        if named is not None and self.answer.error is None:
            return Outcome.ERROR_EVENT, f"event of the type error: {_text(named)}"
        return self.answer.judge(self.request.output_tokens, exact=exact)

    def cut_off(self, why: str) -> tuple[Outcome, str]:
        """The outcome where the peer ended the connection before the body was whole."""
        if self.answer.error is not None:
            return Outcome.ERROR_EVENT, self.answer.error
        if self.first_byte_ns is None:
            return Outcome.RESET, f"{why} before any byte of the response"
        return Outcome.TRUNCATED, f"{why} before the end of the body"

    def record(
        self,
        load_host: str,
        connected_ns: int | None,
        end_ns: int,
        outcome: Outcome,
        error: str | None,
    ) -> RequestRecord:
        """The finished record; call once."""
        answer = self.answer
        if outcome is not Outcome.OK:
            answer.settle()
        times = answer.token_ns
        probe = answer.tokens is not None
        return RequestRecord(
            request_id=self.request.request_id,
            load_host=load_host,
            prompt_digest=self.request.prompt_digest,
            intended_ns=self.intended_ns,
            scheduled_ns=self.scheduled_ns,
            connected_ns=connected_ns,
            sent_ns=self.sent_ns,
            first_byte_ns=self.first_byte_ns,
            first_token_ns=times[0] if times else None,
            first_text_ns=answer.first_text_ns,
            last_token_ns=times[-1] if times else None,
            end_ns=end_ns,
            token_ns=times,
            coalesced=answer.coalesced,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            cached_tokens=answer.cached_tokens,
            finish_reason=answer.finish_reason,
            outcome=outcome,
            error=error,
            client_lag_ns=self.lag_ns,
            answer_digest=answer.digest,
            tokens=answer.tokens if probe else None,
            token_logprobs=answer.logprobs if probe else None,
            top2_margin=answer.margins if probe else None,
        )
