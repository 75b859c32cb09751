"""``requests.parquet``: complete, typed, and readable with pandas alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest

from kvgate.errors import CannotMeasure
from kvgate.evidence.records import read_records
from kvgate.evidence.tables import REQUESTS_SCHEMA, read_requests, write_requests
from kvgate.record import Outcome, RequestRecord


def _record(number: int) -> RequestRecord:
    big = 2**62 + number  # beyond what a float could hold
    return RequestRecord(
        request_id=f"r{number}",
        load_host="h",
        prompt_digest="d",
        intended_ns=big,
        scheduled_ns=big,
        end_ns=big,
        token_ns=[big],
        coalesced=[0],
        outcome=Outcome.RESET,
    )


def _write(path: Path, records: list[RequestRecord]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    return path


def test_the_columns_are_the_records_fields_in_order() -> None:
    assert tuple(REQUESTS_SCHEMA.names) == RequestRecord.__struct_fields__


def test_integers_stay_integers_and_missing_stays_missing(tmp_path: Path) -> None:
    lines = _write(tmp_path / "a.jsonl", [_record(1)])
    write_requests(lines, tmp_path / "t.parquet")
    frame = read_requests(tmp_path / "t.parquet")
    assert int(frame["end_ns"].iloc[0]) == 2**62 + 1
    assert list(frame["token_ns"].iloc[0]) == [2**62 + 1]
    assert frame["first_token_ns"].isna().all()
    assert frame["error"].isna().all()
    plain = pd.read_parquet(tmp_path / "t.parquet")
    assert list(plain.columns) == list(RequestRecord.__struct_fields__)


def test_several_load_processes_become_one_table_in_batches(tmp_path: Path) -> None:
    first = _write(tmp_path / "a.jsonl", [_record(i) for i in range(700)])
    second = _write(tmp_path / "b.jsonl", [_record(i) for i in range(700, 1300)])
    assert write_requests([first, second], tmp_path / "t.parquet") == 1300
    assert read_requests(tmp_path / "t.parquet")["request_id"].nunique() == 1300


def test_a_line_cut_off_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", [_record(1), _record(2)])
    path.write_bytes(path.read_bytes()[:-5])
    assert [r.request_id for r in read_records(path)] == ["r1"]


def test_an_unreadable_line_is_one_sentence_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"request_id": NaN}\n')
    with pytest.raises(CannotMeasure, match=r"a\.jsonl:1"):
        list(read_records(path))


def test_a_missing_file_or_column_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match=r"t\.parquet"):
        read_requests(tmp_path / "t.parquet")
    pd.DataFrame({"request_id": ["a"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(CannotMeasure, match="columns are missing"):
        read_requests(tmp_path / "t.parquet")


def test_a_table_that_claims_more_rows_than_a_block_has_is_not_unfolded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = _write(tmp_path / "a.jsonl", [_record(n) for n in range(4)])
    write_requests(records, tmp_path / "t.parquet")
    monkeypatch.setattr("kvgate.evidence.layout.MAX_REQUESTS", 3)
    with pytest.raises(CannotMeasure, match="claims 4 requests, more than 3 -- "):
        read_requests(tmp_path / "t.parquet")
