"""How often does each finding speak, under clean noise and under the noise that it is meant for?

Run from the repository's root: ``python benchmarks/decision/findings.py [--campaigns 1000]``.
Simulated; prints a markdown table of percentages.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Final

import numpy as np

from kvgate.analyse.estimate import estimate_effect
from kvgate.analyse.noise import Noise, draw

SEED: Final = 20_250_301
PAIR_SD: Final = 0.058
CODES: Final = ("robust_disagrees", "lag1", "drift", "order_effect")
KINDS: Final = (
    Noise("normal"),
    Noise("heavy_tails"),
    Noise("skewed"),
    Noise("carry_over", 0.3),
    Noise("carry_over", 0.5),
    Noise("effect_drift"),
)


def rates(noise: Noise, pairs: int, campaigns: int, order_log: float = 0.0) -> Counter[str]:
    """Findings counted over campaigns whose pairs run AB and BA in turn; ``order_log`` is taken
    from the benefit of pairs in which the tested arm runs second."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    values = draw(noise, rng, campaigns, pairs, np.array([PAIR_SD]), np.eye(1))[:, :, 0]
    second = [k % 2 == 0 for k in range(pairs)]
    values = values - order_log * np.asarray(second)
    found: Counter[str] = Counter()
    for campaign in values:
        found.update(estimate_effect(campaign.tolist(), tested_second=second).findings)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Rates of the findings under kinds of noise.")
    parser.add_argument("--campaigns", type=int, default=1_000)
    campaigns = parser.parse_args().campaigns
    sys.stdout.write("| noise | pairs | " + " | ".join(CODES) + " |\n" + "|---" * 6 + "|\n")
    rows = [(f"{k.kind} {k.amount:g}" if k.amount else k.kind, k, 0.0) for k in KINDS]
    rows.append(("order_effect 0.03", Noise("normal"), 0.06))
    for name, noise, order_log in rows:
        for pairs in (6, 12, 24):
            found = rates(noise, pairs, campaigns, order_log)
            cells = " | ".join(f"{100 * found[code] / campaigns:.1f}" for code in CODES)
            sys.stdout.write(f"| {name} | {pairs} | {cells} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
