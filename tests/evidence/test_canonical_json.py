"""One value has one sequence of bytes, on every processor."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.canonical import canonical_json, file_sha256, round_significant, sha256_hex


class Colour(enum.Enum):
    RED = "red"


class Inner(msgspec.Struct, frozen=True, rename={"size": "size_bytes"}):
    size: int
    share: float


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    where: Path


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_reading_and_writing_again_gives_the_same_bytes(value: object) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once
    assert once.endswith(b"\n")


@given(st.dictionaries(st.text(), st.integers()))
def test_order_of_insertion_does_not_show(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical_json(turned) == canonical_json(value)


def test_the_last_bits_of_a_float_do_not_show() -> None:
    assert canonical_json(0.1 + 0.2) == canonical_json(0.3) == b"0.3\n"
    assert canonical_json(1.23456789) == b"1.23457\n"
    assert canonical_json(math.nextafter(0.29, 1.0)) == canonical_json(0.29)


def test_minus_zero_is_zero() -> None:
    assert canonical_json(-0.0) == canonical_json(-1e-400) == b"0.0\n"
    assert str(round_significant(-0.0)) == "0.0"


def test_integers_are_exact() -> None:
    assert canonical_json(13_290_000_123) == b"13290000123\n"
    assert canonical_json(2**70) == f"{2**70}\n".encode()
    assert canonical_json(np.int64(2**60)) == f"{2**60}\n".encode()


def test_records_enums_and_paths_are_plain_data() -> None:
    value = Outer("a", Inner(3, 0.5), Path("x/y"))
    expected = {"name": "a", "inner": {"size_bytes": 3, "share": 0.5}, "where": "x/y"}
    assert json.loads(canonical_json({Colour.RED: value})) == {"red": expected}
    assert canonical_json({3, 1, 2}) == canonical_json([1, 2, 3])
    assert canonical_json({8: "a"}) == canonical_json({"8": "a"})


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, pytest.param(np.float64("nan"), id="numpy")]
)
def test_no_number_that_cannot_be_judged(number: float) -> None:
    with pytest.raises(ValueError, match=r"\$\.clauses\[1\]\.estimate"):
        canonical_json({"clauses": [{}, {"estimate": number}]})


@pytest.mark.parametrize("value", [b"bytes", object(), {None: 1}, {True: 1}, {1: "a", "1": "b"}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        canonical_json(value)


def test_bottomless_nesting_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(ValueError, match="deeper"):
        canonical_json(value)


def test_hostile_text_stays_text() -> None:
    assert json.loads(canonical_json("a\ud800b\u202e\x00中")) == "a\ufffdb\u202e\x00中"


def test_digest_of_bytes_and_file_agree(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex(b"abc") == file_sha256(path) == known
