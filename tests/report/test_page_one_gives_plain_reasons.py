"""A reason on page 1 says what was measured, what it came to and what was wanted, in both
languages; what was spoiled beside a failure is no shortfall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.report.clauses import why_lines
from kvgate.report.ledger import ledger
from kvgate.report.texts import texts
from kvgate.verdict import Verdict

from . import example


@pytest.mark.parametrize("lang, said", [
    ("en", "Firmware: sim-0.9; the contract requires sim-1.0."),
    ("zh", "固件为 sim-0.9，合同要求 sim-1.0。"),
])  # fmt: skip
def test_a_missed_limit_names_what_was_measured(lang: str, said: str) -> None:
    lines = why_lines(example.gate1(failing=True), texts(lang))
    assert said in [line.sentence for line in lines]


@pytest.mark.parametrize("lang, said", [
    ("en", "Observation coverage: 83.3\u00a0% is outside the limit 99\u00a0%."),
    ("zh", "观测覆盖率：83.3\u00a0% 不符合限值 99\u00a0%。"),
])  # fmt: skip
def test_what_spoiled_the_measurement_is_named_too(lang: str, said: str) -> None:
    lines = why_lines(example.gate4(gap=True), texts(lang))
    assert said in [line.sentence for line in lines]


def test_a_value_that_keeps_its_limit_is_no_shortfall() -> None:
    source = example.gate3("fail")
    stop = source.verdict.stop
    assert stop is not None
    spoiled = replace(stop.shortfalls[0], verdict=Verdict.INVALID, by=0.0)
    verdict = replace(
        source.verdict, stop=replace(stop, shortfalls=(*stop.shortfalls, spoiled))
    )  # fmt: skip
    shown = ledger(replace(source, verdict=verdict), texts("en"))
    assert shown is not None
    assert len(shown.shortfalls) == len(stop.shortfalls)
