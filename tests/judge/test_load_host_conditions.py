"""The load host: tried against the truth, and looked at where the contract has a limit."""

from __future__ import annotations

import pytest

from kvgate.analyse.block import block_statistics
from kvgate.analyse.validity import conditions
from kvgate.verdict import About, Condition

from .builders import contract
from .test_validity import LEVEL, Block, broken, checked, good, requests


@pytest.mark.parametrize("figure, value", [
    ("ttft_error_p99_ms", 5000.0), ("first_token_lag_p99_ms", 5000.0), ("held", 1.0),
    ("cpu_share", 1.0), ("failed", 1),
])  # fmt: skip
def test_a_level_that_the_client_cannot_hold_breaks_its_condition_alone(
    figure: str, value: float
) -> None:
    block = good()
    block["calibration"]["attempts"][0][figure] = value
    found = broken(block)
    assert list(found) == ["client_holds_level"]
    assert found["client_holds_level"].ok is False
    assert found["client_holds_level"].about is About.INSTRUMENT
    block["calibration"]["attempts"][0][figure] = None
    assert broken(block)["client_holds_level"].ok is None


def test_the_last_attempt_counts_and_another_level_says_nothing() -> None:
    block = good()
    kept = block["calibration"]["attempts"][0]
    block["calibration"]["attempts"].insert(0, kept | {"cpu_share": 1.0})
    assert broken(block) == {}
    block["calibration"]["attempts"][-1] = kept | {"level": LEVEL + 1}
    assert broken(block)["client_holds_level"].ok is None


@pytest.mark.parametrize("key, name, part, figure, beyond", [
    ("throttled_share_at_most", "no_throttling", "throttling", "share", 0.2),
    ("fabric_errors_at_most", "fabric_clean", "fabric", "errors", 1),
    ("fabric_pauses_at_most", "fabric_unpaused", "fabric", "pauses", 1),
])  # fmt: skip
def test_the_load_host_is_looked_at_only_where_the_contract_has_a_limit(
    key: str, name: str, part: str, figure: str, beyond: float
) -> None:
    validity = contract().validity.model_copy(update={key: 0})
    terms = contract().model_copy(update={"validity": validity})
    frame = requests()
    statistics = block_statistics(frame, LEVEL)

    def found(block: Block) -> dict[str, Condition]:
        said = conditions(terms, block, frame, statistics)
        return {c.name: c for c in said if c.ok is not True}

    assert name not in {c.name for c in checked(good())}
    assert found(good() | {"host": {part: {figure: 0}}}) == {}
    broke = found(good() | {"host": {part: {figure: beyond}}})
    assert list(broke) == [name] and broke[name].ok is False
    for absent in ({}, {"host": {part: {figure: None}}}):
        assert found(good() | absent)[name].ok is None


@pytest.mark.parametrize("here, engine, sender, found", [
    (None, 0, None, 0),  # this machine only sends requests: it need not have a port
    (3, 0, None, 3),
    (0, None, 0, None),  # an engine host that cannot tell is not known to be clean
    (0, 2, 1, 2),
])  # fmt: skip
def test_engine_hosts_elsewhere_must_tell_and_the_worst_host_counts(
    here: int | None, engine: int | None, sender: int | None, found: int | None
) -> None:
    validity = contract().validity.model_copy(update={"fabric_errors_at_most": 0})
    terms = contract().model_copy(update={"validity": validity})
    frame = requests()

    def entry(group: str, errors: int | None) -> dict[str, object]:
        return {"group": group, "fault": None, "coverage": 1.0, "fabric": {"errors": errors}}

    block = good() | {
        "host": {"fabric": {"errors": here}},
        "hosts": {"e": entry("engines", engine), "c": entry("load_clients", sender)},
    }
    said = conditions(terms, block, frame, block_statistics(frame, LEVEL))
    (clean,) = (c for c in said if c.name == "fabric_clean")
    assert clean.value == found
    assert clean.ok is (None if found is None else found == 0)


@pytest.mark.parametrize("group, found", [
    ({"group": "engines"}, None),  # it serves too: silence is not a clean port
    ({"group": "load_clients"}, 0),
    ({"group": None}, 0),
    ({}, 0),  # a block from before this was said
])  # fmt: skip
def test_this_machine_must_tell_too_where_it_is_one_of_several_engine_hosts(
    group: dict[str, object], found: int | None
) -> None:
    validity = contract().validity.model_copy(update={"fabric_errors_at_most": 0})
    terms = contract().model_copy(update={"validity": validity})
    frame = requests()
    there = {"group": "engines", "fault": None, "coverage": 1.0, "fabric": {"errors": 0}}
    block = good() | {"host": {"fabric": {"errors": None}, **group}, "hosts": {"e": there}}
    said = conditions(terms, block, frame, block_statistics(frame, LEVEL))
    (clean,) = (c for c in said if c.name == "fabric_clean")
    assert clean.value == found


@pytest.mark.parametrize("told, ok", [(8, True), (9, True), (7, None), (0, None), (None, None)])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_throttling_of_accelerators_that_no_tool_told_of_is_not_known(
    told: int | None, ok: bool | None, elsewhere: bool
) -> None:
    """Processors that were not slowed down say nothing of accelerators that nobody read."""
    limits = {"throttled_share_at_most": 0, "accelerators_per_engine_host_at_least": 8}
    validity = contract().validity.model_copy(update=limits)
    terms = contract().model_copy(update={"validity": validity})
    frame = requests()
    here = {"throttling": {"share": 0.0, "accelerators": 8, "accelerators_told": told}}
    block = good() | {"host": here}
    if elsewhere:
        entry = {"group": "engines", "fault": None, "coverage": 1.0, **here}
        sender = {"group": "load_clients", "fault": None, "coverage": 1.0}
        block |= {"host": {}, "hosts": {"e": entry, "c": sender}}
    said = conditions(terms, block, frame, block_statistics(frame, LEVEL))
    found = {c.name: c for c in said if c.name == "no_throttling" or c.ok is not True}
    assert list(found) == ["no_throttling"]
    assert (found["no_throttling"].ok, found["no_throttling"].about) == (ok, About.ENVIRONMENT)
    assert "tells of all its accelerators" in found["no_throttling"].remedy


@pytest.mark.parametrize("entry, ok", [
    ({"coverage": 1.0, "fault": None}, True),
    ({"coverage": 0.5, "fault": None}, False),
    ({"coverage": None, "fault": None}, None),
    ({"coverage": 1.0, "fault": "the connection ended"}, None),
])  # fmt: skip
def test_telemetry_of_a_host_elsewhere_counts_as_coverage(
    entry: dict[str, object], ok: bool | None
) -> None:
    found = broken(good() | {"hosts": {"e": {"group": "engines", **entry}}})
    assert {name: c.ok for name, c in found.items()} == ({} if ok else {"telemetry_coverage": ok})
