"""Text prompts of an exact length, for endpoints that take no token ids.

The engine's own ``/tokenize`` counts; words are added or taken away until the count is right. The
texts depend on seed, pool, index and the engine's tokenizer, nothing else.
"""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.errors import CannotMeasure
from kvgate.load.job import Conversation, Job, Shared
from kvgate.load.prompts import prompt_text
from kvgate.load.requests import parse_url, tls_context
from kvgate.load.shapes import Part, parts_of

_TRIES: Final = 12


class _Count(msgspec.Struct):
    count: int


class _Tokenizer:
    """The engine's ``/tokenize`` over one connection."""

    def __init__(self, job: Job) -> None:
        target = parse_url(job.url, job.endpoint)
        self._where = f"{target.host}:{target.port}/tokenize"
        self._path = target.path.partition("/v1/")[0] + "/tokenize"
        self._job = job
        self._link: http.client.HTTPConnection
        if target.tls:
            self._link = http.client.HTTPSConnection(
                target.host, target.port, timeout=30, context=tls_context(job)
            )
        else:
            self._link = http.client.HTTPConnection(target.host, target.port, timeout=30)

    def count(self, text: str, *, bare: bool) -> int:
        """Tokens of a prompt; unless ``bare`` with the chat template where the endpoint has it."""
        job = self._job
        asked: dict[str, Any] = {"model": job.model}
        if job.endpoint == "chat" and not bare:
            asked["messages"] = [{"role": "user", "content": text}]
            asked["add_generation_prompt"] = True
        else:
            asked["prompt"] = text
        headers = {"Content-Type": "application/json"}
        headers |= {name: os.environ.get(key, "") for name, key in job.header_env.items()}
        try:
            self._link.request("POST", self._path, msgspec.json.encode(asked), headers)
            answer = self._link.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as fault:
            raise CannotMeasure(f"cannot count tokens: {fault}", where=self._where) from None
        try:
            return msgspec.json.decode(body, type=_Count).count
        except msgspec.DecodeError:
            raise CannotMeasure(
                f"cannot count tokens: HTTP {answer.status}",
                where=self._where,
                remedy="use the completions endpoint, which takes token ids",
            ) from None

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def fetch_texts(job: Job, path: Path) -> None:
    """Write the job's texts, one JSON string a line, in the order of its requests.

    Each has exactly ``prompts.tokens`` tokens as the endpoint counts them, chat template included.
    A later turn of a conversation has ``user_tokens`` by itself: what template and seams add to it
    stands in the engine's usage. Texts of one group begin with the same text of ``prefix_tokens``.
    Raises :class:`CannotMeasure` when the engine cannot count or no text of that length is found.
    """
    tokenizer = _Tokenizer(job)
    try:
        writer = _Texts(job, tokenizer)
        with path.open("wb") as lines:
            for place in range(job.prompts.count):
                lines.write(msgspec.json.encode(writer.text(place)) + b"\n")
    finally:
        tokenizer.close()


class _Texts:
    """The texts of a job, made one after the other."""

    def __init__(self, job: Job, tokenizer: _Tokenizer) -> None:
        self._job = job
        self._tokenizer = tokenizer
        self._ratio = 1.0
        self._heads: dict[Part, str] = {}
        self._again: list[str] = []

    def text(self, place: int) -> str:
        """Text of request number ``place``; a repeated prompt is the same text again."""
        spec = self._job.prompts
        if spec.cycle is None:
            return self._new(spec.first + place)
        if place < spec.cycle:
            self._again.append(self._new(spec.first + place))
        return self._again[place % spec.cycle]

    def _new(self, index: int) -> str:
        spec = self._job.prompts
        parts = parts_of(spec, index)
        if isinstance(spec.shape, Conversation) and index % spec.shape.turns:
            return self._fit("", parts[0], spec.shape.user_tokens, bare=True)
        if isinstance(spec.shape, Shared) and len(parts) == 2:
            head = self._heads.get(parts[0])
            if head is None:
                head = self._fit("", parts[0], parts[0].tokens, bare=True)
                self._heads[parts[0]] = head
            return self._fit(head, parts[1], spec.tokens, bare=False)
        return self._fit("", parts[0], spec.tokens, bare=False)

    def _fit(self, head: str, part: Part, wanted: int, *, bare: bool) -> str:
        """``head`` and as many words of ``part`` as make ``wanted`` tokens together."""
        spec = self._job.prompts
        words = max(1, round(part.tokens * self._ratio))
        # Single letters fill the last tokens where whole words step over the length.
        filler = 0
        closest = 0
        # One long draw that is cut to length: the words do not change while the length is sought.
        source = prompt_text(spec.seed, part.pool, part.number, 2 * part.tokens + 16).split(" ")
        for _ in range(_TRIES):
            text = " ".join([head] * bool(head) + source[:words] + ["a"] * filler)
            count = closest = self._tokenizer.count(text, bare=bare)
            if count == wanted:
                self._ratio = words / part.tokens
                return text
            missing = wanted - count
            step = round(missing * words / max(count, 1))
            if missing > 0 and step == 0:
                filler += missing
            elif missing < 0 and step == 0:
                words -= 1
                filler = 0
            else:
                words += step
                filler = 0
            words = min(max(words, 0), len(source))
            if words == 0 and missing < 0:
                break
        raise CannotMeasure(
            f"no text of {wanted} tokens found (closest {closest})",
            where=self._job.url,
            remedy="choose another prompt length, or the completions endpoint",
        )
