"""What G4's rules on a long run see, and how often window noise alone sets them off.

Run from the repository's root: ``python benchmarks/decision/soak_drift.py [--runs 2000]``.
Simulated; prints a markdown table of percentages. Exits 1 when noise of 3 % fails a good appliance
in more than 1 of 1000 runs, or when ten times the TTFT over the last two hours ever passes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from kvgate.analyse.estimate import slope_interval
from kvgate.analyse.results import SoakWindow
from kvgate.analyse.soak.windows import drift, worst_window

Floats = npt.NDArray[np.float64]
SEED: Final = 20_250_301
HOUR_S: Final = 3600.0
HOURS: Final = 72
WARMUP: Final = 1
EDGE_S: Final = 6 * HOUR_S
DRIFT_AT_MOST: Final = 0.10  # G4.2 and G4.10 of the lab's contracts
WORST_AT_MOST: Final = 0.5  # G4.11
RULES: Final = ("slope alone", "last against first", "drift clauses", "worst window", "any")


def noise(rng: np.random.Generator, sd: float, carry_over: float) -> Floats:
    """One run's deviations of the log, AR(1) with this standard deviation."""
    draws = rng.normal(size=HOURS)
    found = np.empty(HOURS)
    found[0] = draws[0]
    for k in range(1, HOURS):
        found[k] = carry_over * found[k - 1] + np.sqrt(1 - carry_over**2) * draws[k]
    return sd * found


def constant(_hours: Floats) -> Floats:
    return np.ones(HOURS)


def rising(by: float) -> Callable[[Floats], Floats]:
    return lambda hours: 1 + by * hours / HOURS


def from_hour(hour: int, factor: float, until: int = HOURS) -> Callable[[Floats], Floats]:
    return lambda hours: np.where((hours >= hour) & (hours < until), factor, 1.0)


CASES: Final[tuple[tuple[str, Callable[[Floats], Floats], float, float], ...]] = (
    ("good, noise 3 %", constant, 0.03, 0.0),
    ("good, noise 3 %, carried over 0.5", constant, 0.03, 0.5),
    ("good, noise 3 %, carried over 0.8", constant, 0.03, 0.8),
    ("good, noise 5 %", constant, 0.05, 0.0),
    ("good, noise 5 %, carried over 0.5", constant, 0.05, 0.5),
    ("10x over the last 2 h", from_hour(70, 10.0), 0.03, 0.0),
    ("10x over the last 18 h", from_hour(54, 10.0), 0.03, 0.0),
    ("10x in hour 40", from_hour(40, 10.0, 41), 0.03, 0.0),
    ("+20 % from hour 60", from_hour(60, 1.2), 0.03, 0.0),
    ("+60 % in hour 40", from_hour(40, 1.6, 41), 0.03, 0.0),
    ("+5 % over the run", rising(0.05), 0.03, 0.0),
    ("+15 % over the run", rising(0.15), 0.03, 0.0),
    ("+20 % over the run", rising(0.20), 0.03, 0.0),
)


def windows_of(ttft: Floats) -> list[SoakWindow]:
    """A closed loop: what is slower by a factor gives as much less."""
    return [
        SoakWindow(k * HOUR_S, (k + 1) * HOUR_S, 4000, 0, float(t), 75.0 / float(t), 1e9)
        for k, t in enumerate(ttft)
        if k >= WARMUP
    ]


def failed(windows: list[SoakWindow]) -> dict[str, bool]:
    """Which rule a run would fail."""
    ttft = [w.ttft_p50_s for w in windows if w.ttft_p50_s is not None]
    slope = slope_interval([w.start_s for w in windows], ttft).slope
    assert slope is not None
    over_run = slope * (windows[-1].start_s - windows[0].start_s) / float(np.median(ttft))
    first, last = np.median(ttft[:6]), np.median(ttft[-6:])
    rise = drift(windows, "ttft_p50_s", EDGE_S)
    fall = drift(windows, "output_tok_per_s", EDGE_S, sign=-1)
    worst = worst_window(windows)
    assert rise is not None
    assert fall is not None
    assert worst is not None
    drifts, peaks = max(rise, fall) > DRIFT_AT_MOST, worst > WORST_AT_MOST
    return {
        "slope alone": over_run > DRIFT_AT_MOST,
        "last against first": bool(last / first - 1 > DRIFT_AT_MOST),
        "drift clauses": drifts,
        "worst window": peaks,
        "any": drifts or peaks,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    hours = np.arange(HOURS, dtype=np.float64)
    print(f"| run of 72 h | {' | '.join(RULES)} |")
    print("|---|" + "---|" * len(RULES))
    broken = False
    for name, shape, sd, carry_over in CASES:
        rng = np.random.Generator(np.random.PCG64(SEED))
        counts = dict.fromkeys(RULES, 0)
        for _ in range(runs):
            ttft = 12.0 * shape(hours) * np.exp(noise(rng, sd, carry_over))
            for rule, fails in failed(windows_of(ttft)).items():
                counts[rule] += fails
        print(f"| {name} | {' | '.join(f'{100 * counts[r] / runs:.2f}' for r in RULES)} |")
        broken |= name == "good, noise 3 %" and counts["any"] > runs / 1000
        broken |= name == "10x over the last 2 h" and counts["any"] < runs
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
