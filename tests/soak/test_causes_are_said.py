"""Whom a figure of a long run speaks about is said in both languages."""

from __future__ import annotations

import re

import pytest

from kvgate.reason import Reason
from kvgate.report.said import reason_text
from kvgate.report.texts import texts


@pytest.mark.parametrize(
    "words", [v for k, v in texts("en").sentences.items() if k[:8] == "because."]
)
def test_a_cause_is_said_in_chinese(words: str) -> None:
    params = {"value": "45 %", "threshold": "1 %", "because": words}
    said = reason_text(Reason("not_the_appliances", params), texts("zh"))
    assert words not in said
    assert words in reason_text(Reason("not_the_appliances", params), texts("en"))


def test_the_conditions_that_a_run_broke_are_named() -> None:
    params = {"value": "3", "threshold": "1", "because": "declared_source, engine_cache_cold"}
    said = reason_text(Reason("not_the_appliances", params), texts("zh"))
    assert not re.search("[a-z]_[a-z]", said)
