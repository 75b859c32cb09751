"""How a number is written, in verdicts, reports and on a terminal: one rule for each unit, the
same in both languages.

Decimal point, comma between thousands from 10,000 on, true minus, a space that does not break
before the unit. Three significant digits, percentages with one decimal (a limit keeps what the
contract wrote). Absent values are said in words, so that nobody reads them as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

Value = float | str | None

NBSP: Final = "\u00a0"
MINUS: Final = "\u2212"
ELLIPSIS: Final = "\u2026"
NO_NUMBER: Final = "NaN"
"""What no rule can write; a reader's language has a word for it in `number`."""

COUNTED: Final = frozenset(
    {
        "cpu_count",
        "open_files_limit",
        "kernel_errors_24h",
        "link_flaps",
        "nvme_count",
        "nvme_critical_warning",
        "gpu_count",
        "soak_restarts",
        "soak_wrong_answers",
        "fault_proved",
        "requests_recorded",
        "prompts_unique",
        "client_faults",
        "responses_possible",
        "preemptions",
        "prompt_tokens_as_planned",
        "output_tokens_as_planned",
    }
)
"""Metrics and conditions of unit "1" that count things; every other one is a fraction."""

WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("missing", "缺失"),
    "not_a_number": ("not a number", "非数值"),
    "points": ("percentage points", "个百分点"),
}

_DECIMAL: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"))


def word(name: str, lang: str) -> str:
    return WORDS[name][1 if lang == "zh" else 0]


def plain(value: float, decimals: int) -> str:
    """``value`` with fixed decimals, comma from 10,000 on, true minus; never "-0"."""
    if not math.isfinite(value):
        return NO_NUMBER
    text = f"{abs(value):,.{decimals}f}"
    if abs(value) < 10_000:
        text = text.replace(",", "")
    negative = value < 0 and any(c in "123456789" for c in text)
    return (MINUS if negative else "") + text


def significant(value: float, digits: int = 3) -> str:
    """``value`` with three significant digits, whole numbers from 100 on in full."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NO_NUMBER
    magnitude = math.floor(math.log10(abs(value)))
    return plain(value, max(0, digits - 1 - magnitude))


def trimmed(value: float) -> str:
    """``value`` with at most six significant digits and no trailing zeros: a contract's number."""
    if not math.isfinite(value):
        return NO_NUMBER
    decimals = max(0, 5 - math.floor(math.log10(abs(value)))) if value else 0
    text = plain(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, unit: str, digits: Callable[[float], str]) -> str:
    for factor, prefix in _DECIMAL:
        if abs(value) >= factor:
            return f"{digits(value / factor)}{NBSP}{prefix}{unit}"
    return f"{digits(value)}{NBSP}{unit}"


def _bytes(value: float, metric: str | None, digits: Callable[[float], str]) -> str:
    if abs(value) < 100_000:
        return f"{plain(value, 0)}{NBSP}B"
    if metric == "memory":
        for factor, unit in _BINARY:
            # A contract that wrote 8e9 meant 8 GB, not 7.45058 GiB.
            odd = digits is trimmed and round(value / factor, 2) != value / factor
            if abs(value) >= factor and not odd:
                return f"{digits(value / factor)}{NBSP}{unit}"
    return _scaled(value, "B", digits)


def _seconds(value: float, digits: Callable[[float], str]) -> str:
    size = abs(value)
    if size >= 7200:
        return f"{digits(value / 3600)}{NBSP}h"
    if size >= 0.1 or size == 0:
        return f"{digits(value)}{NBSP}s"
    if size >= 1e-4:
        return f"{digits(value * 1e3)}{NBSP}ms"
    return f"{digits(value * 1e6)}{NBSP}µs"


def percent(fraction: float, *, signed: bool = False, exact: bool = False) -> str:
    """A fraction as percentage, whole from 1,000 % on; ``signed`` writes a plus before gains;
    ``exact`` for a limit."""
    body = (
        trimmed(round(fraction * 100, 6))
        if exact
        else plain(fraction * 100, 0 if abs(fraction) >= 10 else 1)
    )
    plus = "+" if signed and fraction > 0 else ""
    return f"{plus}{body}{NBSP}%"


def points(fraction: float, lang: str) -> str:
    """A difference of two percentages, in percentage points."""
    return f"{plain(abs(fraction) * 100, 1)}{NBSP}{word('points', lang)}"


def number(
    value: Value,
    unit: str,
    lang: str,
    *,
    metric: str | None = None,
    signed: bool = False,
    exact: bool = False,
) -> str:
    """``value`` in ``unit`` as a reader sees it.

    ``metric`` tells counts from fractions where the unit is "1" and memory from storage where it is
    "B"; ``exact`` is for limits, which are shown as the contract wrote them.
    """
    if value is None:
        return word("missing", lang)
    if isinstance(value, str):
        return value if value else word("missing", lang)
    if not math.isfinite(value):
        return word("not_a_number", lang)
    digits = trimmed if exact else significant
    if unit == "1":
        if metric in COUNTED:
            return trimmed(value)
        return percent(value, signed=signed, exact=exact)
    if unit == "s":
        return _seconds(value, digits)
    if unit == "B":
        return _bytes(value, metric, digits)
    if unit in {"B/s", "bit/s"}:
        return _scaled(value, unit, digits)
    if unit in {"", "text", "count"}:
        return trimmed(value)
    return f"{digits(value)}{NBSP}{unit}"


def interval(
    low: float | None,
    high: float | None,
    unit: str,
    lang: str,
    *,
    metric: str | None = None,
    signed: bool = False,
) -> str:
    """``low`` to ``high`` with the unit once where both share it; empty where there is none."""
    if low is None and high is None:
        return ""
    left = number(low, unit, lang, metric=metric, signed=signed)
    right = number(high, unit, lang, metric=metric, signed=signed)
    head, _, tail = left.rpartition(NBSP)
    if head and right.rpartition(NBSP)[2] == tail:
        left = head
    return f"{left}{NBSP}{ELLIPSIS} {right}"


def count(value: int) -> str:
    """A whole number."""
    return plain(value, 0)


def size(value: int) -> str:
    """A file's size in bytes, scaled."""
    return _scaled(value, "B", significant) if value >= 1000 else f"{value}{NBSP}B"
