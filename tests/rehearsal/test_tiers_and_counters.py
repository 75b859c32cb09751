"""Where prompt tokens come from, and that the counters tell it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvgate.rehearsal.profile import SHIPPED
from kvgate.rehearsal.tiers import ChunkCache

from .machine import Machine, by_source, call, metrics, prompt, wait_until


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine() as started:
        yield started


def _added(machine: Machine, tokens: list[int]) -> dict[str, int]:
    before = by_source(machine.port)
    assert machine.complete(tokens).status == 200
    after = by_source(machine.port)
    return {source: after[source] - before[source] for source in after}


def test_first_computed_then_from_the_engine_cache_then_restored(machine: Machine) -> None:
    tokens = prompt(10)
    first = _added(machine, tokens)
    assert first == {"local_compute": 2048, "local_cache_hit": 0, "external_kv_transfer": 0}
    machine.wait_acknowledged()
    # The engine's cache never serves the last chunk of a whole prompt; the store holds that too.
    warm = _added(machine, tokens)
    assert warm == {"local_compute": 1, "local_cache_hit": 1792, "external_kv_transfer": 255}
    machine.reset()
    cold = _added(machine, tokens)
    assert cold == {"local_compute": 1, "local_cache_hit": 0, "external_kv_transfer": 2047}


def test_a_shared_prefix_hits_whole_chunks_only(machine: Machine) -> None:
    tokens = prompt(11)
    _added(machine, tokens)
    shared = _added(machine, [*tokens[:700], *prompt(12)[700:]])
    assert shared["local_cache_hit"] == 512
    assert shared["local_compute"] == 2048 - 512


def test_another_cache_salt_recomputes_the_same_answer(machine: Machine) -> None:
    tokens = prompt(15)
    first = machine.complete(tokens).json()["choices"]
    before = by_source(machine.port)["local_compute"]
    assert machine.complete(tokens, cache_salt="fresh").json()["choices"] == first
    assert by_source(machine.port)["local_compute"] - before == 2048


def test_the_next_turn_finds_the_answer_of_the_last_and_the_store_gets_it(
    machine: Machine,
) -> None:
    turn = prompt(16, 500)
    answer = machine.complete(turn, max_tokens=300, return_token_ids=True).json()
    history = [*turn, *answer["choices"][0]["token_ids"], *prompt(17, 300)]
    assert _added(machine, history)["local_cache_hit"] == 768
    machine.wait_acknowledged()
    machine.reset()
    assert _added(machine, history)["external_kv_transfer"] == 1024


def test_sources_add_up_to_the_prompt_tokens(machine: Machine) -> None:
    for number in (13, 14, 13):
        machine.complete(prompt(number, 1000))
    found = metrics(machine.port)
    assert sum(by_source(machine.port).values()) == found["vllm:prompt_tokens_total"]
    assert found["vllm:prefix_cache_queries_total"] == found["vllm:prompt_tokens_total"]
    assert found["vllm:prefix_cache_hits_total"] == by_source(machine.port)["local_cache_hit"]
    hits = found["vllm:external_prefix_cache_hits_total"]
    assert hits == by_source(machine.port)["external_kv_transfer"]


def test_the_store_outlives_the_engine_and_a_new_engine_restores() -> None:
    with Machine() as machine:
        tokens = prompt(20)
        machine.prime(tokens)
        assert machine.engine is not None
        machine.engine.terminate()
        assert machine.engine.wait(timeout=30) == 0
        machine.start_engine()
        restored = machine.complete(tokens).json()
        assert by_source(machine.port) == {
            "local_compute": 1,
            "local_cache_hit": 0,
            "external_kv_transfer": 2047,
        }
        assert restored["usage"]["prompt_tokens_details"]["cached_tokens"] == 2047
        store = metrics(machine.store_port)
        device = call(machine.store_port, "GET", "/v1/device").json()
        assert store["kvstore_loads_total"] == 1
        assert store["kvstore_bytes_read_total"] == 8 * device["chunk_bytes"]
        assert store["kvstore_pending_bytes"] == 0
        assert store["kvstore_used_bytes"] == 8 * device["chunk_bytes"]
        assert device["simulated"] is True


def test_answers_are_the_same_in_every_arm_and_after_a_restore() -> None:
    answers = []
    for arm in ("recompute", "baseline", "appliance"):
        with Machine(arm=arm) as machine:
            if arm != "recompute":
                machine.prime(prompt(21))
            answers.append(machine.complete(prompt(21), logprobs=1).json()["choices"][0])
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["text"]


def test_a_store_that_is_gone_means_recompute_and_a_count() -> None:
    with Machine() as machine:
        machine.prime(prompt(22))
        assert machine.store is not None
        machine.store.kill()
        machine.store.wait()
        assert machine.complete(prompt(22)).status == 200
        assert by_source(machine.port)["external_kv_transfer"] == 0
        assert metrics(machine.port)["kvgate_rehearsal_store_fallbacks_total"] >= 1


def test_a_request_that_waits_for_its_restore_counts_as_waiting() -> None:
    with Machine(faults=["hang=1"]) as machine:
        machine.prime(prompt(23))
        body = {"prompt": prompt(23), "max_tokens": 1}
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(call, machine.port, "POST", "/v1/completions", body)
            wait_until(
                lambda: metrics(machine.port)["vllm:num_requests_waiting"] == 1, "a waiting request"
            )
            assert metrics(machine.port)["vllm:num_requests_running"] == 0
            assert not pending.done()
            assert machine.engine is not None
            machine.engine.terminate()
            assert pending.exception(timeout=30) is not None


def test_the_least_recent_chunks_leave_first() -> None:
    cache = ChunkCache(capacity_tokens=1024, chunk_tokens=256)
    for name in (b"a", b"b", b"c", b"d"):
        cache.put([name], [name])
    assert cache.leading([b"a"]) == [b"a"]
    cache.put([b"e"], [b"e"])
    assert cache.tokens == 1024
    assert cache.leading([b"b"]) == []
    assert cache.leading([b"a", b"e"]) == [b"a", b"e"]
    assert cache.clear() == 1024
    assert cache.leading([b"a"]) == []


def test_a_full_store_evicts_and_stays_within_its_capacity(tmp_path: Path) -> None:
    text = (SHIPPED / "healthy.toml").read_text()
    small = tmp_path / "small.toml"
    # Room for ten chunks of 780,140,544 bytes.
    small.write_text(text.replace("8_000_000_000_000", "7_801_405_440"))
    with Machine(calibration=str(small)) as machine:
        machine.prime(prompt(24))
        machine.prime(prompt(25))
        store = metrics(machine.store_port)
        assert store["kvstore_chunks"] == 10
        assert store["kvstore_evicted_chunks_total"] == 6
        assert store["kvstore_used_bytes"] <= store["kvstore_capacity_bytes"]
        assert store["kvstore_stored_tokens_total"] == 16 * 256


def test_the_dram_tier_serves_what_the_gpu_cache_lost(tmp_path: Path) -> None:
    text = (SHIPPED / "healthy.toml").read_text()
    file = tmp_path / "dram.toml"
    file.write_text(text.replace("max_running = 256", "max_running = 256\ndram_tokens = 65536"))
    with Machine(arm="recompute", calibration=str(file)) as machine:
        machine.complete(prompt(26))
        machine.reset()
        machine.complete(prompt(26))
        assert by_source(machine.port)["external_kv_transfer"] == 2047
        assert metrics(machine.port)["kvgate_rehearsal_dram_hit_tokens_total"] == 2047
        call(machine.port, "POST", "/reset_prefix_cache?reset_external=true")
        machine.complete(prompt(26))
        assert metrics(machine.port)["kvgate_rehearsal_dram_hit_tokens_total"] == 2047
