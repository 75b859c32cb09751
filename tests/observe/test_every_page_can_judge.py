"""A store whose page we read can be primed, restored from and found at fault.

Each golden page says which counters its version has. A made-up restore moves exactly those, so that
a condition that asks for a counter which real pages lack is found here.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvgate.conduct.prime import acknowledged
from kvgate.verdict import About

from .restore_story import (
    ASKED,
    EMPTY,
    ENGINES,
    KV,
    PRIMED,
    RESTORED,
    STORES,
    TOKENS,
    TOO_OLD,
    broken,
    names_on,
    only,
)  # fmt: skip


@pytest.mark.parametrize("page", STORES)
def test_a_store_of_each_page_acknowledges_what_it_took_and_only_that(page: str) -> None:
    def says(then: Mapping[str, float], now: Mapping[str, float], tokens: int) -> bool | None:
        return acknowledged(only(page, then), only(page, now), tokens, 0.9, KV)

    assert says(EMPTY, PRIMED, TOKENS) is True
    assert says(EMPTY, PRIMED, 2 * TOKENS) is False
    # What it held before proves nothing about new prompts, unless it gave them from there.
    assert says(PRIMED, PRIMED, TOKENS) is False
    if {"hit_tokens", "bytes_read"} & names_on(page):
        assert says(PRIMED, RESTORED, TOKENS) is True
    if "pending_chunks" in names_on(page):
        assert says(EMPTY, PRIMED | {"pending_chunks": 1.0}, TOKENS) is False


@pytest.mark.parametrize("again, rest, ok", [
    (TOKENS, 0, True), (TOKENS // 4, 3 * TOKENS // 4, True), (TOKENS // 2, 0, False),
])  # fmt: skip
def test_a_store_that_began_anew_and_gives_what_it_had_holds_it(
    again: int, rest: int, ok: bool
) -> None:
    """Its page says what this process took; what it gives beyond that lies behind it."""
    now = EMPTY | {
        "used_bytes": rest * KV, "stored_tokens": rest, "hit_tokens": again, "bytes_written": 0.0,
    }  # fmt: skip
    assert acknowledged(EMPTY, now, TOKENS, 0.9, KV) is ok
    # One that said what it held is taken at its word: what it gave was of that.
    full = EMPTY | {"stored_tokens": 0.6 * TOKENS, "used_bytes": 0.6 * TOKENS * KV}
    assert acknowledged(full, full | {"hit_tokens": 0.4 * TOKENS}, TOKENS, 0.9, KV) is False


@pytest.mark.parametrize("page", STORES)
def test_a_cold_restore_can_be_valid_with_each_store_page(page: str) -> None:
    assert broken("vllm-by-source", page, RESTORED, TOKENS) == {}


@pytest.mark.parametrize("page", STORES)
def test_a_miss_that_the_store_is_to_blame_for_convicts_it_with_each_store_page(page: str) -> None:
    found = broken("vllm-by-source", page, ASKED, 0)
    assert {n: (c.about, c.ok) for n, c in found.items()} == {
        "declared_source": (About.APPLIANCE, False)
    }


@pytest.mark.parametrize("page", STORES)
def test_a_store_that_was_never_asked_is_not_convicted(page: str) -> None:
    found = broken("vllm-by-source", page, PRIMED, 0)
    assert found["declared_source"].about is About.ENVIRONMENT


@pytest.mark.parametrize("page", STORES)
def test_the_other_store_is_seen_to_be_touched_on_each_page(page: str) -> None:
    found = broken("vllm-by-source", page, RESTORED, TOKENS, other_after=RESTORED)
    assert list(found) == ["untouched_baseline"]


@pytest.mark.parametrize("page", sorted(set(ENGINES) - TOO_OLD))
def test_a_cold_restore_can_be_valid_and_a_miss_convicts_with_each_engine_page(page: str) -> None:
    assert broken(page, "kvstore", RESTORED, TOKENS) == {}
    found = broken(page, "kvstore", ASKED, 0)
    assert [(n, c.about) for n, c in found.items()] == [("declared_source", About.APPLIANCE)]


@pytest.mark.parametrize("page", sorted(TOO_OLD))
def test_an_engine_that_does_not_say_where_tokens_came_from_proves_nothing(page: str) -> None:
    for after, external in ((RESTORED, TOKENS), (ASKED, 0)):
        assert broken(page, "kvstore", after, external)["declared_source"].ok is None


def test_a_store_that_counts_no_bytes_and_loads_nothing_moved_none() -> None:
    dram = RESTORED | {"loads": 0.0, "hit_tokens_backend": 0.0, "hit_tokens_dram": TOKENS}
    assert broken("vllm-by-source", "lmcache-mp", dram, TOKENS)["bytes_read"].value == 0


def test_the_first_load_of_a_store_counts_although_its_counter_was_not_there_before() -> None:
    fresh = {k: v for k, v in PRIMED.items() if k not in {"loads", "hit_tokens_backend"}}
    assert broken("vllm-by-source", "lmcache-mp", RESTORED, TOKENS, before=fresh) == {}
    silent = {k: v for k, v in fresh.items() if k != "lookup_tokens"}
    found = broken("vllm-by-source", "lmcache-mp", RESTORED, TOKENS, before=silent)
    assert found["bytes_read"].ok is None
