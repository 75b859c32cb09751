"""Time series in long form: (t_ns, source, name, value), small in memory, Parquet on disk."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kvgate.errors import CannotMeasure


class Row(NamedTuple):
    """One value: ``t_ns`` on CLOCK_MONOTONIC of the observing host."""

    t_ns: int
    source: str
    name: str
    value: float


class Rows:
    """A growing table of rows, 20 bytes each, for a run of 72 hours must fit into memory."""

    def __init__(self) -> None:
        self._t_ns = array("q")
        self._key = array("l")
        self._value = array("d")
        self._keys: dict[tuple[str, str], int] = {}

    def add(self, t_ns: int, source: str, name: str, value: float) -> None:
        """Append one value."""
        self._t_ns.append(t_ns)
        self._key.append(self._keys.setdefault((source, name), len(self._keys)))
        self._value.append(value)

    def extend(self, rows: Iterable[Row]) -> None:
        """Append many."""
        for row in rows:
            self.add(*row)

    def __len__(self) -> int:
        return len(self._t_ns)

    def __iter__(self) -> Iterator[Row]:
        keys = list(self._keys)
        columns = zip(self._t_ns, self._key, self._value, strict=True)
        return (Row(t_ns, *keys[key], value) for t_ns, key, value in columns)

    def series(self, source: str, name: str) -> list[tuple[int, float]]:
        """(t_ns, value) of one series in the order of observation; empty where there is none."""
        key = self._keys.get((source, name))
        columns = zip(self._t_ns, self._key, self._value, strict=True)
        return [(t_ns, value) for t_ns, k, value in columns if k == key]

    def sources(self) -> list[str]:
        """Every source, in the order of its first row."""
        return list(dict.fromkeys(source for source, _ in self._keys))

    def names(self, source: str) -> list[str]:
        """The names of one source, in the order of their first row."""
        return [name for found, name in self._keys if found == source]


def write_parquet(path: Path, *tables: Rows) -> None:
    """Write the rows of ``tables``, sorted by time, to ``path``: whole or not at all.

    Columns ``t_ns`` (int64), ``source`` and ``name`` (dictionary of text), ``value`` (float64).
    Raises CannotMeasure where the disk refuses.
    """
    _write(path, [(None, row) for table in tables for row in table])


def write_hosts_parquet(path: Path, hosts: Mapping[str, Rows]) -> None:
    """As :func:`write_parquet`, with a column ``host`` (dictionary of text): whose row it is."""
    _write(path, [(host, row) for host, table in hosts.items() for row in table], of_hosts=True)


def _write(path: Path, rows: list[tuple[str | None, Row]], *, of_hosts: bool = False) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows.sort(key=lambda pair: pair[1].t_ns)
    text = pa.dictionary(pa.int32(), pa.string())
    columns = {
        "t_ns": pa.array([row.t_ns for _, row in rows], pa.int64()),
        "source": pa.array([row.source for _, row in rows], pa.string()).cast(text),
        "name": pa.array([row.name for _, row in rows], pa.string()).cast(text),
        "value": pa.array([row.value for _, row in rows], pa.float64()),
    }
    if of_hosts:
        columns["host"] = pa.array([host for host, _ in rows], pa.string()).cast(text)
    table = pa.table(columns)
    half = path.with_name(f".writing-{path.name}")
    try:
        pq.write_table(table, half, compression="zstd")
        with half.open("rb") as stream:
            os.fsync(stream.fileno())
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise CannotMeasure(
            f"cannot write: {error.strerror or error}",
            where=str(path),
            remedy="free space or check permissions, then measure this block again",
        ) from error
