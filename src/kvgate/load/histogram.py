"""A histogram of nanoseconds in constant memory."""

from __future__ import annotations

from array import array


class Histogram:
    """Counts in buckets at most 6 % wide from 1 ns to hours; the maximum is exact."""

    __slots__ = ("_counts", "count", "max_ns")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * 1024))
        self.count = 0
        self.max_ns = 0

    def add(self, ns: int) -> None:
        """Count one value; negative values count as zero."""
        if ns < 16:
            self._counts[max(ns, 0)] += 1
        else:
            exponent = ns.bit_length() - 5
            # The top five bits: the leading one and four more select the bucket.
            self._counts[min((exponent << 4) + (ns >> exponent), 1023)] += 1
        self.count += 1
        if ns > self.max_ns:
            self.max_ns = ns

    def quantile_ns(self, share: float) -> int | None:
        """Upper edge of the bucket that holds the quantile; ``None`` without data."""
        if self.count == 0:
            return None
        wanted = share * self.count
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                if bucket < 16:
                    return bucket
                exponent = (bucket >> 4) - 1
                return min((((bucket & 15) | 16) + 1 << exponent) - 1, self.max_ns)
        return self.max_ns
