"""Prompts share exactly what their workload says, and nothing else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.errors import UsageError
from kvgate.load.job import Conversation, Prompts, Shared, contradiction
from kvgate.load.shapes import expected_reuse, parts_of, rows_of, shared_for_ratio, token_ids
from kvgate.load.texts import fetch_texts
from kvgate.load.workloads import (
    Sizes,
    Workload,
    expectation,
    findings,
    prompts_for,
    warm_up_of,
)
from kvgate.record import Outcome

from .conftest import Engine, MakeJob, run_job

BASE = Prompts(seed="s", pool="p", count=1, tokens=1)


def ids_of(prompts: Prompts) -> list[list[int]]:
    return [token_ids(prompts, parts_of(prompts, prompts.first + i)) for i in range(prompts.count)]


def shared_length(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def test_a_prompt_without_a_shape_is_the_pools_prompt_as_ever() -> None:
    prompts = Prompts(seed="seed", pool="pool", count=1, tokens=4)
    assert ids_of(prompts) == [[14222, 18515, 18934, 15334]]


@pytest.mark.parametrize("order", ["round", "runs", "shuffled"])
def test_prompts_of_a_group_share_their_prefix_and_not_a_token_more(order: str) -> None:
    sizes = Sizes(prompt_tokens=96, requests=12, hit_ratio=0.5, prefixes=3, order=order)
    prompts = prompts_for(Workload.SHARED_PREFIX, BASE, sizes)
    assert isinstance(prompts.shape, Shared)
    prefix = prompts.shape.prefix_tokens
    assert prefix == 64
    ids = ids_of(prompts)
    assert {len(i) for i in ids} == {96}
    groups = {tuple(i[:prefix]) for i in ids}
    assert len(groups) == 3
    assert len({tuple(i[prefix:]) for i in ids}) == 12
    changes = sum(a[:prefix] != b[:prefix] for a, b in pairwise(ids))
    assert changes == {"round": 11, "runs": 2}.get(order, changes)


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(1, 5), st.floats(0.05, 0.95), st.sampled_from([1, 16, 128]))
def test_the_hit_ratio_is_the_asked_one_to_a_block(
    count: int, groups: int, ratio: float, block: int
) -> None:
    tokens = 4096
    try:
        prefix = shared_for_ratio(tokens, count, groups, ratio, block)
    except UsageError:
        return
    shape = Shared(prefix, groups)
    prompts = msgspec.structs.replace(BASE, count=count, tokens=tokens, shape=shape)
    expected = expectation(prompts, block)
    share = expected.repeated_tokens / expected.tokens
    assert abs(share - ratio) <= block / tokens
    assert expected.unique == count


def test_row_32_a_prefix_shorter_than_a_block_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError, match="shorter than one block of 784"):
        shared_for_ratio(480, 64, 1, 0.5, 784)
    with pytest.raises(UsageError, match="shorter than one block"):
        sizes = Sizes(prompt_tokens=300, requests=8, question_tokens=60, block_tokens=784)
        prompts_for(Workload.LONG_DOCUMENTS, BASE, sizes)


def test_a_ratio_that_nothing_can_reach_says_the_highest_one() -> None:
    with pytest.raises(UsageError, match=r"at most 0\.4"):
        shared_for_ratio(1600, 4, 2, 0.9, 16)
    with pytest.raises(UsageError, match="none is used twice"):
        shared_for_ratio(1600, 4, 4, 0.5, 16)


def test_long_documents_come_again_with_another_question() -> None:
    sizes = Sizes(prompt_tokens=80, requests=6, documents=2, question_tokens=16)
    prompts = prompts_for(Workload.LONG_DOCUMENTS, BASE, sizes)
    ids = ids_of(prompts)
    assert ids[0][:64] == ids[2][:64] == ids[4][:64]
    assert shared_length(ids[0], ids[1]) < 4
    assert len({tuple(i) for i in ids}) == 6


def test_reuse_counts_whole_blocks_of_what_came_before() -> None:
    shape = Shared(40, 1)
    prompts = msgspec.structs.replace(BASE, count=3, tokens=50, shape=shape)
    assert expected_reuse(rows_of(prompts), 16) == (150, 2 * 32, 3)
    again = msgspec.structs.replace(BASE, count=4, tokens=50, cycle=2)
    assert expected_reuse(rows_of(again), 16) == (200, 2 * 48, 2)


def test_a_conversation_repeats_its_past_and_not_that_of_another() -> None:
    shape = Conversation(3, 16)
    prompts = msgspec.structs.replace(BASE, count=6, tokens=32, shape=shape)
    tokens, repeated, unique = expected_reuse(rows_of(prompts), 16)
    assert (tokens, repeated, unique) == (2 * (32 + 48 + 64), 2 * (32 + 48), 6)


def test_pools_warm_up_and_workloads_never_share_a_beginning() -> None:
    sizes = Sizes(prompt_tokens=64, requests=4, question_tokens=32, turns=2)
    ids = []
    for pool in ("p", "p/probe-1", "q"):
        base = msgspec.structs.replace(BASE, pool=pool)
        for workload in (Workload.MISS_ONLY, Workload.LONG_DOCUMENTS, Workload.SHARED_PREFIX):
            prompts = prompts_for(workload, base, sizes)
            found = {tuple(i[:8]) for i in ids_of(prompts)}
            ids += [*found, *{tuple(i[:8]) for i in ids_of(warm_up_of(prompts, 3))}]
    # A workload's warm-up is the same for all workloads of a pool; nothing else is.
    warm = 3 * 3
    assert len(set(ids)) == len(ids) - 2 * warm


def test_row_01_a_warm_cache_in_a_run_of_misses_is_said() -> None:
    expected = expectation(msgspec.structs.replace(BASE, count=10, tokens=100), 16)
    given_: dict[str, int] = {"requests": 10, "planned": 10, "unique_prompts": 10}
    cold = findings(Workload.MISS_ONLY, expected, **given_, prompt_tokens=1000, cached_tokens=10)
    assert cold == ()
    warm = findings(Workload.MISS_ONLY, expected, **given_, prompt_tokens=1000, cached_tokens=11)
    assert len(warm) == 1
    assert "the cache was warm: 1.1%" in warm[0]
    # Hits are what another workload is for, and a server that does not tell proves nothing.
    other = Workload.SHARED_PREFIX
    assert findings(other, expected, **given_, prompt_tokens=1000, cached_tokens=500) == ()
    assert (
        findings(Workload.MISS_ONLY, expected, **given_, prompt_tokens=1000, cached_tokens=None)
        == ()
    )


def test_row_03_fewer_distinct_prompts_than_planned_are_said() -> None:
    expected = expectation(msgspec.structs.replace(BASE, count=10, tokens=100), 16)
    found = findings(
        Workload.MISS_ONLY,
        expected,
        requests=10,
        planned=10,
        unique_prompts=1,
        prompt_tokens=1000,
        cached_tokens=0,
    )
    assert found == ("only 1 distinct prompts of 10 planned: the cache may have answered",)
    # A run that goes round over a pool plans to repeat itself.
    round_ = expectation(msgspec.structs.replace(BASE, count=10, tokens=100, cycle=2), 16)
    assert round_.unique == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": Conversation(3, 8), "count": 4},
        {"shape": Conversation(2, 8), "count": 4, "first": 1},
        {"shape": Shared(50, 1), "tokens": 40},
        {"vocab_low": 10, "vocab_high": 10},
    ],
)
def test_prompts_that_contradict_themselves_are_refused(
    fields: dict[str, object], engine: Engine, make_job: MakeJob
) -> None:
    job = make_job(engine.url, prompts=msgspec.structs.replace(BASE, **fields))
    assert contradiction(job)
    assert contradiction(make_job(engine.url)) is None


def test_shared_texts_share_their_words_and_have_their_length(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    prompts = msgspec.structs.replace(BASE, count=4, tokens=40, shape=Shared(16, 2))
    job = make_job(engine.url, prompts=prompts, endpoint="chat", texts_path=str(texts))
    fetch_texts(job, texts)
    written = [msgspec.json.decode(line, type=str) for line in texts.read_bytes().splitlines()]
    assert written[0].split()[:16] == written[2].split()[:16]
    assert written[0].split()[:4] != written[1].split()[:4]
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK] * 4
    assert {r.prompt_tokens for r in run.records} == {40}


def test_a_text_that_comes_again_is_the_same_text(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    prompts = msgspec.structs.replace(BASE, count=5, tokens=12, cycle=2)
    fetch_texts(make_job(engine.url, prompts=prompts), texts)
    lines = texts.read_bytes().splitlines()
    assert lines[0] == lines[2] == lines[4] != lines[1] == lines[3]
