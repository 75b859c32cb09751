"""Columns whose cells are lists of integers, as two flat arrays: a million rows without a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ragged:
    """``values`` of all rows one after the other, and how many each row has."""

    values: Ints
    lengths: Ints

    @classmethod
    def of(cls, column: pd.Series[Any]) -> Ragged:
        """From a column of lists, Arrow's or Python's; a missing list has no values.

        Raises TypeError or ValueError where a value inside a list is no integer.
        """
        if isinstance(column.dtype, pd.ArrowDtype):
            lengths = column.list.len().to_numpy(dtype=np.int64, na_value=0)
            values = column.list.flatten().to_numpy(dtype=np.int64)
            return cls(values, lengths)
        rows = [np.asarray(row, dtype=np.int64) for row in column]
        return cls(
            np.concatenate(rows) if rows else np.empty(0, dtype=np.int64),
            np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows)),
        )

    @property
    def starts(self) -> Ints:
        """Where each row begins in ``values``."""
        ends: Ints = np.cumsum(self.lengths)
        return ends - self.lengths

    def sums(self, per_value: npt.NDArray[np.int64] | Bools) -> Ints:
        """Sum of ``per_value`` (one number a value) over each row; 0 for a row without values."""
        total = np.concatenate([[0], np.cumsum(per_value, dtype=np.int64)])
        found: Ints = total[np.cumsum(self.lengths)] - total[self.starts]
        return found

    def gaps(self) -> tuple[Ints, Ints]:
        """Differences of neighbours within a row, and the position of each gap's first value."""
        if len(self.values) < 2:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        inside = np.ones(len(self.values) - 1, dtype=np.bool_)
        borders = self.starts[(self.lengths > 0) & (self.starts > 0)]
        inside[borders - 1] = False
        first = np.flatnonzero(inside)
        return (self.values[first + 1] - self.values[first]), first
