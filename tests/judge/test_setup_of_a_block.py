"""The setup of a block against the contract's words: what is not told is never as planned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from kvgate.analyse.checks import coverage_of
from kvgate.analyse.counters import ENGINE, grown, restarts, seen_after
from kvgate.analyse.setup import setup_conditions
from kvgate.contract_tables import Distance, Parallelism, Strategy, Text

from .builders import contract

WORDS = Text(en="made up", zh="虚构")
AXES: dict[str, Any] = {
    "parallelism": {"tp4x2": Parallelism(text=WORDS, instances=2, tensor_parallel=4)},
    "strategy": {"early": Strategy(text=WORDS, settings={"acknowledge": "write_back"})},
    "distance": {"far": Distance(text=WORDS, delay_ms=10.0, within_ms=2.0)},
}
TOLD: dict[str, Any] = {
    "engines": [{"tensor_parallel": 4}, {"tensor_parallel": 4}],
    "strategy": {"acknowledge": "write_back"},
    "round_trip_plain_ms": 0.2,
    "round_trip_ms": 10.4,
}


def view(tokens: float) -> dict[str, Any]:
    return {"before": {}, "after": {},
            "increase": {"delta": {"prompt_tokens": tokens}, "restarts": 0}}  # fmt: skip


def block(told: Any = TOLD, **changed: Any) -> dict[str, Any]:
    cell = {"workload": "cold_restore", "level": 8, "parallelism": "tp4x2",
            "strategy": "early", "distance": "far"}  # fmt: skip
    targets = {"engine": view(50.0), "engine-2": view(50.0)}
    given: dict[str, Any] = {
        "arm": "appliance", "cell": cell, "engines": 2, "setup": told,
        "observation": {"targets": targets,
                        "coverage": {"engine": 1.0, "engine-2": 0.5, "host": 1.0}},
    }  # fmt: skip
    return given | changed


def judged(found: Mapping[str, Any], **axes: Any) -> dict[str, bool | None]:
    terms = contract().model_copy(update=AXES | axes)
    return {c.name: c.ok for c in setup_conditions(terms, found)}


def test_what_was_told_as_planned_is_as_planned() -> None:
    assert judged(block()) == {"setup_as_planned": True, "engines_share_load": True}


@pytest.mark.parametrize("changed", [
    {"engines": [{"tensor_parallel": 4}]},
    {"engines": [{"tensor_parallel": 4}, {"tensor_parallel": 8}]},
    {"strategy": {"acknowledge": "write_through"}},
    {"round_trip_ms": 0.3},
    {"round_trip_ms": 20.0},
])  # fmt: skip
def test_one_thing_that_is_otherwise_breaks_the_block(changed: dict[str, Any]) -> None:
    assert judged(block({**TOLD, **changed})) == {
        "setup_as_planned": False, "engines_share_load": True,
    }  # fmt: skip


@pytest.mark.parametrize("gone", ["engines", "strategy", "round_trip_plain_ms", "round_trip_ms"])
def test_what_nobody_told_is_not_as_planned(gone: str) -> None:
    told = {key: said for key, said in TOLD.items() if key != gone}
    assert judged(block(told))["setup_as_planned"] is None
    assert judged(block({**TOLD, gone: math.nan}))["setup_as_planned"] is None


def test_a_setting_that_is_told_as_json_s_true_is_the_contract_s_true() -> None:
    terms = {"early": Strategy(text=WORDS, settings={"sync": "true"})}
    for said, ok in ((True, True), ("true", True), (False, False), (1, False)):
        told = {**TOLD, "strategy": {"sync": said}}
        assert judged(block(told), strategy=terms)["setup_as_planned"] is ok


@pytest.mark.parametrize("told", [None, {}, [], "tp4x2"])
def test_an_arm_that_tells_nothing_is_not_as_planned(told: Any) -> None:
    assert judged(block(told))["setup_as_planned"] is None


def test_a_size_that_one_engine_does_not_tell_is_unknown() -> None:
    told = {**TOLD, "engines": [{"tensor_parallel": 4}, {}]}
    assert judged(block(told))["setup_as_planned"] is None


def test_a_load_that_went_to_fewer_engines_is_not_as_planned() -> None:
    found = judged(block(engines=1))
    assert found["setup_as_planned"] is False
    assert found["engines_share_load"] is None


def test_an_arm_without_a_store_has_neither_strategy_nor_distance() -> None:
    told = {"engines": TOLD["engines"]}
    assert judged(block(told, arm="recompute"))["setup_as_planned"] is True


def test_names_that_the_contract_does_not_define_are_not_looked_at() -> None:
    assert judged(block(None), parallelism={}, strategy={}, distance={}) == {}


@pytest.mark.parametrize("second, ok", [(50.0, True), (40.0, False), (0.0, False)])
def test_engines_share_the_load_evenly(second: float, ok: bool) -> None:
    found = block()
    found["observation"]["targets"]["engine-2"] = view(second)
    assert judged(found)["engines_share_load"] is ok


def test_engines_are_counted_together_and_a_missing_one_is_missing_never_zero() -> None:
    found = block()
    assert grown(found, ENGINE, "prompt_tokens") == 100.0
    assert restarts(found, ENGINE) == 0
    assert coverage_of(found) == 0.5
    del found["observation"]["targets"]["engine-2"]
    del found["observation"]["coverage"]["engine-2"]
    assert grown(found, ENGINE, "prompt_tokens") is None
    assert restarts(found, ENGINE) is None
    assert coverage_of(found) is None
    assert not seen_after(found, ENGINE)
    assert judged(found)["engines_share_load"] is None


@pytest.mark.parametrize("engines", [0, -1, True, 2.0, "2", 10**9])
def test_a_number_of_engines_that_is_none_is_no_evidence(engines: Any) -> None:
    with pytest.raises(ValueError, match="engines"):
        grown(block(engines=engines), ENGINE, "prompt_tokens")
