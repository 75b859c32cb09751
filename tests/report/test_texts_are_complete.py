"""Both languages say everything, and every key that a template or a module asks for exists."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from kvgate.criterion import METRICS, Source
from kvgate.report.assets import assets_dir
from kvgate.report.glyphs import visible
from kvgate.report.pages import GLOSSARY, METHOD, REFERENCES
from kvgate.report.texts import texts
from kvgate.verdict import About, Decision, Verdict

TEMPLATES = assets_dir() / "templates"
MODULES = Path(__file__).parents[2] / "src" / "kvgate" / "report"


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    english, chinese = texts("en").sentences, texts("zh").sentences
    assert english.keys() == chinese.keys()
    for key, sentence in english.items():
        if key.startswith("decision."):
            assert placeholders(sentence) >= placeholders(chinese[key]) or key.endswith("word"), key
        else:
            assert placeholders(sentence) == placeholders(chinese[key]), key


def test_every_sentence_is_said_and_has_its_glyphs() -> None:
    for lang in ("en", "zh"):
        for key, sentence in texts(lang).sentences.items():
            assert sentence.strip(), key
            assert visible(sentence, lang) == sentence, key


def test_every_key_that_is_asked_for_exists() -> None:
    known = texts("en").sentences.keys()
    asked: set[str] = set()
    for path in [*TEMPLATES.glob("*.j2"), *TEMPLATES.glob("*.css"), *MODULES.glob("*.py")]:
        asked |= set(re.findall(r"""(?<![\w.])t\(\s*["']([a-z_.A-Z-]+)["']""", path.read_text()))
    asked = {key for key in asked if not key.endswith(".")}
    assert len(asked) > 80
    assert asked <= known, sorted(asked - known)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_word_of_the_verdict_has_a_text(lang: str) -> None:
    known = texts(lang).sentences
    wanted = [f"verdict.{v}" for v in Verdict] + [f"about.{a}" for a in About]
    for name in [*Decision, "NONE"]:
        wanted += [f"decision.{name}.{part}" for part in ("word", "code", "sentence")]
        wanted.append(f"follows.{name}")
    wanted += [f"metric.{name}" for name in METRICS]
    wanted += [f"formula.{n}" for n, m in METRICS.items() if m.source is not Source.FACT]
    wanted += [f"glossary.{key}.{part}" for key in GLOSSARY for part in ("term", "text")]
    wanted += [f"method.{key}" for key in METHOD] + [f"references.{key}" for key in REFERENCES]
    assert [key for key in wanted if key not in known] == []
