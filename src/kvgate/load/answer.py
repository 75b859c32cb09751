"""What a stream of completion chunks says: tokens and their times, usage, finish, errors.

A chunk's tokens are counted by the best thing the server gives, in this order: its token ids, its
log probabilities, the growth of a usage that comes in every chunk, and else one for a chunk with
text. A chunk without any of these may still be a token that decodes to nothing (part of a UTF-8
character): it is kept aside and counts only if the final usage proves that each such chunk was one.
Before the first proven token such a chunk never counts, nor does a chat chunk that only names the
role: TTFT rests on proof. Ask for token ids where first tokens without text matter.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from itertools import compress
from typing import Annotated, Any, Final

import msgspec

from kvgate.record import Outcome

_GOOD_ENDS: Final = frozenset({"length", "stop", "tool_calls", "function_call"})


class _TopLogprob(msgspec.Struct, gc=False):
    logprob: float | None = None


class _TokenLogprob(msgspec.Struct):
    token: str = ""
    logprob: float | None = None
    top_logprobs: list[_TopLogprob] | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None
    content: list[_TokenLogprob] | None = None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[TokenId] | None = None
    finish_reason: str | None = None


Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
"""A count that can be true: what a server says beyond it makes the stream a bad one."""
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_MAX_TOKENS: Final = 4_000_000
"""Of one answer, longer than any context: a server that never ends must not fill our memory."""


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Tokens | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


def _shortly(said: Any) -> str:
    try:
        return str(said)[:200]
    except RecursionError:
        return "nested too deeply to be shown"


def _tool_text(calls: Any) -> str:
    """Name and arguments of tool call deltas: what the model wrote, not their bookkeeping."""
    if isinstance(calls, dict):
        calls = [{"function": calls}]
    if not isinstance(calls, list):
        return ""
    found: list[str] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found += [v for k in ("name", "arguments") if isinstance(v := function.get(k), str)]
    return "".join(found)


def _margin(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    values.sort()
    return values[-1] - values[-2]


class Answer:
    """The state of one answer. Feed it events; ``settle`` once, when nothing more will come.

    With ``keep_answer`` it holds ``ids`` and ``text`` (without reasoning, which no template sends
    back), for a turn that continues it.
    """

    __slots__ = (
        "_blanks",
        "_by_ids",
        "_digest",
        "_last_usage",
        "_stamps",
        "_unsure",
        "cached_tokens",
        "coalesced",
        "done",
        "error",
        "fault",
        "finish_reason",
        "first_text_ns",
        "ids",
        "logprobs",
        "margins",
        "output_tokens",
        "prompt_tokens",
        "text",
        "token_ns",
        "tokens",
    )

    def __init__(self, *, keep_tokens: bool = False, keep_answer: bool = False) -> None:
        self._stamps = array("q")
        self._blanks: list[int] = []
        self._unsure: set[int] = set()
        self._last_usage: int | None = None
        self._digest = hashlib.sha256()
        self._by_ids = False
        self.done = False
        self.error: str | None = None
        self.fault: str | None = None
        self.finish_reason: str | None = None
        self.first_text_ns: int | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.tokens: list[str] | None = [] if keep_tokens else None
        self.logprobs: list[float | None] | None = [] if keep_tokens else None
        self.margins: list[float | None] | None = [] if keep_tokens else None
        self.ids: array[int] | None = array("I") if keep_answer else None
        self.text: list[str] | None = [] if keep_answer else None
        self.token_ns: list[int] = []
        self.coalesced: list[int] = []

    def event(self, payload: bytes, stamp_ns: int) -> None:
        """Take one event's data, received at ``stamp_ns``."""
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            self.fault = self.fault or f"not a completion chunk: {fault}: {payload[:60]!r}"
            return
        if self.done:
            self.fault = self.fault or "an event after [DONE]"
            return
        if chunk.error is not None or chunk.object == "error":
            said = chunk.error if chunk.error is not None else chunk.message
            if isinstance(said, dict):
                said = said.get("message", said)
            self.error = self.error or f"error event: {_shortly(said)}"
            return
        if self.fault is not None:
            return  # the answer is lost: nothing more of it needs to be kept
        usage = chunk.usage
        count: int | None = None
        if usage is not None:
            count = self._take_usage(usage)
        if chunk.choices:
            if len(chunk.choices) > 1:
                self.fault = self.fault or "more than one choice in an event"
                return
            self._take_choice(chunk.choices[0], stamp_ns, count)

    def unsure(self, stamp_ns: int) -> None:
        """Tokens at this stamp came in a read without a kernel stamp: an upper bound."""
        self._unsure.add(stamp_ns)

    def _take_usage(self, usage: _Usage) -> int | None:
        """Growth of the count since the last usage; ``None`` where that says nothing."""
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            self.cached_tokens = usage.prompt_tokens_details.cached_tokens
        total = usage.completion_tokens
        if total is None:
            return None
        before = self._last_usage
        self._last_usage = total
        self.output_tokens = total
        if before is None:
            # A first usage late in the stream is the total, not this chunk's share.
            return None if self._stamps else total
        return total - before

    def _take_choice(self, choice: _Choice, stamp_ns: int, count: int | None) -> None:
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
        text = choice.text
        delta = choice.delta
        said = text or ""
        if delta is not None:
            text = delta.content
            said = (delta.reasoning or delta.reasoning_content or "") + (text or "")
            if delta.tool_calls or delta.function_call:
                said += _tool_text(delta.tool_calls or delta.function_call)
        if text and self.first_text_ns is None:
            self.first_text_ns = stamp_ns
        ids = choice.token_ids
        if self.text is not None and self.ids is not None:
            self.text.append(text or "")
            self.ids.extend(ids or ())
        if ids:
            count = len(ids)
            if not self._by_ids and not self._stamps:
                self._by_ids = True
            if self._by_ids:
                self._digest.update(struct.pack(f"<{count}I", *ids))
        if said and not self._by_ids:
            self._digest.update(said.encode())
        if choice.logprobs is not None:
            known = self._take_logprobs(choice.logprobs)
            if known and not ids:
                count = known
        if said and not (count and count > 0):
            count = 1
        if len(self._stamps) + (count or 0) > _MAX_TOKENS:
            self.fault = self.fault or f"more than {_MAX_TOKENS:,} tokens in one answer"
            return
        if count == 1:
            self._stamps.append(stamp_ns)
        elif count and count > 1:
            self._stamps.extend([stamp_ns] * count)
        elif count is None and self._stamps and (delta is None or delta.role is None):
            self._blanks.append(len(self._stamps))
            self._stamps.append(stamp_ns)

    def _take_logprobs(self, logprobs: _Logprobs) -> int:
        if logprobs.content is not None:
            names = [entry.token for entry in logprobs.content]
            values = [entry.logprob for entry in logprobs.content]
            tops = [
                [top.logprob for top in entry.top_logprobs or [] if top.logprob is not None]
                for entry in logprobs.content
            ]
        elif logprobs.tokens is not None:
            names = logprobs.tokens
            values = logprobs.token_logprobs or [None] * len(names)
            tops = [
                [value for value in (top or {}).values() if value is not None]
                for top in logprobs.top_logprobs or [None] * len(names)
            ]
        else:
            return 0
        if self.tokens is not None and self.logprobs is not None and self.margins is not None:
            self.tokens += names
            self.logprobs += values
            self.margins += [_margin(top) for top in tops]
        return len(names)

    def settle(self) -> None:
        """Decide about blank chunks and mark the tokens that shared a stamp."""
        stamps = self._stamps.tolist()
        if self._blanks and self.output_tokens != len(stamps):
            keep = bytearray(b"\x01" * len(stamps))
            for index in self._blanks:
                keep[index] = 0
            stamps = list(compress(stamps, keep))
        self.token_ns = stamps
        last = len(stamps) - 1
        self.coalesced = [
            i
            for i, stamp in enumerate(stamps)
            if (i and stamps[i - 1] == stamp)
            or (i < last and stamps[i + 1] == stamp)
            or stamp in self._unsure
        ]

    @property
    def digest(self) -> str | None:
        """SHA-256 of token ids or text (see RequestRecord); ``None`` without a token."""
        return self._digest.hexdigest() if self.token_ns else None

    def judge(self, wanted: int, *, exact: bool) -> tuple[Outcome, str | None]:
        """Outcome of a whole body, after ``settle``; ``exact`` where the length is forced."""
        if self.error is not None:
            return Outcome.ERROR_EVENT, self.error
        if self.fault is not None:
            return Outcome.BAD_STREAM, self.fault
        finish = self.finish_reason
        if finish is not None and finish not in _GOOD_ENDS:
            return Outcome.ERROR_EVENT, f"finish reason {finish[:40]!r}"
        if not self.done:
            return Outcome.TRUNCATED, "no [DONE]"
        made = self.output_tokens
        if not self.token_ns or made == 0:
            return Outcome.EMPTY, "no token in the answer"
        if finish is None:
            return Outcome.TRUNCATED, "no finish reason"
        if made is None:
            return Outcome.NO_USAGE, "no usage: the number of tokens is unknown"
        if self._by_ids and made != len(self.token_ns):
            # Whoever names its tokens is held to them: a usage alone could claim any throughput.
            return Outcome.BAD_STREAM, f"{len(self.token_ns)} token ids, but a usage of {made}"
        if made > wanted:
            return Outcome.LONG, f"{made} tokens instead of {wanted}"
        if made < wanted and (exact or finish == "length"):
            return Outcome.SHORT, f"{made} tokens instead of {wanted}"
        return Outcome.OK, None
