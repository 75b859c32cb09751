"""A contract that rewards the worse appliance, or that nobody can judge, is never signed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.contract import load_contract, read_contract
from kvgate.contract_gates import GateTerms
from kvgate.contract_rules import inconsistencies
from kvgate.criterion import LESS_IS_BETTER, METRICS
from kvgate.errors import UsageError

from .conftest import REHEARSAL
from .test_wrong_contracts import TEXT, changed, refused

PLAIN: dict[str, Any] = tomllib.loads(TEXT)
LIMIT: dict[str, Any] = {"id": "G3.20", "text": {"en": "a", "zh": "b"}}


def faults(number: int, change: Callable[[dict[str, Any]], None]) -> list[str]:
    """What is wrong with a gate of the rehearsal's contract after a change to its table."""
    contract = load_contract(REHEARSAL)
    table = tomllib.loads(TEXT)[f"gate{number}"]
    change(table)
    terms = GateTerms.model_validate(table, strict=False)
    found = inconsistencies({number: terms}, contract.arms, contract.workloads)
    return [f"{path}: {told}" for path, told in found]


def with_clause(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["clause"].append(LIMIT | keys)


def first_clause(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["clause"][0].update(keys)


def test_the_rehearsal_s_gates_keep_the_rules() -> None:
    for number in (1, 2, 3, 4):
        assert faults(number, lambda _table: None) == []


COMPARE = {"statistic": "p50", "compare": ["baseline", "appliance"], "workload": "cold_restore",
           "levels": [8], "indifference": 0.03, "design_effect": 0.4}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"metric": "ttft", "gain_at_least": 0.29}, "a gain of ttft is a loss"),
        ({"metric": "throughput", "statistic": "steady", "drop_at_least": 0.25}, "larger"),
        ({"metric": "throughput", "statistic": "steady", "rise_at_most": 0.25,
          "design_effect": None}, "larger"),
        ({"metric": "failed_requests", "statistic": "share", "rise_at_most": 0.25}, "statistic"),
        ({"metric": "ttft", "drop_at_least": 0.25, "compare": ["recompute", "appliance"]},
         "the gate's pairs compare baseline with appliance"),
        ({"metric": "ttft", "drop_at_least": 0.25, "compare": ["appliance", "baseline"]},
         "the gate's pairs compare baseline with appliance"),
        ({"metric": "ttft", "drop_at_least": 0.25, "levels": [8, 8]}, "level 8 stands twice"),
        ({"metric": "ttft", "drop_at_least": 0.25, "workload": "cold_restore", "levels": [3]},
         "in no cell"),
    ],
)  # fmt: skip
def test_a_comparison_rewards_only_the_better_of_the_arms_that_are_measured(
    keys: dict[str, Any], said: str
) -> None:
    told = faults(3, with_clause(**(COMPARE | keys)))
    assert told
    assert said in " ".join(told)


BLOCKS = {"arm": "appliance", "workload": "cold_restore", "levels": [8]}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"metric": "ttft", "unit": "s", "floor": 1.0, **BLOCKS}, "write ceiling"),
        ({"metric": "throughput", "unit": "tok/s", "ceiling": 1.0, **BLOCKS}, "write floor"),
        ({"metric": "memory", "unit": "B", "ceiling": 1.0, "hosts": "engines"}, "write floor"),
        ({"metric": "ttft", "unit": "s", "ceiling": 1.0, "levels": [8]}, "name arm, workload"),
        ({"metric": "ttft", "unit": "s", "ceiling": 1.0, **BLOCKS, "levels": [5]}, "no cell"),
        ({"metric": "ttft", "unit": "s", "ceiling": 1.0, **BLOCKS, "arm": "recompute"}, "no cell"),
        ({"metric": "memory", "unit": "B", "equals": "much", "hosts": "engines"}, "a number"),
        ({"metric": "device_serial", "unit": "text", "equals": 7.0, "hosts": "x"}, "is a text"),
        ({"metric": "device_serial", "unit": "text", "floor": 7.0, "hosts": "x"}, "is a text"),
        ({"metric": "wrong_answers", "unit": "1", "ceiling": 0.0}, "needs reference_arm"),
        ({"metric": "soak_duration", "unit": "s", "floor": 1.0}, "the gate has none"),
    ],
)  # fmt: skip
def test_a_limit_stands_on_the_right_side_of_something_measured(
    keys: dict[str, Any], said: str
) -> None:
    told = faults(3, with_clause(**keys))
    assert told
    assert said in " ".join(told)


def test_no_arm_is_compared_with_itself_to_prove_its_answers_or_its_errors() -> None:
    def answers(table: dict[str, Any]) -> None:
        own = next(c for c in table["clause"] if "logprob_tolerance" in c)
        own["reference_arm"] = own["arm"]

    def errors(table: dict[str, Any]) -> None:
        own = next(c for c in table["clause"] if "share_at_most" in c)
        own["compare"] = ["appliance", "appliance"]

    assert any("always equal to its own" in told for told in faults(3, answers))
    assert any("does not have itself" in told for told in faults(3, errors))


@pytest.mark.parametrize(
    ("compare", "test_store", "workload", "refused_"),
    [
        (["baseline", "appliance"], "baseline", "miss", True),
        (["baseline", "appliance"], "baseline", "shared_prefix", True),
        (["baseline", "appliance"], "baseline", "multi_turn", True),
        (["baseline", "appliance"], "baseline", "cold_restore", False),  # both read what is primed
        (["baseline", "appliance"], "appliance", "miss", False),
        (["appliance", "appliance"], "appliance", "miss", False),  # prompts of its own each time
        (["recompute", "appliance"], "none", "miss", False),  # no store, nothing to be found
    ],
)
def test_two_arms_of_one_store_are_not_compared_on_what_must_be_new_to_it(
    compare: list[str], test_store: str, workload: str, refused_: bool
) -> None:
    contract = load_contract(REHEARSAL)
    shared = contract.arms["appliance"].model_copy(update={"store": test_store})
    kinds = dict(contract.workloads)
    for kind in ("shared_prefix", "multi_turn"):
        kinds[kind] = kinds["miss"].model_copy(update={"kind": kind})
    table = tomllib.loads(TEXT)["gate3"]
    table["pairs"] |= {"compare": compare, "cells": [{"workload": workload, "levels": [1]}]}
    terms = GateTerms.model_validate(table, strict=False)
    told_of = inconsistencies({3: terms}, {**contract.arms, "appliance": shared}, kinds)
    # Clauses of the plan's other cells have their own faults here.
    found = [told for at, told in told_of if at == "gate3.pairs.compare"]
    if refused_:
        (told,) = found
        assert told.startswith("baseline and appliance share the store")
        assert workload in told and "\n" not in told
    else:
        assert found == []


@pytest.mark.parametrize("form", ["logprob_tolerance", "share_at_most"])
def test_answers_and_errors_are_judged_under_their_own_metric(form: str) -> None:
    def other(table: dict[str, Any]) -> None:
        next(c for c in table["clause"] if form in c)["metric"] = "ttft"

    assert any(".metric: " in told for told in faults(3, other))


@pytest.mark.parametrize(
    ("number", "path", "value", "said"),
    [
        (3, ("pairs", "compare"), ["baseline", "aplliance"], "unknown arm 'aplliance'"),
        (3, ("pairs", "reference_arm"), "recmpute", "unknown arm 'recmpute'"),
        (3, ("pairs", "cells"), [{"workload": "probe", "levels": [2, 2]}], "stands twice"),
        (3, ("pairs", "reference_cells"), [], "belong together"),
        (4, ("soak", "arm"), "aplliance", "unknown arm 'aplliance'"),
        (4, ("soak", "window_s"), 1e9, "longer than the soak"),
        (4, ("soak", "warmup_s"), 1e9, "as long as the soak"),
        (4, ("soak", "faults"), [{"kind": "store-restart", "at_s": 1e9}], "behind the soak"),
        (4, ("pairs",), PLAIN["gate3"]["pairs"], "not both"),
    ],
)
def test_a_plan_that_could_not_be_carried_out_is_refused(
    number: int, path: tuple[str, ...], value: object, said: str
) -> None:
    def change(table: dict[str, Any]) -> None:
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = value

    assert said in " ".join(faults(number, change))


def test_every_metric_that_is_less_when_better_is_known() -> None:
    assert set(METRICS) >= LESS_IS_BETTER


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("consumer = 0.05", "consumer = 0.95", "0.5"),
        ("pass_valid_days = ", "pass_valid_days = 9999", "36500"),
        ("weeks = 10", "weeks = " + "9" * 5000, "digits"),
        ("max_pairs = ", "max_pairs = 99999999", "1000"),
        ("vocab_low = 1000", "vocab_low = 30001", "vocab_low must lie below vocab_high"),
        ('currency = "CNY"', 'currency = "\\u001b[31mCNY"', "pattern"),
        ('currency = "CNY"', 'currency = ""', "at least 1 character"),
        # What the other party wrote must not be code in our play.
        (
            'store = "none"',
            "store = \"none\"\nengine_args = [\"{{ lookup('pipe', 'id') }}\"]",
            "holds a template",
        ),
    ],
)
def test_a_number_or_word_that_no_party_can_mean_is_refused(old: str, new: str, said: str) -> None:
    text, _ = changed(old, new)
    message = refused(text).message
    assert said in message
    # The hint for fractions belongs to fractions.
    assert ("write 0.25 for 25 %" in message) == (said == "0.5")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xef\xbb\xbf" + TEXT.encode(), "byte order mark"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (TEXT.encode() + b"\nx = " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
        (b"a." * 5000 + b"b = 1", "nested too deeply"),
    ],
)
def test_a_file_that_is_no_contract_names_itself(data: bytes, said: str) -> None:
    fault = refused(data)
    assert said in fault.message
    assert fault.where == "c.toml"
    assert fault.remedy


def test_only_a_regular_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    pipe, large, loop = tmp_path / "p.toml", tmp_path / "l.toml", tmp_path / "loop.toml"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    with large.open("wb") as stream:
        stream.truncate(5 << 20)
    for path in (pipe, large, loop, tmp_path, Path("/dev/zero"), tmp_path / "none", Path("a\0b")):
        with pytest.raises(UsageError) as caught:
            read_contract(path)
        assert caught.value.where == str(path)
        assert "--contract FILE" in caught.value.remedy
