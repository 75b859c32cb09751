"""``requests.parquet``: what a third party reads with pandas alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kvgate.errors import CannotMeasure
from kvgate.evidence import layout
from kvgate.evidence.records import read_records
from kvgate.record import RequestRecord

_BATCH_ROWS: Final = 512

REQUESTS_SCHEMA: Final = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("load_host", pa.string(), nullable=False),
        pa.field("prompt_digest", pa.string(), nullable=False),
        pa.field("intended_ns", pa.int64(), nullable=False),
        pa.field("scheduled_ns", pa.int64(), nullable=False),
        pa.field("connected_ns", pa.int64()),
        pa.field("sent_ns", pa.int64()),
        pa.field("first_byte_ns", pa.int64()),
        pa.field("first_token_ns", pa.int64()),
        pa.field("first_text_ns", pa.int64()),
        pa.field("last_token_ns", pa.int64()),
        pa.field("end_ns", pa.int64(), nullable=False),
        pa.field("token_ns", pa.list_(pa.int64()), nullable=False),
        pa.field("coalesced", pa.list_(pa.int32()), nullable=False),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("cached_tokens", pa.int64()),
        pa.field("finish_reason", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("client_lag_ns", pa.int64()),
        pa.field("answer_digest", pa.string()),
        pa.field("tokens", pa.list_(pa.string())),
        pa.field("token_logprobs", pa.list_(pa.float64())),
        pa.field("top2_margin", pa.list_(pa.float64())),
    ]
)


def request_writer(path: Path) -> pq.ParquetWriter:
    """A writer of ``requests.parquet``. Stamps are packed as differences: smaller by two fifths and
    read in half the time."""
    texts = [f.name for f in REQUESTS_SCHEMA if pa.types.is_string(f.type)]
    stamps = [f.name for f in REQUESTS_SCHEMA if f.type == pa.int64()]
    packed = dict.fromkeys([*stamps, "token_ns.list.element"], "DELTA_BINARY_PACKED")
    return pq.ParquetWriter(
        path, REQUESTS_SCHEMA, compression="zstd", use_dictionary=texts, column_encoding=packed
    )


def write_requests(records_jsonl: Path | list[Path], parquet: Path) -> int:
    """Turn the JSON lines of one or several load processes into ``requests.parquet``.

    Works in batches of 512 rows, whatever the size. Returns the number of rows.
    """
    paths = records_jsonl if isinstance(records_jsonl, list) else [records_jsonl]
    return write_record_rows(chain.from_iterable(map(read_records, paths)), parquet)


def write_record_rows(records: Iterable[RequestRecord], parquet: Path) -> int:
    """Records that are already at hand as ``requests.parquet``; returns the number of rows."""
    rows, left = 0, iter(records)
    with request_writer(parquet) as writer:
        while batch := [msgspec.structs.asdict(r) for r in islice(left, _BATCH_ROWS)]:
            writer.write_table(pa.Table.from_pylist(batch, schema=REQUESTS_SCHEMA))
            rows += len(batch)
    return rows


def _pandas_type(arrow: pa.DataType) -> Any:
    """Integers stay integers; lists of them stay Arrow's, for a Python object for each of a million
    requests costs seconds. None leaves the choice to pandas."""
    if arrow == pa.int64():
        return pd.Int64Dtype()
    stamps = pa.types.is_list(arrow) and pa.types.is_integer(arrow.value_type)
    return pd.ArrowDtype(arrow) if stamps else None


def read_requests(parquet: Path) -> pd.DataFrame:
    """``requests.parquet`` as a frame: integers stay integers, a missing value is ``<NA>``.

    Raises :class:`CannotMeasure` when the file or one of its columns is missing, or when it claims
    more rows than a block can have. What else stands in the file is not looked at.
    """
    try:
        footer = pq.read_metadata(parquet)
        if footer.num_rows > layout.MAX_REQUESTS:
            raise CannotMeasure(
                f"claims {footer.num_rows:,} requests, more than {layout.MAX_REQUESTS:,}",
                where=str(parquet),
                remedy="this is no block of ours; get a clean copy of the bundle",
            )
        there = set(footer.schema.to_arrow_schema().names)
        missing = [name for name in REQUESTS_SCHEMA.names if name not in there]
        if missing:
            raise CannotMeasure(f"columns are missing: {', '.join(missing)}", where=str(parquet))
        table = pq.read_table(parquet, columns=REQUESTS_SCHEMA.names)
    except (OSError, pa.ArrowException) as fault:
        raise CannotMeasure(f"cannot read the requests: {fault}", where=str(parquet)) from None
    frame: pd.DataFrame = table.to_pandas(types_mapper=_pandas_type, ignore_metadata=True)
    return frame
