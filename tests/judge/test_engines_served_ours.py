"""Whether the engines' counters and our clients' records tell of the same requests."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from kvgate.analyse.counted import engine_served_ours
from kvgate.record import Outcome
from kvgate.verdict import About, Condition

from .builders import contract
from .test_validity import (
    COUNT,
    GROWN,
    OUTPUT,
    PROMPT,
    TOKENS,
    Block,
    broken,
    edited,
    good,
    requests,
)

WITHIN = contract().validity.engine_count_within
NAME = "engine_served_ours"


def counted(prompts: float, answers: float, **block: Any) -> Block:
    """The good block with all counters of tokens of the prompts in proportion."""
    changed = good() | block
    factor = prompts / TOKENS
    for view in changed["observation"]["targets"].values():
        delta = view["increase"]["delta"]
        delta |= {name: value * factor for name, value in delta.items()}
    changed["moved"] = {"bytes": changed["moved"]["bytes"] * factor}
    changed["observation"]["targets"]["engine"]["increase"]["delta"]["generation_tokens"] = answers
    return changed


def told(block: Block, table: pd.DataFrame | None = None) -> Condition:
    return engine_served_ours(contract(), block, requests() if table is None else table)


@pytest.mark.parametrize("prompts, answers", [
    (3 * TOKENS, 3 * COUNT * OUTPUT),
    (TOKENS * (1 + 2 * WITHIN), COUNT * OUTPUT),
    (TOKENS, COUNT * OUTPUT * (1 + 2 * WITHIN)),  # hardly a prompt, but answers for hours
])  # fmt: skip
def test_a_strangers_tokens_break_the_condition_alone(prompts: float, answers: float) -> None:
    found = broken(counted(prompts, answers, duration_s=1e3))
    assert list(found) == [NAME]
    assert (found[NAME].ok, found[NAME].about) == (False, About.ENVIRONMENT)


@pytest.mark.parametrize("prompts, answers", [
    (TOKENS / 2, COUNT * OUTPUT / 2),
    (TOKENS * (1 - 2 * WITHIN), COUNT * OUTPUT),
    (TOKENS, COUNT * (OUTPUT - 3)),
])  # fmt: skip
def test_records_that_claim_more_than_was_served_are_the_instruments(
    prompts: float, answers: float
) -> None:
    found = broken(counted(prompts, answers))
    assert list(found) == [NAME]
    assert (found[NAME].ok, found[NAME].about) == (False, About.INSTRUMENT)


def test_an_engine_that_was_restarted_counts_anew_and_accuses_nobody() -> None:
    block = counted(TOKENS / 2, COUNT * OUTPUT / 2)
    block["observation"]["targets"]["engine"]["increase"]["restarts"] = 1
    assert broken(block)[NAME].about is About.ENVIRONMENT


@pytest.mark.parametrize("counter", ["prompt_tokens", "generation_tokens"])
@pytest.mark.parametrize("absent", [None, ..., float("nan")], ids=str)
def test_a_counter_that_is_missing_is_not_zero(counter: str, absent: Any) -> None:
    found = broken(edited(*GROWN, counter, to=absent))[NAME]
    assert (found.ok, found.value) == (None, None)


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_a_good_request_that_told_no_count_can_be_compared_with_nothing(column: str) -> None:
    frame = requests()
    frame.loc[0, column] = None
    assert told(good(), frame).ok is None
    assert told(good(), requests().iloc[:0]).ok is None


@pytest.mark.parametrize("served", [True, False])
def test_a_request_that_failed_was_served_or_was_not(served: bool) -> None:
    """Whether an engine had begun with it is not known: both are what we sent."""
    frame = requests()
    frame.loc[0, "outcome"] = Outcome.RESET.value
    frame.loc[0, ["prompt_tokens", "output_tokens"]] = None
    count = COUNT if served else COUNT - 1
    assert told(counted(count * PROMPT, count * OUTPUT), frame).ok is True
    assert told(counted((COUNT + 1) * PROMPT, COUNT * OUTPUT), frame).ok is False
    assert told(counted((COUNT - 2) * PROMPT, (COUNT - 2) * OUTPUT), frame).ok is False


def test_a_request_without_a_record_may_have_been_sent_too() -> None:
    fewer = requests().iloc[:-1]
    for count in (COUNT - 1, COUNT):
        assert told(counted(count * PROMPT, count * OUTPUT), fewer).ok is True
    assert told(counted((COUNT + 1) * PROMPT, COUNT * OUTPUT), fewer).ok is False


def test_the_last_step_of_each_answer_may_be_counted_late_and_the_slack_is_the_contracts() -> None:
    assert told(counted(TOKENS, COUNT * (OUTPUT - 1))).ok is True
    assert told(counted(TOKENS * (1 + WITHIN / 2), COUNT * OUTPUT)).ok is True
    validity = contract().validity.model_copy(update={"engine_count_within": 0.0})
    strict = contract().model_copy(update={"validity": validity})
    block = counted(TOKENS * (1 + WITHIN / 2), COUNT * OUTPUT)
    assert engine_served_ours(strict, block, requests()).ok is False


def test_several_engines_serve_together_and_one_that_is_seen_twice_counts_twice() -> None:
    block = counted(TOKENS / 2, COUNT * OUTPUT / 2, engines=2)
    targets = block["observation"]["targets"]
    targets["engine-2"] = targets["engine"]
    assert told(block).ok is True
    twice = counted(TOKENS, COUNT * OUTPUT, engines=2)
    twice["observation"]["targets"]["engine-2"] = twice["observation"]["targets"]["engine"]
    assert (told(twice).ok, told(twice).about) == (False, About.ENVIRONMENT)
    del twice["observation"]["targets"]["engine-2"]
    assert told(twice).ok is None
