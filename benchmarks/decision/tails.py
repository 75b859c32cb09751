"""Does a clause on the tail (p99) hold its risks, and whom does it pass?

Run from the repository's root:

    python benchmarks/decision/tails.py [--campaigns 1000]

Simulated requests, not measured ones: log-normal times (within a block sd .25, between blocks
.041), with no stall, with 1 % of requests three times as slow ("rare"), or with one block in seven
in which 5 % of requests take 2.5 times as long ("bursts"). The clause is that of the FX100
contracts: p99 at most 10 % worse, zone 5 %, 6 to 24 pairs.
"""

from __future__ import annotations

import argparse
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.sequential import LookPlan, first_crossing
from kvgate.criterion import Effect, benefit

SEED: Final = 20_261_129
LOOKS: Final = LookPlan(6, 24, 0.05, 0.05 / 12, carry_over=0.3, sd_floor=0.0435)
THRESHOLD: Final = 0.10
ZONE: Final = 0.05
LEVELS: Final = (8, 16, 32)
PER_LEVEL: Final = 6
TAILS: Final = ("none", "rare", "bursts")


def block_p99(
    rng: np.random.Generator, blocks: int, requests: int, tail: str
) -> NDArray[np.float64]:
    """log p99 (type 7) of each of ``blocks`` blocks of ``requests`` requests."""
    logs = rng.normal(0.0, 0.041, (blocks, 1)) + rng.normal(0.0, 0.25, (blocks, requests))
    if tail == "rare":
        logs += np.log(3.0) * (rng.random(logs.shape) < 0.01)
    elif tail == "bursts":
        struck = (rng.random((blocks, 1)) < 0.15) & (rng.random(logs.shape) < 0.05)
        logs += np.log(2.5) * struck
    found: NDArray[np.float64] = np.log(np.quantile(np.exp(logs), 0.99, axis=1))
    return found


def outcomes(
    level: int, reference: str, test: str, rise: float, campaigns: int, seed: int = SEED
) -> dict[str, float]:
    """Share of campaigns by outcome; ``rise`` multiplies every time of the tested arm."""
    rng = np.random.default_rng((seed, level, campaigns))
    shape = (campaigns, LOOKS.max_pairs)
    requests = PER_LEVEL * level
    size = campaigns * LOOKS.max_pairs
    before = block_p99(rng, size, requests, reference).reshape(shape)
    after = block_p99(rng, size, requests, test).reshape(shape) + np.log1p(rise)
    bounds = benefit(Effect.RISE, THRESHOLD, ZONE)
    counts = {"pass": 0, "fail": 0, "open": 0}
    for values in bounds.sign * (after - before):
        crossing = first_crossing(
            values.tolist(), LOOKS, bounds.pass_bound, bounds.threshold, bounds.threshold
        )
        counts[crossing.outcome] += 1
    return {name: count / campaigns for name, count in counts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=1000)
    campaigns: int = parser.parse_args().campaigns
    print("| tail of the reference | of the appliance | true rise | PASS % at 8/16/32 | FAIL % |")
    print("|---|---|---:|---:|---:|")
    broken = False
    cases = [(t, t, THRESHOLD + ZONE) for t in TAILS] + [(t, t, 0.0) for t in TAILS]
    cases += [("none", "rare", 0.0), ("none", "bursts", 0.0)]
    for reference, test, rise in cases:
        found = [outcomes(level, reference, test, rise, campaigns) for level in LEVELS]
        passed = "/".join(f"{100 * f['pass']:.1f}" for f in found)
        failed = "/".join(f"{100 * f['fail']:.1f}" for f in found)
        print(f"| {reference} | {test} | {100 * rise:.0f} % | {passed} | {failed} |", flush=True)
        error = 3 * (0.05 * 0.95 / campaigns) ** 0.5
        if rise > THRESHOLD and max(f["pass"] for f in found) > 0.05 + error:
            broken = True
        if rise == 0 and reference == test and max(f["fail"] for f in found) > 0.01:
            broken = True
    print("a bound is broken" if broken else "both bounds hold")
    return int(broken)


if __name__ == "__main__":
    raise SystemExit(main())
