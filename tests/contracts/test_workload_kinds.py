"""Workloads that repeat a part of their prompts: their keys, their sizes, what they repeat."""

from __future__ import annotations

import pytest

from kvgate.contract import parse_contract
from kvgate.contract_tables import Workload
from kvgate.errors import UsageError
from kvgate.reuse import prompt_lengths, reuse_of, shared_parts

from .conftest import REHEARSAL

TEXT = REHEARSAL.read_text()
CHUNK = 256
PLACE = "[validity]"


def with_workload(lines: str) -> str:
    return TEXT.replace(
        PLACE, f"[workloads.tried]\nprompt_tokens = 2048\noutput_tokens = 64\n{lines}\n\n{PLACE}", 1
    )


@pytest.mark.parametrize("lines, said", [
    ('kind = "shared_prefix"\nhit_ratio = 0.5', "shared_prefix needs prefixes"),
    ('kind = "miss"\nhit_ratio = 0.5', "hit_ratio belongs to workloads of kind shared_prefix"),
    ('kind = "shared_prefix"\nhit_ratio = 0.02\nprefixes = 2', "shorter than a chunk"),
    ('kind = "shared_prefix"\nhit_ratio = 0.99\nprefixes = 2', "nothing of the prompt is left"),
    ('kind = "long_document"\ndocuments = 4\nquestion_tokens = 1900', "shorter than a chunk"),
    ('kind = "multi_turn"\nturns = 4\nuser_tokens = 64', "no whole conversations"),
    ('kind = "multi_turn"\nturns = 1\nuser_tokens = 64', "greater than or equal to 2"),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_one_line_in_their_place(lines: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_contract(with_workload(lines).encode(), name="c.toml")
    first = with_workload(lines).splitlines().index("[workloads.tried]") + 1
    told = str(caught.value)
    assert said in told and "\n" not in told
    assert any(f"c.toml:{line}:" in told for line in range(first, first + 7)), told


def test_conversations_are_not_for_warming_up() -> None:
    lines = 'kind = "multi_turn"\nturns = 3\nuser_tokens = 64'
    text = with_workload(lines).replace(
        "[gate3.pairs]\n", '[gate3.pairs]\nwarmup = [{ workload = "tried", levels = [8] }]\n', 1
    )
    with pytest.raises(UsageError, match="no conversation"):
        parse_contract(text.encode(), name="c.toml")


def made(**keys: object) -> Workload:
    return Workload.model_validate({"prompt_tokens": 2048, "output_tokens": 64, **keys})


def test_a_hit_ratio_is_whole_chunks_of_stored_beginnings() -> None:
    workload = made(kind="shared_prefix", hit_ratio=0.7, prefixes=6)
    shared = shared_parts(workload, CHUNK)
    assert shared is not None and (shared.prefix_tokens, shared.groups) == (6 * CHUNK, 6)
    planned = reuse_of(workload, 48, CHUNK)
    assert planned is not None
    assert (planned.repeated, planned.reused, planned.new) == (0.75, 0.75, 0.25)
    assert planned.stored == pytest.approx(6 * 0.75 / 48)
    assert planned.again == pytest.approx(42 * 0.75 / 48)


def test_a_document_repeats_whole_chunks_and_may_be_asked_once_alone() -> None:
    workload = made(kind="long_document", documents=100, question_tokens=300)
    planned = reuse_of(workload, 10, CHUNK)
    assert planned is not None
    assert planned.repeated == pytest.approx(1748 / 2048)
    assert planned.reused == planned.stored == pytest.approx(1536 / 2048)


def test_a_turn_repeats_the_prompt_before_it_with_its_answer() -> None:
    workload = made(kind="multi_turn", turns=3, user_tokens=300)
    assert prompt_lengths(workload, 12) == {2048: 4, 2412: 4, 2776: 4}
    planned = reuse_of(workload, 12, CHUNK)
    assert planned is not None and planned.stored == 0.0
    tokens = 2048 + 2412 + 2776
    assert planned.repeated == pytest.approx((2111 + 2475) / tokens)
    assert planned.reused == pytest.approx((2048 + 2304) / tokens)


def test_one_source_alone_repeats_nothing() -> None:
    for kind in ("cold_restore", "warm", "miss", "probe"):
        assert reuse_of(made(kind=kind), 12, CHUNK) is None
        assert prompt_lengths(made(kind=kind), 12) == {2048: 12}
