"""Each fault that people met with metrics and clients has a test that carries its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

METRIC = (1, 3, 5, 6, 7, 9, 10, 11, 13, 15, 17)
CLIENT = (18, 19, 20, 21)
NAMED = re.compile(r"def test_row_(\d+)_")


@pytest.mark.parametrize("row", [*METRIC, *CLIENT])
def test_a_row_has_its_test(row: int) -> None:
    found = {
        int(number)
        for path in Path(__file__).parent.glob("test_*.py")
        for number in NAMED.findall(path.read_text())
    }
    assert row in found
