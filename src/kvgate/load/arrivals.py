"""When requests are wanted, independent of how the server answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from kvgate.load.job import Arrival, Constant, Poisson
from kvgate.record import NS_PER_S


def intended_times(arrival: Arrival) -> Iterator[int]:
    """Offsets from the start of the block in ns, ascending, without end.

    Raises ValueError for fixed concurrency, which has no such times.
    """
    if isinstance(arrival, Constant):
        return (round(i * NS_PER_S / arrival.rate_per_s) for i in count())
    if isinstance(arrival, Poisson):
        return _poisson(arrival)
    raise ValueError(f"no intended times for {arrival}")


def _poisson(arrival: Poisson) -> Iterator[int]:
    # A string seed is hashed by SHA-512 inside: the same on every host and version since 3.2.
    draw = random.Random(f"arrivals:{arrival.seed}")
    at_s = 0.0
    while True:
        at_s += draw.expovariate(arrival.rate_per_s)
        yield round(at_s * NS_PER_S)
