"""What stands beside a verdict for the reader and never changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvgate.analyse.counters import energy_j
from kvgate.analyse.results import Analysis, BlockResult
from kvgate.contract import Contract
from kvgate.decide import judge
from kvgate.observe.adapters import adapter_for
from kvgate.observe.counters import MeterCounters
from kvgate.observe.exposition import parse
from kvgate.reason import Reason

from .builders import changed, contract, facts, history, paired


def told(analysis: Analysis, code: str, terms: Contract | None = None) -> list[Reason]:
    verdict = judge(terms or contract(), analysis, facts())
    return [f for f in verdict.findings if f.code == code]


def test_the_price_of_a_million_tokens_follows_from_throughput_and_the_hour() -> None:
    found = told(history(), "token_cost")
    assert [f.params["where"] for f in found] == [
        "cold_restore@8", "cold_restore@16", "cold_restore@32",
    ]  # fmt: skip
    hour = contract().costs.platform_hour
    assert float(str(found[0].params["reference"]).replace(",", "")) == pytest.approx(
        hour / (40 * 3600) * 1e6, rel=0.01
    )
    assert float(str(found[0].params["value"]).replace(",", "")) == pytest.approx(
        hour / (40 * 1.37 * 3600) * 1e6, rel=0.02
    )


def test_a_contract_without_a_price_says_none() -> None:
    costs = contract().costs.model_copy(update={"platform_hour": 0.0})
    assert told(history(), "token_cost", contract().model_copy(update={"costs": costs})) == []


def metered(block: BlockResult) -> BlockResult:
    joules = 600.0 if block.role == "test" else 900.0
    stats = replace(block.statistics, output_tokens=300)
    return replace(block, counters={**block.counters, "energy_j": joules}, statistics=stats)


def test_energy_of_a_token_is_told_where_every_block_was_metered() -> None:
    assert told(history(), "token_energy") == []
    found = told(changed(history(), paired, metered), "token_energy")
    assert [(f.params["reference"], f.params["value"]) for f in found] == [("3.00", "2.00")] * 3
    gap = changed(history(), lambda b: paired(b) and b.pair != 1, metered)
    assert told(gap, "token_energy") == []


def test_information_changes_no_verdict() -> None:
    plain = judge(contract(), history(), facts())
    with_meters = judge(contract(), changed(history(), paired, metered), facts())
    assert [c.verdict for c in plain.clauses] == [c.verdict for c in with_meters.clauses]
    assert plain.decision == with_meters.decision


def block(**meters: float | None) -> dict[str, object]:
    targets = {
        f"meter-{name}": {
            "before": {}, "after": {},
            "increase": {"restarts": 0, "delta": {"energy_j": joules}},
        }
        for name, joules in meters.items()
    }  # fmt: skip
    return {"observation": {"targets": targets}}


def test_meters_are_summed_and_one_that_is_silent_makes_no_sum() -> None:
    assert energy_j(block(rack=100.0, store=50.0)) == 150.0
    assert energy_j(block(rack=100.0, store=None)) is None
    assert energy_j(block(rack=0.0)) is None
    assert energy_j(block()) is None


@pytest.mark.parametrize("page, joules", [
    ('node_rapl_package_joules_total{i="0"} 5\nnode_rapl_package_joules_total{i="1"} 7\n', 12.0),
    ("kvgate_energy_joules_total 3.5\nnode_rapl_package_joules_total 9\n", 3.5),
    ('node_hwmon_energy_joule_total{chip="x"} 2\n', 2.0),
    ("node_load1 1\n", None),
])  # fmt: skip
def test_a_meters_page_is_read_in_joules(page: str, joules: float | None) -> None:
    found = adapter_for("meter").read(parse(page))
    assert isinstance(found, MeterCounters)
    assert found.energy_j == joules
