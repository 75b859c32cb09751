"""Figures inside reasons: `kvgate.numbers` with plain spaces, the same in both languages.

A reason stands in ``verdict.json`` and on terminals, where a space that does not break only hides.
"""

from __future__ import annotations

from kvgate import numbers
from kvgate.numbers import NBSP

ABSENT = "–"


def percent(value: float, *, exact: bool = False) -> str:
    """A fraction as percentage: 0.2543 is "25.4 %"; ``exact`` keeps what a contract wrote."""
    return numbers.percent(value, exact=exact).replace(NBSP, " ")


def spell_interval(low: float, high: float) -> str:
    """Two fractions as "28.9 … 33.1 %"."""
    return numbers.interval(low, high, "1", "en").replace(NBSP, " ")


def number(value: float | str | None) -> str:
    """A plain number with three significant digits, a text as it is."""
    if value is None or isinstance(value, str):
        return value or ABSENT
    return numbers.significant(value)


def with_unit(
    value: float | str | None, unit: str, metric: str | None = None, *, exact: bool = False
) -> str:
    """A value in its unit; ``metric`` tells counts from fractions."""
    if value is None:
        return ABSENT
    return numbers.number(value, unit, "en", metric=metric, exact=exact).replace(NBSP, " ")
