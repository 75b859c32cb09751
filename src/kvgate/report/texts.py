"""The report's sentences in one language, from ``reports/templates/*.<lang>.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kvgate.errors import UsageError
from kvgate.report.assets import assets_dir

LANGUAGES: Final = ("en", "zh")
PARTS: Final = ("texts", "charts", "money", "validity", "appendix")
"""Files of sentences; no key stands in two of them."""


class Texts:
    """Sentences by dotted key. A missing key raises KeyError: nothing stays half translated."""

    def __init__(self, lang: str, sentences: Mapping[str, str]) -> None:
        self.lang = lang
        self.sentences = sentences

    def __call__(self, key: str, /, **params: object) -> str:
        sentence = self.sentences[key]
        return sentence.format(**params) if params else sentence

    def find(self, key: str, default: str) -> str:
        """The sentence, or ``default`` for names that the report cannot know beforehand."""
        return self.sentences.get(key, default)


@lru_cache(maxsize=len(LANGUAGES))
def texts(lang: str) -> Texts:
    """Texts of ``lang``. Raises UsageError for a language that the report does not speak."""
    if lang not in LANGUAGES:
        raise UsageError(f"no report in {lang!r}", remedy=f"choose {' or '.join(LANGUAGES)}")
    sentences: dict[str, str] = {}
    for part in PARTS:
        with (assets_dir() / "templates" / f"{part}.{lang}.toml").open("rb") as stream:
            found = dict(_flat("", tomllib.load(stream)))
        if twice := sorted(sentences.keys() & found.keys()):
            raise ValueError(f"{part}.{lang}.toml says again what is said: {', '.join(twice)}")
        sentences |= found
    return Texts(lang, sentences)


def _flat(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        rows.extend([(name, value)] if isinstance(value, str) else _flat(f"{name}.", value))
    return rows
