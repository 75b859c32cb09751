"""How loads share a store's bandwidth. Pure: times are seconds that the caller hands in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kvgate.rehearsal.profile import StoreProfile, bandwidth_at


@dataclass(slots=True, eq=False)
class Load:
    """One read on its way; ``slowdown`` multiplies all that it costs."""

    total_bytes: int
    slowdown: float
    left_overhead_s: float = 0.0
    left_bytes: float = 0.0


class LoadQueue:
    """First come, first served by ``parallel_loads`` lanes that share the store evenly.

    The store gives each load first its overhead, then its bytes, at the aggregate bandwidth for the
    number of loads that are waiting or served. All times are simulated seconds.
    """

    def __init__(self, profile: StoreProfile) -> None:
        self._profile = profile
        self._waiting: deque[Load] = deque()
        self._served: list[Load] = []
        self._now_s = 0.0
        self.transfer_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._served)

    def submit(self, load: Load) -> None:
        """Queue ``load`` as of the last ``advance``."""
        load.left_overhead_s = self._profile.load_overhead_s * load.slowdown
        load.left_bytes = load.total_bytes * load.slowdown
        self._waiting.append(load)
        self._fill()

    def cancel(self, load: Load) -> None:
        """Forget a load whose client has gone."""
        if load in self._waiting:
            self._waiting.remove(load)
        elif load in self._served:
            self._served.remove(load)
            self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._served) < self._profile.parallel_loads:
            self._served.append(self._waiting.popleft())

    def _bandwidth(self) -> float:
        return bandwidth_at(self._profile.bandwidth_gb_per_s, float(len(self)))

    def next_end_s(self) -> float | None:
        """When the next load ends if nothing arrives, or None."""
        if not self._served:
            return None
        rate = self._bandwidth()
        least = min(load.left_overhead_s + load.left_bytes / rate for load in self._served)
        return self._now_s + least * len(self._served)

    def advance(self, now_s: float) -> list[tuple[Load, float]]:
        """Move on to ``now_s``; the loads that ended, each with its exact end."""
        ended: list[tuple[Load, float]] = []
        while True:
            end_s = self.next_end_s()
            if end_s is None or end_s > now_s:
                self._work(now_s - self._now_s)
                self._now_s = max(self._now_s, now_s)
                return ended
            self._work(end_s - self._now_s)
            self._now_s = end_s
            # Rounding may leave a fraction of a byte of a load that has ended.
            done = [
                load
                for load in self._served
                if load.left_bytes < 1.0 and load.left_overhead_s < 1e-9
            ]
            for load in done:
                self._served.remove(load)
                ended.append((load, end_s))
            self._fill()

    def _work(self, elapsed_s: float) -> None:
        if not self._served or elapsed_s <= 0.0:
            return
        rate = self._bandwidth()
        share_s = elapsed_s / len(self._served)
        for load in self._served:
            overhead_s = min(load.left_overhead_s, share_s)
            load.left_overhead_s -= overhead_s
            moving_s = share_s - overhead_s
            load.left_bytes = max(0.0, load.left_bytes - moving_s * rate)
            self.transfer_s += moving_s


class WriteQueue:
    """Writes are acknowledged one after the other at the write bandwidth."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def submit(self, now_s: float, total_bytes: int, slowdown: float) -> float:
        """When ``total_bytes`` handed over at ``now_s`` are acknowledged."""
        self._free_s = max(self._free_s, now_s) + total_bytes * slowdown / self._bytes_per_s
        return self._free_s
