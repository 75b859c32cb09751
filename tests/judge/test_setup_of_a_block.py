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


def on_the_host(arm: str) -> Any:
    arms = contract().arms
    return {**arms, arm: arms[arm].model_copy(update={"store_is_local": True})}


@pytest.mark.parametrize("gained, local, away", [(0.0, True, False), (10.2, False, True)])
def test_the_way_to_a_store_on_the_engine_host_gains_nothing(
    gained: float, local: bool, away: bool
) -> None:
    told = {**TOLD, "round_trip_ms": 0.2 + gained}
    for arm, ok in (("baseline", local), ("appliance", away)):
        found = judged(block(told, arm=arm), arms=on_the_host("baseline"))
        assert found["setup_as_planned"] is ok


def test_a_store_on_the_engine_host_of_which_nobody_tells_is_not_as_planned() -> None:
    told = {key: said for key, said in TOLD.items() if key != "round_trip_ms"}
    found = judged(block(told, arm="baseline"), arms=on_the_host("baseline"))
    assert found["setup_as_planned"] is None


@pytest.mark.parametrize("distance", ["local", "far"])
def test_a_way_that_was_long_before_is_not_as_planned(distance: str) -> None:
    """50 ms before and after gain nothing; what is left over from another delay is seen too."""
    near = Distance(text=WORDS, delay_ms=0.0, within_ms=2.0, round_trip_ms_at_most=1.0)
    axes = {"distance": {**AXES["distance"], "local": near}}
    cell = {**block()["cell"], "distance": distance}
    gain = 10.0 if distance == "far" else 0.0
    for plain, ok in ((0.2, True), (10.0, False), (50.0, False), (math.nan, None)):
        told = {**TOLD, "round_trip_plain_ms": plain, "round_trip_ms": plain + gain}
        assert judged(block(told, cell=cell), **axes)["setup_as_planned"] is ok
    # A distance may have a limit of its own.
    own = AXES["distance"]["far"].model_copy(update={"round_trip_ms_at_most": 60.0})
    told = {**TOLD, "round_trip_plain_ms": 50.0, "round_trip_ms": 60.0}
    found = judged(block(told), distance={"local": near, "far": own})
    assert found["setup_as_planned"] is True


@pytest.mark.parametrize("engines, ok", [(1, True), (2, False), (None, None)])
def test_beside_other_parallelisms_a_plain_cell_is_one_engine(
    engines: int | None, ok: bool | None
) -> None:
    cell = {**block()["cell"], "parallelism": "default"}
    targets = {"engine": view(50.0)} if engines != 2 else {"engine": view(9.0), "engine-2": view(9)}
    told = {**TOLD, "engines": engines and [{"tensor_parallel": 8}] * engines}
    found = block(told, cell=cell, engines=engines or 1)
    found["observation"] = {"targets": targets}
    assert judged(found) == {"setup_as_planned": ok}
    # Two engines that the role started and of which the load met one.
    if engines == 2:
        assert judged(found | {"engines": 1}) == {"setup_as_planned": False}


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
