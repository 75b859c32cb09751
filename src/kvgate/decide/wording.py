"""Figures inside reasons, the same in both languages."""

from __future__ import annotations


def percent(value: float) -> str:
    """A fraction as percent with one decimal: 0.2543 is "25.4 %"."""
    return f"{100 * value:.1f} %"


def spell_interval(low: float, high: float) -> str:
    return f"[{percent(low)}, {percent(high)}]"


def number(value: float | str | None) -> str:
    """A plain number with four significant digits, a text as it is."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


def with_unit(value: float | str | None, unit: str) -> str:
    """A value with its unit; counts and texts stand alone."""
    return number(value) if unit in {"1", "text"} else f"{number(value)} {unit}"
