"""The row of a setup says all that a block is held against."""

from __future__ import annotations

from pathlib import Path

from kvgate.contract import load_contract
from kvgate.contract_tables import Distance, Text
from kvgate.report.setups import setup_rows
from kvgate.report.texts import texts

QUICK = load_contract(Path(__file__).parents[2] / "tests/outcomes/quick.toml")
WORDS = Text(en="made up", zh="虚构")


def test_a_distance_is_shown_with_the_limit_of_the_way_before_it() -> None:
    near = Distance(text=WORDS, delay_ms=0.0, within_ms=0.5, round_trip_ms_at_most=0.25)
    far = Distance(text=WORDS, delay_ms=10.0, within_ms=2.0)
    pairs = QUICK.gate(3).pairs
    assert pairs is not None
    cells = tuple(c.model_copy(update={"distance": ("local", "far")}) for c in pairs.cells)
    gate = QUICK.gate(3).model_copy(update={"pairs": pairs.model_copy(update={"cells": cells})})
    terms = QUICK.model_copy(update={"gate3": gate, "distance": {"local": near, "far": far}})
    shown = {row[0]: row[3] for row in setup_rows(terms, 3, texts("en"))}
    assert shown == {
        "local": "RTT +0.0 ±0.5 ms, RTT0 ≤ 0.25 ms", "far": "RTT +10.0 ±2.0 ms",
    }  # fmt: skip
