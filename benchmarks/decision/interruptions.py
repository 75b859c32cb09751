"""What would it gain to break off pairs that look bad? Simulated for the looks of a contract.

Run from the repository's root: ``python benchmarks/decision/interruptions.py [--campaigns N]``.
The appliance lies exactly where it may pass in at most 5 % of campaigns. Its partisan sees one
session of each pair, or nearly all of the pair, and breaks it off where that is worse than a cut,
as often as the contract grants; the table shows the cut that pays best: first if only what was
drawn anew were judged, then by the rule, which wants the verdict in both histories.
Exits 1 where the rule lets more pass than 5 % and four standard errors.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.boundary import critical_values

PLANS: Final = ((6, 24, 0.05), (4, 12, 0.05))
GRANTED: Final = (0, 1, 2, 3, 5)
CUTS: Final = (-2.0, -1.5, -1.0, -0.5, 0.0)
SEEN: Final = (("one session", 0.5), ("nearly all", 0.95))
"""Share of a pair's variance that is known when it can still be broken off."""

SEED: Final = 20_250_302


def pass_rates(
    plan: tuple[int, int, float], granted: int, share: float, cut: float, campaigns: int
) -> tuple[float, float]:
    """Shares of campaigns of normal pairs, true mean zero, that cross with this policy: in what was
    drawn anew, and in that and in what was measured first."""
    _, max_pairs, _ = plan
    rng = np.random.Generator(np.random.PCG64(SEED))
    first = rng.standard_normal((campaigns, max_pairs))
    seen = first.copy()
    left = np.full(campaigns, granted)
    for pair in range(max_pairs):
        for _ in range(granted):
            again = (seen[:, pair] < cut) & (left > 0)
            left -= again
            seen[again, pair] = rng.standard_normal(int(again.sum()))
    unseen = np.sqrt(1.0 - share) * rng.standard_normal((campaigns, max_pairs))
    anew = _crosses(np.sqrt(share) * seen + unseen, plan)
    as_first = _crosses(np.sqrt(share) * first + unseen, plan)
    return float(anew.mean()), float((anew & as_first).mean())


def _crosses(x: NDArray[np.float64], plan: tuple[int, int, float]) -> NDArray[np.bool_]:
    """Which campaigns (rows) have a repeated lower bound above zero at some look."""
    min_pairs, max_pairs, alpha = plan
    n = np.arange(1, max_pairs + 1, dtype=np.float64)
    looks = slice(min_pairs - 1, max_pairs)
    mean = np.cumsum(x, axis=1) / n
    square = np.cumsum(x * x, axis=1) - n * mean * mean
    error = np.sqrt(square[:, looks] / (n[looks] - 1.0) / n[looks])
    critical = np.asarray(critical_values(min_pairs, max_pairs, alpha))
    crossed: NDArray[np.bool_] = np.any(mean[:, looks] > critical * error, axis=1)
    return crossed


def main() -> int:
    parser = argparse.ArgumentParser(description="What breaking off bad-looking pairs would gain.")
    parser.add_argument("--campaigns", type=int, default=50_000)
    campaigns = parser.parse_args().campaigns
    heads = " | ".join(f"{g} granted" for g in GRANTED)
    sys.stdout.write(f"| pairs | seen before | judged | {heads} |\n")
    sys.stdout.write(f"|---|---|---|{'---|' * len(GRANTED)}\n")
    bad = 0
    for plan in PLANS:
        allowed = plan[2] + 4.0 * np.sqrt(plan[2] * (1.0 - plan[2]) / campaigns)
        for name, share in SEEN:
            rates = [[pass_rates(plan, g, share, c, campaigns) for c in CUTS] for g in GRANTED]
            for which, judged in enumerate(("drawn anew alone", "in both histories")):
                best = [max(rate[which] for rate in of_cuts) for of_cuts in rates]
                cells = " | ".join(f"{100 * rate:.1f} %" for rate in best)
                sys.stdout.write(f"| {plan[0]} to {plan[1]} | {name} | {judged} | {cells} |\n")
            bad += sum(rate[1] > allowed for of_cuts in rates for rate in of_cuts)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
