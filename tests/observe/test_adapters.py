"""The names of engines and stores, held by golden pages of each generation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kvgate.errors import UsageError
from kvgate.observe.adapters import adapter_for
from kvgate.observe.counters import EngineCounters, StoreCounters
from kvgate.observe.exposition import parse

GOLDEN = Path(__file__).parent / "golden"
PAGES = sorted(path.stem for path in GOLDEN.glob("*.prom"))


def _read(page: str) -> EngineCounters | StoreCounters:
    text = (GOLDEN / f"{page}.prom").read_text()
    counters = adapter_for(page.split("-")[0]).read(parse(text))
    assert isinstance(counters, EngineCounters | StoreCounters)
    return counters


@pytest.mark.parametrize("page", PAGES)
def test_a_golden_page_gives_its_counters_and_nothing_else(page: str) -> None:
    expected = json.loads((GOLDEN / f"{page}.json").read_text())
    found = {name: value for name, value in _read(page).to_json().items() if value is not None}
    assert found == expected


@pytest.mark.parametrize("page", PAGES)
def test_counters_survive_json(page: str) -> None:
    counters = _read(page)
    again = type(counters).from_json(json.loads(json.dumps(counters.to_json())))
    assert again == counters


@pytest.mark.parametrize("kind", ["vllm", "sglang", "lmcache", "mooncake", "kvstore"])
def test_what_a_page_lacks_is_missing_and_not_zero(kind: str) -> None:
    counters = adapter_for(kind).read(parse("other_metric 5\n"))
    assert set(dataclasses.asdict(counters).values()) == {None}


def test_row_23_old_and_new_names_on_one_page_are_never_added_up() -> None:
    both = _read("vllm-both-names")
    assert isinstance(both, EngineCounters)
    assert (both.prefix_queries, both.prefix_hits) == (5000, 1200)
    old = _read("vllm-gpu-names")
    assert isinstance(old, EngineCounters)
    assert (old.prefix_queries, old.prefix_hits) == (4096, 1024)


@pytest.mark.parametrize("name", ["vllm:prefix_cache_hits", "vllm:prefix_cache_hits_total"])
@pytest.mark.parametrize("typed", ["# TYPE vllm:prefix_cache_hits counter\n", ""])
def test_row_25_a_counter_is_found_with_and_without_total(name: str, typed: str) -> None:
    text = f'{typed}{name}{{engine="0"}} 7\nvllm:prefix_cache_hits_created{{engine="0"}} 1.7e9\n'
    counters = adapter_for("vllm").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prefix_hits == 7


def test_row_25_both_spellings_of_one_counter_are_one_counter() -> None:
    text = "vllm:prompt_tokens 9\nvllm:prompt_tokens_total 9\n"
    counters = adapter_for("vllm").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prompt_tokens == 9


def test_row_33_a_hit_rate_gauge_is_never_read() -> None:
    counters = _read("lmcache-embedded")
    assert isinstance(counters, StoreCounters)
    assert (counters.lookup_tokens, counters.hit_tokens) == (8192, 2048)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_no_number_is_missing(value: str) -> None:
    text = f'vllm:prompt_tokens_total{{e="0"}} 5\nvllm:prompt_tokens_total{{e="1"}} {value}\n'
    counters = adapter_for("vllm").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prompt_tokens is None


def test_two_samples_of_one_series_are_not_believed() -> None:
    text = "vllm:prompt_tokens_total 5\nvllm:prompt_tokens_total 6\n"
    counters = adapter_for("vllm").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prompt_tokens is None


def test_an_unlabelled_cached_count_gives_no_tier() -> None:
    text = "sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 60\n"
    counters = adapter_for("sglang").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prompt_tokens_computed is None
    assert counters.prompt_tokens_engine_cache is None


def test_two_names_of_the_bytes_that_a_client_moved_are_never_added_up() -> None:
    counters = _read("mooncake-client")
    assert isinstance(counters, StoreCounters)
    assert (counters.bytes_read, counters.bytes_written) == (33554432, 134217728)


def test_a_page_that_counts_by_source_is_not_asked_for_its_connector() -> None:
    text = (
        'vllm:prompt_tokens_by_source_total{source="local_compute"} 100\n'
        "vllm:prompt_tokens_total 100\nvllm:external_prefix_cache_hits_total 90\n"
    )
    counters = adapter_for("vllm").read(parse(text))
    assert isinstance(counters, EngineCounters)
    assert counters.prompt_tokens_external is None


def test_an_unknown_engine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no adapter"):
        adapter_for("unheard-of")


@pytest.mark.parametrize("value", ["12", True, float("nan"), [1]])
def test_counters_from_a_strangers_json_are_numbers_or_refused(value: object) -> None:
    with pytest.raises(ValueError, match="prompt_tokens"):
        EngineCounters.from_json({"prompt_tokens": value})
