"""Each fault that people met with metrics pages and KV caches has a test with its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvgate.analyse.agreement import differs
from kvgate.analyse.results import Answer
from kvgate.observe.adapters import adapter_for
from kvgate.observe.exposition import parse
from kvgate.verdict import About

from .restore_story import ASKED, COUNT, RESTORED, TOKENS, broken

PROM = (23, 25, 26, 28, 31, 32, 33, 35)
KV = (37, 39, 41, 42, 44, 47, 48, 50, 51)
NAMED = re.compile(r"def test_row_(\d+)_")


@pytest.fixture(scope="module")
def named() -> set[int]:
    tests = Path(__file__).parents[1]
    return {
        int(number)
        for path in tests.glob("*/test_*.py")
        for number in NAMED.findall(path.read_text())
    }


@pytest.mark.parametrize("row", [*PROM, *KV])
def test_a_row_has_its_test(row: int, named: set[int]) -> None:
    assert row in named


def answer(*logprobs: float, tokens: tuple[str, ...] = ("a", "b", "c")) -> Answer:
    return Answer(
        block=1, arm="a", prompt_digest="p", tokens=tokens, logprobs=logprobs,
        margins=(3.0, 3.0, 3.0),
    )  # fmt: skip


def test_row_39_a_lossy_cache_that_moves_every_log_probability_is_seen_in_the_same_words() -> None:
    exact = answer(-0.1, -0.2, -0.3)
    assert not differs(exact, answer(-0.11, -0.21, -0.31), 0.02)
    assert differs(exact, answer(-0.4, -0.5, -0.6), 0.02)


@pytest.mark.parametrize("role, about", [
    ("test", About.APPLIANCE), ("reference", About.ENVIRONMENT),
])  # fmt: skip
def test_row_44_engines_that_hit_nothing_in_either_arm_convict_no_store(
    role: str, about: About
) -> None:
    # A hash seed that differs after a restart misses in the reference arm too, which then is not
    # healthy, and a miss counts against an appliance only beside a healthy reference.
    found = broken("vllm-by-source", "lmcache-mp", ASKED, 0, role=role)
    assert [(n, c.about) for n, c in found.items()] == [("declared_source", about)]


def test_row_47_what_was_found_and_not_loaded_is_no_restore() -> None:
    loaded = 3.0 * COUNT
    found = broken("vllm-by-source", "kvstore", RESTORED | {"bytes_read": 0.0}, loaded)
    assert found["declared_source"].value == loaded / TOKENS
    assert found["declared_source"].ok is False


def test_row_48_more_found_than_asked_for_is_missing_and_never_negative() -> None:
    text = (
        "vllm:prompt_tokens_total 100\nvllm:prefix_cache_hits_total 20\n"
        "vllm:external_prefix_cache_hits_total 96\n"
    )
    counters = adapter_for("vllm").read(parse(text)).to_json()
    assert counters["prompt_tokens_external"] == 96
    assert counters["prompt_tokens_computed"] is None


def test_row_50_a_gain_without_a_byte_read_is_no_restore() -> None:
    found = broken("vllm-by-source", "lmcache-embedded", RESTORED, TOKENS, moved=0.0)
    assert [(n, c.ok) for n, c in found.items()] == [("bytes_read", False)]
