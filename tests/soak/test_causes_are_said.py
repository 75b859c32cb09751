"""Whom a figure speaks about, and why it is missing, is said in both languages, figures and all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvgate.causes import CAUSES
from kvgate.reason import TEXTS, Param, Reason
from kvgate.report.said import reason_text
from kvgate.report.texts import texts

FIGURES: dict[str, Param] = {
    "count": 3, "n": 8, "needed": 12, "low": "7,200", "high": "10,800", "seconds": "600",
    "arm": "recompute", "group": "engines", "conditions": "declared_source, engine_cache_cold",
    "state": "block_deadline", "what": "MemTotal", "found": "-1", "tool": "nvme", "rc": 1,
    "said": "EACCES", "name": "store-appliance", "old": 41, "new": 42,
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(CAUSES))
def test_a_cause_keeps_its_figures_in_both_languages(code: str) -> None:
    assert TEXTS[code] == CAUSES[code]  # no reason has taken its name
    names = set(re.findall(r"{(\w+)}", CAUSES[code][0]))
    cause = Reason(code, {name: FIGURES[name] for name in names})
    for key, outer in (("because", "not_the_appliances"), ("detail", "no_value_because")):
        params: dict[str, Param] = {"value": "45 %", "threshold": "1 %", "metric": "soak_restarts",
                                    "where": "soak", key: cause}  # fmt: skip
        english = reason_text(Reason(outer, params), texts("en"))
        chinese = reason_text(Reason(outer, params), texts("zh"))
        assert CAUSES[code][0].split("{")[0].strip() in english
        for name in names & {"count", "n", "needed", "low", "high", "seconds", "old", "new", "rc"}:
            assert str(FIGURES[name]) in chinese
        spoken = (english + chinese).replace("kvgate_roce_interface", "")
        assert not re.search("[a-z]_[a-z]", spoken)
        assert not re.search("[a-z]{3,} [a-z]{3,}", chinese.replace("root", ""))


@pytest.mark.parametrize("plain", [
    None, "text", {}, {"code": "without_value"}, {"code": ["without_value"], "params": {}},
    {"code": "nothing_of_ours", "params": {}}, {"code": "few_canaries", "params": {"n": 1}},
    {"code": "few_canaries", "params": {"n": {"a": 1}, "needed": 2}},
])  # fmt: skip
def test_evidence_that_gives_no_reason_of_ours_gives_none(plain: Any) -> None:
    assert Reason.of(plain) is None


def test_evidence_gives_a_reason_with_its_figures() -> None:
    told = Reason.of({"code": "few_canaries", "params": {"n": 3, "needed": 12}})
    assert told is not None
    assert told.text("zh") == "哨兵回答 3 个，至少需要 12 个"


def test_a_verdict_from_before_causes_had_figures_is_still_said() -> None:
    params: dict[str, Param] = {"value": "3", "threshold": "1", "because": "an older sentence"}
    assert "an older sentence" in reason_text(Reason("not_the_appliances", params), texts("zh"))
