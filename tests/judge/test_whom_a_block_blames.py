"""Whom a broken condition speaks about: instrument, environment or appliance; and what a client and
its table must agree about before anybody is blamed."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from kvgate.verdict import About

from .test_validity import (
    COUNT,
    FILL,
    GROWN,
    TOKENS,
    Block,
    broken,
    checked,
    edited,
    good,
    requests,
)


def speaks_of(block: Block, name: str) -> About:
    return next(c.about for c in checked(block) if c.name == name)


def missing_all(asked: float, stored: float, primed: float | None = TOKENS) -> Block:
    block = edited(*GROWN, "prompt_tokens_external", to=0)
    block["observation"]["targets"]["engine"]["increase"]["delta"]["prompt_tokens_computed"] = (
        TOKENS
    )
    store = block["observation"]["targets"]["store-appliance"]
    store["increase"]["delta"] |= {"lookup_tokens": asked, "bytes_read": 0}
    store["before"] = {"stored_tokens": stored, **FILL}
    block["moved"] = {"bytes": 0}
    block["primed_tokens"] = primed
    return block


def test_a_store_that_was_asked_for_what_it_acknowledged_is_at_fault() -> None:
    found = broken(missing_all(asked=TOKENS, stored=TOKENS))
    # Nothing but the source may be broken, or the appliance's fault would read as ours.
    assert list(found) == ["declared_source"]
    assert (found["declared_source"].about, found["declared_source"].ok) == (About.APPLIANCE, False)


@pytest.mark.parametrize("block", [
    missing_all(asked=0, stored=TOKENS),
    missing_all(asked=TOKENS, stored=0),
    missing_all(asked=TOKENS, stored=TOKENS, primed=None),
    missing_all(asked=TOKENS, stored=TOKENS, primed=0),
], ids=["never asked", "never acknowledged", "priming unknown", "nothing primed"])  # fmt: skip
def test_a_miss_whose_cause_cannot_be_told_is_not_held_against_the_store(block: Block) -> None:
    found = broken(block)
    assert set(found) - {"acknowledged"} == {"declared_source"}
    assert {c.about for c in found.values()} == {About.ENVIRONMENT}


def test_a_miss_of_the_reference_tier_is_never_the_appliances() -> None:
    block = missing_all(asked=TOKENS, stored=TOKENS)
    block["role"] = "reference"
    assert speaks_of(block, "declared_source") is About.ENVIRONMENT


def test_failed_requests_speak_of_the_appliance_only_in_its_own_arm() -> None:
    assert speaks_of(good(), "requests_finished") is About.APPLIANCE
    assert speaks_of(good() | {"role": "reference"}, "requests_finished") is About.ENVIRONMENT
    assert speaks_of(good() | {"kind": "miss"}, "requests_finished") is About.ENVIRONMENT


def test_requests_that_the_client_did_not_send_are_not_its_records() -> None:
    """Each of these would make a slow appliance fast; what the client says of its run is another
    witness."""
    stamps = [c for c in requests().columns if c.endswith("_ns") and c != "client_lag_ns"]

    def moved(by: Callable[[int], int]) -> pd.DataFrame:
        table = requests()
        for column in stamps:
            table[column] = table[column].map(
                lambda v: [by(t) for t in v] if isinstance(v, list) else by(v)
            )
        whole = [c for c in stamps if c != "token_ns"]
        return table.astype(dict.fromkeys(whole, "Int64"))

    begin = 1_000_000_000
    changed = {
        "of another block": requests().assign(request_id=[f"b4-{i}" for i in range(COUNT)]),
        "from the client's end": moved(lambda t: begin + (t - begin) // 2),
        "from the client's start": moved(lambda t: t + 10 * begin),
    }
    for said, table in changed.items():
        found = broken(good(), table)
        assert list(found) == ["records_of_client"]
        assert said in str(found["records_of_client"].value)
    for end in ("started_ns", "ended_ns"):
        assert broken(edited("client", end, to=...))["records_of_client"].ok is None
