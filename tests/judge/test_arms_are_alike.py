"""Two arms may differ in their store and in nothing else: or the gain is the software's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvgate.analyse.configuration import configuration
from kvgate.contract_tables import Strategy, Text
from kvgate.decide.alike import arms_differ
from kvgate.verdict import Verdict

from .builders import Truth, clause, configured, contract, history, judged


@pytest.mark.parametrize("other", [
    {"engine engine_version": "1.0+parallel-read"},
    {"engine packages.lmcache": "0.5"},
    {"engine model_digest": "ffff"},
    {"tuning engine_args": "--dtype=float32 --max-num-seqs=512"},
])  # fmt: skip
def test_another_build_or_flag_in_one_arm_lets_nothing_pass(other: Mapping[str, str]) -> None:
    both = {k: "same" for k in other if "engine_version" not in k and "engine_args" not in k}
    seen = configured(baseline=both, recompute=both, appliance=other)
    verdict = judged(replace(history(), configuration=seen))
    assert verdict.verdict is Verdict.INVALID
    assert clause(verdict, "G3.1").reason.code == "arms_differ"


def test_another_build_is_not_held_against_the_appliance() -> None:
    bad = history(Truth(drop=0.02, gain=0.02))
    assert clause(judged(bad), "G3.1").verdict is Verdict.FAIL
    seen = configured(appliance={"engine engine_version": "0.9"})
    assert clause(judged(replace(bad, configuration=seen)), "G3.1").verdict is Verdict.INVALID


@pytest.mark.parametrize("other", [
    {"engine connector": "LMCacheConnectorV1"},
    {"tuning store_args": "--l2"},
    {"tuning command_line": "vllm serve --kv-transfer-config {\"kv_role\": \"kv_both\"} --x=1"},
])  # fmt: skip
def test_the_store_and_its_connector_may_differ(other: Mapping[str, str]) -> None:
    plain = {"tuning command_line": "vllm serve --x=1"} if "tuning command_line" in other else {}
    seen = configured(baseline=plain, recompute=plain, appliance=other)
    assert judged(replace(history(), configuration=seen)).verdict is Verdict.PASS


def test_an_engine_whose_build_nobody_told_is_not_known_to_be_the_same() -> None:
    verdict = judged(replace(history(), configuration={}))
    assert verdict.verdict is Verdict.INVALID
    assert clause(verdict, "G3.1").reason.code == "engine_not_told"


@pytest.mark.parametrize("setup", ["", "/early", "/far"])
def test_an_engine_that_is_another_one_in_a_single_setup_is_found(setup: str) -> None:
    environment = {
        f"{arm}{of}": {"engine_version": "1.0", "engine_args": ["--a"]}
        for arm in ("baseline", "appliance")
        for of in ("", "/early", "/far")
    }
    arms = ("baseline", "appliance")
    assert arms_differ(contract(), arms, configuration({}, environment, ())) is None
    for other in ({"engine_version": "1.1"}, {"engine_args": ["--a", "--fast"]}):
        changed = {**environment, f"appliance{setup}": environment["appliance"] | other}
        found = arms_differ(contract(), arms, configuration({}, changed, ()))
        assert found is not None
        assert found.code == "arms_differ"


@pytest.mark.parametrize("flags, alike", [
    ({"appliance": ["--early"], "baseline": ["--early"]}, True),
    ({"appliance": ["--early"], "baseline": []}, False),
    ({"appliance": [], "baseline": ["--early"]}, False),
])  # fmt: skip
def test_a_flag_of_the_strategy_that_one_arm_lacks_is_found(
    flags: Mapping[str, list[str]], alike: bool
) -> None:
    words = Text(en="early", zh="先确认")
    early = Strategy(text=words, settings={"acknowledge": "early"}, engine_args=("--early",))
    terms = contract().model_copy(update={"strategy": {"early": early}})
    told = {"engine_version": "1.0", "engine_args": ["--a"]}
    environment = dict.fromkeys(("baseline", "appliance", "recompute"), told) | {
        f"{arm}/early": {**told, "engine_args": ["--a", *more]} for arm, more in flags.items()
    }
    seen = configuration({}, environment, ())
    found = arms_differ(terms, ("baseline", "appliance"), seen)
    assert (found is None) is alike
    # An arm that is measured in the plain setup alone lacks no flag of the other.
    assert arms_differ(terms, ("recompute", "appliance"), seen) is None
