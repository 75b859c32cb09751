"""When requests are wanted, independent of how the server answers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import count, islice

from kvgate.load.job import (
    Arrival,
    Closed,
    Constant,
    Poisson,
    RampConcurrency,
    RampRate,
    Shard,
    share_of,
)
from kvgate.record import NS_PER_S


def intended_times(arrival: Arrival, shard: Shard | None = None) -> Iterator[int]:
    """Offsets from the start of the block in ns, ascending, without end.

    A shard takes every ``of``-th arrival of the whole, so that all shards together meet exactly
    the planned times. Raises ValueError for fixed concurrency and for a trace, which have no such
    times of their own.
    """
    if isinstance(arrival, Constant):
        times: Iterator[int] = (round(i * NS_PER_S / arrival.rate_per_s) for i in count())
    elif isinstance(arrival, Poisson):
        times = _poisson(arrival)
    elif isinstance(arrival, RampRate):
        times = (round(_ramp_s(arrival, n) * NS_PER_S) for n in _expected_numbers(arrival.seed))
    else:
        raise ValueError(f"no intended times for {arrival}")  # noqa: TRY004 - a value of one type
    return times if shard is None else islice(times, shard.index, None, shard.of)


def _poisson(arrival: Poisson) -> Iterator[int]:
    # A string seed is hashed by SHA-512 inside: the same on every host and version since 3.2.
    draw = random.Random(f"arrivals:{arrival.seed}")
    at_s = 0.0
    while True:
        at_s += draw.expovariate(arrival.rate_per_s)
        yield round(at_s * NS_PER_S)


def _expected_numbers(seed: str | None) -> Iterator[float]:
    """How many arrivals are expected when the next one comes: 0, 1, 2 ..., or at random gaps."""
    if seed is None:
        yield from (float(i) for i in count())
        return
    draw = random.Random(f"ramp:{seed}")
    n = 0.0
    while True:
        n += draw.expovariate(1.0)
        yield n


def _ramp_s(ramp: RampRate, n: float) -> float:
    """When ``n`` arrivals are expected, s: the inverse of the integral of the rate.

    On the ramp N(t) = a t + (b - a) t^2 / (2 T); after it the rate stays b. A Poisson process of a
    changing rate is one of rate 1 on that scale (time change; Cinlar 1975).
    """
    a, b, over = ramp.from_per_s, ramp.to_per_s, ramp.over_s
    on_ramp = (a + b) / 2 * over
    if n >= on_ramp:
        return over + (n - on_ramp) / b
    curve = (b - a) / (2 * over)
    # The form that neither divides by a vanishing curve nor cancels near it.
    return 2 * n / (a + math.sqrt(max(0.0, a * a + 4 * curve * n))) if n > 0 else 0.0


def level_changes(arrival: Closed | RampConcurrency, shard: Shard | None = None) -> list[int]:
    """Offsets, ns, at which one more stream of requests begins (positive or zero) or one ends.

    An end at ``t`` is written ``-t``; a stream ends with the request it is in. The list is in the
    order of time. Of a ramp's streams a shard takes every ``of``-th.
    """
    if isinstance(arrival, Closed):
        return [0] * share_of(arrival.concurrency, shard)
    step_s = arrival.over_s / max(1, abs(arrival.last - arrival.first))
    changes = [0] * arrival.first
    changes += [round(k * step_s * NS_PER_S) for k in range(1, arrival.last - arrival.first + 1)]
    begins = changes if shard is None else changes[shard.index :: shard.of]
    ends = [round(k * step_s * NS_PER_S) for k in range(1, arrival.first - arrival.last + 1)]
    # The youngest streams end first, so a shard's ends belong to streams that it has.
    owners = range(arrival.first - 1, arrival.last - 1, -1)
    mine = [
        -end
        for end, stream in zip(ends, owners, strict=True)
        if shard is None or stream % shard.of == shard.index
    ]
    return begins + mine
