"""A prompt as it goes out: token ids, a text, or messages, perhaps of many turns."""

from __future__ import annotations

from array import array
from typing import Self

import msgspec

from kvgate.errors import CannotMeasure
from kvgate.load.answer import Answer
from kvgate.load.job import Job
from kvgate.load.prompts import ids_digest, prompt_text, text_digest
from kvgate.load.shapes import Part, token_ids


class Said:
    """All that was said so far. Exactly one of ``ids``, ``text`` and ``messages`` is there.

    ``coming`` are texts, checked before, of the user's later turns.
    """

    __slots__ = ("coming", "ids", "messages", "text")

    def __init__(self) -> None:
        self.ids: array[int] | None = None
        self.text: str | None = None
        self.messages: list[dict[str, str]] | None = None
        self.coming: list[str] | None = None

    @classmethod
    def of(cls, job: Job, parts: tuple[Part, ...], texts: list[str] | None) -> Self:
        """The first prompt: from its parts, or from the first of its texts."""
        said = cls()
        if job.endpoint == "completions" and texts is None:
            said.ids = array("I", token_ids(job.prompts, parts))
            return said
        text = said._user_text(job, parts) if texts is None else texts[0]
        said.coming = None if texts is None else texts[1:]
        if job.endpoint == "chat":
            said.messages = [{"role": "user", "content": text}]
        else:
            said.text = text
        return said

    def after(self, answer: Answer, job: Job, parts: tuple[Part, ...]) -> Self:
        """What the user says after an answer, with all that went before.

        Raises :class:`CannotMeasure` when ids are wanted and the engine gave none.
        """
        said = type(self)()
        said.coming = None if self.coming is None else self.coming[1:]
        if self.ids is not None:
            if not answer.ids or len(answer.ids) != answer.output_tokens:
                raise CannotMeasure(
                    f"the engine returned {len(answer.ids or ())} of {answer.output_tokens} token "
                    "ids, so the next turn cannot contain its answer",
                    where=job.url,
                    remedy="use --endpoint chat, or an engine that knows return_token_ids",
                )
            said.ids = self.ids + answer.ids
            said.ids.extend(token_ids(job.prompts, parts))
            return said
        spoken = "".join(answer.text or ())
        text = self.coming[0] if self.coming else self._user_text(job, parts)
        if self.messages is not None:
            said.messages = [
                *self.messages,
                {"role": "assistant", "content": spoken},
                {"role": "user", "content": text},
            ]
        else:
            said.text = f"{self.text}{spoken} {text}"
        return said

    def encoded(self) -> tuple[bytes, str]:
        """The beginning of the request's body, and the prompt's SHA-256 in hex."""
        if self.ids is not None:
            ids = self.ids.tolist()
            return b'{"prompt":' + msgspec.json.encode(ids), ids_digest(ids)
        if self.text is not None:
            return b'{"prompt":' + msgspec.json.encode(self.text), text_digest(self.text)
        messages = self.messages or []
        # One message alone has the digest of its text, as a completion would.
        whole = messages[0]["content"] if len(messages) == 1 else msgspec.json.encode(messages)
        text = whole if isinstance(whole, str) else whole.decode()
        return b'{"messages":' + msgspec.json.encode(messages), text_digest(text)

    @staticmethod
    def _user_text(job: Job, parts: tuple[Part, ...]) -> str:
        seed = job.prompts.seed
        return " ".join(prompt_text(seed, part.pool, part.number, part.tokens) for part in parts)
