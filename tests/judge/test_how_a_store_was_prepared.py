"""What a store had acknowledged and how full it was before a block, on made evidence."""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.analyse.block import block_statistics
from kvgate.analyse.validity import conditions
from kvgate.contract import Contract
from kvgate.verdict import About

from .builders import contract
from .test_validity import FILL, LEVEL, TOKENS, broken, checked, edited, good, requests


@pytest.mark.parametrize("to, ok", [(0, False), (TOKENS * 2, False), (None, None), (..., None)])
def test_a_store_that_never_said_that_it_holds_the_prompts_was_not_primed(
    to: Any, ok: bool | None
) -> None:
    found = broken(edited("primed_tokens", to=to))
    assert {n: (c.ok, c.about) for n, c in found.items()} == {
        "acknowledged": (ok, About.ENVIRONMENT)
    }
    assert "acknowledged" not in {c.name for c in checked(good() | {"kind": "miss"})}


@pytest.mark.parametrize("by, then, now, ok", [
    ("used_bytes", 1000, 2000, True), ("used_bytes", 2000, 2000, False), (None, 1000, 2000, False),
    ("used_bytes", None, 2000, False), ("used_bytes", 1000, None, False),
])  # fmt: skip
def test_a_store_that_began_anew_takes_back_nothing_of_what_it_said_when_it_was_primed(
    by: str | None, then: int | None, now: int | None, ok: bool
) -> None:
    """As a store inside an engine does: its page tells what that process took, not what lies
    behind it."""
    block = good() | {"primed_by": by, "primed_started_ms": then}
    store = block["observation"]["targets"]["store-appliance"]
    store["before"] = {"stored_tokens": 5, "process_start_time_ms": now, **FILL}
    assert ("acknowledged" not in broken(block)) is ok
    # For what it then does not give it is not blamed: who lost it cannot be told.
    block["observation"]["targets"]["engine"]["increase"]["delta"] |= {
        "prompt_tokens_external": 0, "prompt_tokens_computed": TOKENS,
    }  # fmt: skip
    store["increase"]["delta"] |= {"bytes_read": 0}
    block["moved"] = {"bytes": 0}
    assert broken(block)["declared_source"].about is About.ENVIRONMENT


def filled(least: float | None, most: float | None, capacity: int | None = None) -> Contract:
    terms = contract()
    limits = {"fill_share_at_least": least, "fill_share_at_most": most}
    arms = {n: a.model_copy(update={"capacity_bytes": capacity}) for n, a in terms.arms.items()}
    validity = terms.validity.model_copy(update=limits)
    return terms.model_copy(update={"validity": validity, "arms": arms})


def fill(terms: Contract, **store: float | None) -> tuple[bool | None, Any, Any]:
    block, frame = good(), requests()
    block["observation"]["targets"]["store-appliance"]["before"] = {
        "stored_tokens": TOKENS, "errors": 0, **store,
    }  # fmt: skip
    found = [
        c for c in conditions(terms, block, frame, block_statistics(frame, LEVEL))
        if c.name == "fill_level"
    ]  # fmt: skip
    assert all(c.about is About.ENVIRONMENT and c.remedy for c in found)
    return (found[0].ok, found[0].value, found[0].limit) if found else (True, "not planned", None)


@pytest.mark.parametrize("used, capacity, expected", [
    (500, 1000, (True, 0.5, 0.8)), (900, 1000, (False, 0.9, 0.8)), (100, 1000, (False, 0.1, 0.2)),
    (None, 1000, (None, None, 0.8)), (500, None, (None, None, 0.8)), (0, 0, (None, None, 0.8)),
])  # fmt: skip
def test_a_store_is_as_full_as_the_contract_plans(
    used: int | None, capacity: int | None, expected: tuple[bool | None, Any, Any]
) -> None:
    assert fill(filled(0.2, 0.8), used_bytes=used, capacity_bytes=capacity) == expected
    assert fill(filled(None, None), used_bytes=used, capacity_bytes=capacity)[0] is True


def test_the_contract_tells_a_capacity_that_the_store_does_not() -> None:
    assert fill(filled(None, 0.8, 1000), used_bytes=900) == (False, 0.9, 0.8)
    assert fill(filled(0.2, None, 1000), used_bytes=100) == (False, 0.1, 0.2)
    assert fill(filled(0.2, None, 100), used_bytes=100, capacity_bytes=1000)[1] == 0.1
