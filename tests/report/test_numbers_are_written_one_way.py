"""One rule for each unit, the same in both languages; absence is said in words."""

from __future__ import annotations

import math

import pytest

from kvgate.numbers import interval, number, percent, points


@pytest.mark.parametrize(
    ("value", "unit", "metric", "shown"),
    [
        (7.534, "s", "ttft", "7.53 s"),
        (149.52, "s", "ttft", "150 s"),
        (0.0213, "s", "itl", "21.3 ms"),
        (259_200.0, "s", "soak_duration", "72.0 h"),
        (74.9, "tok/s", None, "74.9 tok/s"),
        (5.23e9, "B/s", None, "5.23 GB/s"),
        (100e9, "bit/s", None, "100 Gbit/s"),
        (2147483648.0, "B", "memory", "2.00 GiB"),
        (4200.0, "B", "link_mtu", "4200 B"),
        (7.68e12, "B", "device_capacity", "7.68 TB"),
        (192.0, "1", "cpu_count", "192"),
        (1048576.0, "1", "open_files_limit", "1,048,576"),
        (0.0063, "1", "failed_requests", "0.6 %"),
        (-0.312, "1", None, "−31.2 %"),
        ("sim-1.0", "text", None, "sim-1.0"),
        (0.0, "s", None, "0 s"),
    ],
)
def test_units(value: float | str, unit: str, metric: str | None, shown: str) -> None:
    for lang in ("en", "zh"):
        assert number(value, unit, lang, metric=metric).replace("\u00a0", " ") == shown


def test_absence_is_a_word_and_never_a_number() -> None:
    assert number(None, "s", "en") == "missing"
    assert number(None, "s", "zh") == "缺失"
    assert number("", "text", "en") == "missing"
    assert number(math.nan, "s", "en") == "not a number"
    assert number(math.inf, "1", "zh") == "非数值"


def test_limits_keep_what_the_contract_wrote() -> None:
    assert percent(0.25, exact=True) == "25\u00a0%"
    assert percent(0.001, exact=True) == "0.1\u00a0%"
    assert number(2e9, "B/s", "en", exact=True) == "2\u00a0GB/s"
    assert number(2147483648, "B", "en", metric="memory", exact=True) == "2\u00a0GiB"
    assert number(8e9, "B", "en", metric="memory", exact=True) == "8\u00a0GB"


def test_an_interval_names_its_unit_once() -> None:
    shown = interval(0.289, 0.331, "1", "en").replace("\u00a0", " ")
    assert shown == "28.9 … 33.1 %"
    shown = interval(-0.02, 0.04, "1", "en", signed=True).replace("\u00a0", " ")
    assert shown == "−2.0 … +4.0 %"
    assert interval(None, None, "1", "en") == ""


def test_nothing_is_ever_minus_zero() -> None:
    assert percent(-0.00001) == "0.0\u00a0%"
    assert (percent(9.994), percent(999.0)) == ("999.4\u00a0%", "99,900\u00a0%")
    assert points(-0.068, "zh") == "6.8\u00a0个百分点"
