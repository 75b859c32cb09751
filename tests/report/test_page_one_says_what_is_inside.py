"""``kvgate verify REPORT.pdf`` reads page 1: what it looks for is there, and only what is true."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvgate.canonical import canonical_json
from kvgate.report.spoken import first_page_faults

from .conftest import CASES, Rendered

Render = Callable[[str, str], Rendered]
SHOWN = [
    ("pass", "zh"), ("fail", "en"), ("inconclusive", "en"), ("invalid", "zh"), ("campaign", "en"),
    ("engineering", "en"),
]  # fmt: skip


def inside(case: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Verdicts and manifest digests of a case, as plain values."""
    sources = CASES[case]()
    verdicts = [json.loads(canonical_json(s.verdict)) for s in sources]
    return verdicts, [s.manifest_sha256 or "unsealed" for s in sources]


@pytest.mark.parametrize(("case", "lang"), SHOWN)
def test_page_one_says_the_verdict_that_is_inside(rendered: Render, case: str, lang: str) -> None:
    verdicts, digests = inside(case)
    assert first_page_faults(rendered(case, lang).page(0), verdicts, digests, lang) == []


@pytest.mark.parametrize(("case", "lang"), SHOWN)
def test_another_verdict_is_not_what_page_one_says(rendered: Render, case: str, lang: str) -> None:
    page = rendered(case, lang).page(0)
    for other in {"pass", "fail", "inconclusive", "invalid"} - {case}:
        verdicts, digests = inside(other)
        assert first_page_faults(page, verdicts, digests, lang) != []


@pytest.mark.parametrize(
    "key", ["campaign", "as_of", "contract_digest", "verdict", "decision", "gate"]
)
def test_each_of_its_words_counts(rendered: Render, key: str) -> None:
    verdicts, digests = inside("fail")
    other: dict[str, Any] = {"verdict": "PASS", "decision": "HOLD", "as_of": "2020-01-01T00:00:00Z",
             "gate": 1}  # fmt: skip
    changed = {**verdicts[0], key: other.get(key, "another")}
    page = rendered("fail", "en").page(0)
    assert len(first_page_faults(page, [changed], digests, "en")) == 1
    assert first_page_faults(page, verdicts, ["0" * 64], "en") != []
