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
from kvgate.load.job import Job
from kvgate.load.prompts import prompt_text
from kvgate.load.requests import parse_url, tls_context

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

    def count(self, text: str) -> int:
        """Tokens of a prompt, with the chat template where the endpoint uses it."""
        job = self._job
        asked: dict[str, Any] = {"model": job.model}
        if job.endpoint == "chat":
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
    """Write the job's texts, one JSON string a line, each of exactly ``prompts.tokens`` tokens.

    Raises :class:`CannotMeasure` when the engine cannot count or no text of that length is found.
    """
    spec = job.prompts
    tokenizer = _Tokenizer(job)
    ratio = 1.0
    try:
        with path.open("wb") as lines:
            for index in range(spec.first, spec.first + spec.count):
                text, ratio = _fit(tokenizer, job, index, ratio)
                lines.write(msgspec.json.encode(text) + b"\n")
    finally:
        tokenizer.close()


def _fit(tokenizer: _Tokenizer, job: Job, index: int, ratio: float) -> tuple[str, float]:
    """A text of the wanted length, and the words per token that led to it."""
    spec = job.prompts
    words = max(1, round(spec.tokens * ratio))
    # Single letters fill the last tokens where whole words step over the length.
    filler = 0
    closest = 0
    # One long draw that is cut to length: the words do not change while the length is sought.
    source = prompt_text(spec.seed, spec.pool, index, 2 * spec.tokens + 16).split(" ")
    for _ in range(_TRIES):
        text = " ".join(source[:words] + ["a"] * filler)
        count = tokenizer.count(text)
        closest = count
        if count == spec.tokens:
            return text, words / spec.tokens
        missing = spec.tokens - count
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
        f"no text of {spec.tokens} tokens found (closest {closest})",
        where=job.url,
        remedy="choose another prompt length, or the completions endpoint",
    )
