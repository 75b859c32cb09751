"""Do the critical values cross as often as they promise? Simulated, one million campaigns a plan.

Run from the repository's root: ``python benchmarks/decision/boundaries.py [--campaigns N]``.
Exits 1 when a rate strays from its promise by more than four standard errors.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Final

import numpy as np

from kvgate.analyse.boundary import critical_values

PLANS: Final = ((4, 12, 0.05), (2, 48, 0.2), (6, 24, 0.05 / 6), (2, 48, 0.001))
SEED: Final = 20_250_301
BATCH: Final = 50_000


def crossing_rate(min_pairs: int, max_pairs: int, alpha: float, campaigns: int, seed: int) -> float:
    """Share of campaigns of normal pairs, true mean zero, with a lower bound above zero."""
    rng = np.random.Generator(np.random.PCG64(seed))
    critical = np.asarray(critical_values(min_pairs, max_pairs, alpha))
    n = np.arange(1, max_pairs + 1, dtype=np.float64)
    looks = slice(min_pairs - 1, max_pairs)
    crossed = 0
    for start in range(0, campaigns, BATCH):
        x = rng.standard_normal((min(BATCH, campaigns - start), max_pairs))
        mean = np.cumsum(x, axis=1) / n
        square = np.cumsum(x * x, axis=1) - n * mean * mean
        error = np.sqrt(square[:, looks] / (n[looks] - 1.0) / n[looks])
        crossed += int(np.any(mean[:, looks] > critical * error, axis=1).sum())
    return crossed / campaigns


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the critical values by simulation.")
    parser.add_argument("--campaigns", type=int, default=1_000_000)
    campaigns = parser.parse_args().campaigns
    sys.stdout.write(
        "| plan | promised | crossed in simulation | standard error |\n|---|---|---|---|\n"
    )
    bad = 0
    for low, high, alpha in PLANS:
        rate = crossing_rate(low, high, alpha, campaigns, SEED)
        error = math.sqrt(alpha * (1.0 - alpha) / campaigns)
        bad += abs(rate - alpha) > 4.0 * error
        cells = f"{100 * alpha:.3g} % | {100 * rate:.3f} % | {100 * error:.3f}"
        sys.stdout.write(f"| {low} to {high} pairs | {cells} |\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
