"""The picture of the decision rule: what lies beyond it is pointed at, never cut off."""

from __future__ import annotations

import re

import pytest

from kvgate.analyse.characteristic import Characteristic
from kvgate.numbers import percent
from kvgate.reason import Reason
from kvgate.report.operating_chart import Fallen, characteristic_chart
from kvgate.report.palette import VERDICT
from kvgate.report.texts import texts
from kvgate.verdict import Figure, Verdict

STOPPED = Characteristic(100, 0.0, 1.0, 0.0, 4.0, None, 4.0, None)
PASSED = Characteristic(100, 1.0, 0.0, 0.0, 4.0, 4.0, None, None)
EVERY = [(0.20, STOPPED), (0.30, PASSED)]
COLOUR = VERDICT[Verdict.PASS]


def tips(low: float, value: float, high: float) -> int:
    """Filled shapes of three corners in the colour of the lane: arrows."""
    figure = Figure("c@8", value, "1", ">=", 0.25, Verdict.PASS, Reason("met"), 4, low, high)
    lanes = [Fallen("8", figure)]
    drawn = str(
        characteristic_chart(EVERY, [("threshold", 0.25)], lanes, percent, "t", texts("en"))
    )
    return len(re.findall(rf'd="M[^"L]*L[^"L]*L[^"L]*Z" fill="{COLOUR}"', drawn))


@pytest.mark.parametrize("low, value, high, arrows", [
    (0.22, 0.25, 0.28, 0), (0.22, 0.25, 0.40, 1), (0.10, 0.25, 0.28, 1), (0.10, 0.25, 0.40, 2),
    (0.22, 0.35, 0.40, 1), (0.05, 0.10, 0.15, 1),
])  # fmt: skip
def test_what_lies_beyond_the_picture_has_an_arrow(
    low: float, value: float, high: float, arrows: int
) -> None:
    assert tips(low, value, high) == arrows
