"""Windows of a long run: worst sliding share, silence, first against last, the worst one.

Times are campaign seconds since the run's observation began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from kvgate.analyse.estimate import slope_interval
from kvgate.analyse.results import SoakWindow
from kvgate.analyse.soak.series import Floats

MIN_WINDOWS: Final = 6
"""Fewer windows than this have no trend worth the name."""
MOST: Final = 1000.0
"""How many times worse than the median a window is called at most, so that a window in which
nothing came out has a number."""

Stretch = tuple[float, float]


def bounds(end_s: float, window_s: float) -> tuple[Stretch, ...]:
    """Windows one after the other from 0 to the very end: a remainder of at least half a window is
    a window of its own, a shorter one belongs to the last."""
    whole = int(end_s / window_s + 1e-9)
    found = [(k * window_s, (k + 1) * window_s) for k in range(whole)]
    rest_s = end_s - whole * window_s
    if end_s > 0 and (rest_s >= window_s / 2 or not found):
        found.append((whole * window_s, end_s))
    elif found:
        found[-1] = (found[-1][0], max(end_s, found[-1][1]))
    return tuple(found)


def worst_share(ended_s: Floats, failed: Floats, window_s: float, end_s: float) -> float | None:
    """Largest share of failed among finished requests over every window (r - window_s, r] with r
    up to ``end_s``; the first window is (0, window_s], or all there is. None without a request.

    ``ended_s`` and ``failed`` (0 or 1) belong together. A share changes only where a request enters
    or leaves, so only those moments are tried.
    """
    if not len(ended_s):
        return None
    order = np.argsort(ended_s, kind="stable")
    t, bad = ended_s[order], np.concatenate([[0.0], np.cumsum(failed[order])])
    last = max(end_s, float(t[-1]))
    first = min(window_s, last)
    right = np.unique(np.concatenate([t, t + window_s, [first, last]]))
    right = right[(right >= first) & (right <= last)]
    high = np.searchsorted(t, right, "right")
    low = np.where(right <= window_s, 0, np.searchsorted(t, right - window_s, "right"))
    finished = high - low
    some = finished > 0
    return float(np.max((bad[high] - bad[low])[some] / finished[some], initial=0.0))


def longest_silence(
    good_s: Floats, start_s: float, end_s: float, excused: Sequence[Stretch]
) -> float:
    """Longest time without a good request finishing between ``start_s`` and ``end_s``; the time
    inside ``excused`` stretches does not count."""
    inside = np.sort(good_s[(good_s > start_s) & (good_s < end_s)])
    edges = np.concatenate([[start_s], inside, [end_s]])
    longest = 0.0
    for low, high in pairwise(edges):
        away = sum(max(0.0, min(high, b) - max(low, a)) for a, b in excused)
        longest = max(longest, float(high - low) - away)
    return longest


def drift(windows: Sequence[SoakWindow], field: str, edge_s: float, sign: int = 1) -> float | None:
    """Relative change over the run in the direction of ``sign``: the larger of the last stretch
    against the first, each ``edge_s`` long and taken as the median of its windows, and of the
    Theil-Sen slope times the run's length over the median.

    The slope alone is blind to a change in the last quarter, the stretches alone to one between
    them. None where a window lacks its value or a stretch has no window.
    """
    values = [getattr(w, field) for w in windows]
    if len(values) < MIN_WINDOWS or any(v is None or not math.isfinite(v) for v in values):
        return None
    begin_s, end_s = windows[0].start_s, windows[-1].end_s
    slack_s = 1e-6 * end_s
    first = [v for w, v in zip(windows, values, strict=True)
             if w.end_s <= begin_s + edge_s + slack_s]  # fmt: skip
    last = [v for w, v in zip(windows, values, strict=True)
            if w.start_s >= end_s - edge_s - slack_s]  # fmt: skip
    median = float(np.median(values))
    slope = slope_interval([w.start_s for w in windows], values).slope
    if not first or not last or slope is None or median <= 0 or float(np.median(first)) <= 0:
        return None
    over_run = slope * (windows[-1].start_s - windows[0].start_s) / median
    edges = float(np.median(last)) / float(np.median(first)) - 1
    return max(sign * over_run, sign * edges)


def worst_window(windows: Sequence[SoakWindow]) -> float | None:
    """By how much the worst window lies above the median window, as a fraction: the larger of TTFT
    p50 and of time per output token. None with too few windows or without a median."""
    if len(windows) < MIN_WINDOWS:
        return None
    ttft = [w.ttft_p50_s for w in windows if w.ttft_p50_s is not None]
    rate = [w.output_tok_per_s for w in windows if w.output_tok_per_s is not None]
    if not ttft or len(rate) != len(windows) or float(np.median(rate)) <= 0:
        return None
    slowest = max(ttft) / float(np.median(ttft))
    poorest = float(np.median(rate)) / max(min(rate), float(np.median(rate)) / MOST)
    return min(max(slowest, poorest), MOST) - 1
