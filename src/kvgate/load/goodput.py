"""The highest load that keeps a service level: what keeps it, and where to look next.

Goodput (DistServe, OSDI 2024) is the highest rate at which a set share of all requests keep every
limit. A request that failed keeps none. Latencies begin when the request was wanted, so waiting in
the client counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from kvgate.errors import UsageError
from kvgate.record import NS_PER_S, TTFT_INTENDED, Duration, Outcome, RequestRecord, tpot_s

_E2E_INTENDED: Final = Duration(
    "e2e", "intended_ns", "end_ns", "whole body after the moment the request was wanted"
)
_TEXT_INTENDED: Final = Duration(
    "ttft_text", "intended_ns", "first_text_ns", "first text after the request was wanted"
)
METRICS: Final[dict[str, Callable[[RequestRecord], float | None]]] = {
    "ttft": TTFT_INTENDED.of,
    "ttft_text": _TEXT_INTENDED.of,
    "tpot": tpot_s,
    "e2e": _E2E_INTENDED.of,
}


class ServiceLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in seconds by metric, and the share of all requests that must keep every one."""

    limits_s: dict[str, float]
    share: float = 0.99

    @property
    def sentence(self) -> str:
        """The service level in words."""
        limits = " and ".join(f"{name} <= {limit:g} s" for name, limit in self.limits_s.items())
        return f"{self.share:.4g} of all requests with {limits}"


def parse_service_level(texts: Sequence[str], share: float) -> ServiceLevel:
    """``["ttft=2", "tpot=0.05"]`` as limits. Raises :class:`UsageError`."""
    limits: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if name not in METRICS or not (0 < limit < math.inf):
            raise UsageError(
                f"--sla {text!r} is not METRIC=SECONDS", remedy=f"metrics: {', '.join(METRICS)}"
            )
        limits[name] = limit
    if not limits:
        raise UsageError("a search needs a service level", remedy="give --sla ttft=2 or the like")
    if not 0 < share <= 1:
        raise UsageError("--sla-share must be above 0 and at most 1")
    return ServiceLevel(limits_s=limits, share=share)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a search. ``missed`` counts, by metric, the good requests beyond that limit.

    ``keeping_per_s``: requests that kept every limit, by the time from the first one wanted to the
    last end; ``None`` without requests.
    """

    value: float
    requests: int
    failed: int
    kept: int
    missed: dict[str, int]
    keeping_per_s: float | None
    holds: bool


def judge_probe(value: float, records: Iterable[RequestRecord], level: ServiceLevel) -> Probe:
    """Whether a run kept the service level; a run without requests keeps none."""
    requests = failed = kept = 0
    missed = dict.fromkeys(level.limits_s, 0)
    first: int | None = None
    last = 0
    for record in records:
        requests += 1
        first = record.intended_ns if first is None else min(first, record.intended_ns)
        last = max(last, record.end_ns)
        if record.outcome is not Outcome.OK:
            failed += 1
            continue
        good = True
        for name, limit in level.limits_s.items():
            found = METRICS[name](record)
            # One token alone has no time per further token, and so breaks no limit of it.
            alone = name == "tpot" and record.output_tokens == 1
            if not alone and (found is None or found > limit):
                missed[name] += 1
                good = False
        kept += good
    lasted_ns = 0 if first is None else last - first
    return Probe(
        value=value,
        requests=requests,
        failed=failed,
        kept=kept,
        missed=missed,
        keeping_per_s=kept * NS_PER_S / lasted_ns if lasted_ns > 0 else None,
        holds=requests > 0 and kept >= level.share * requests,
    )


def next_value(
    probes: Sequence[Probe], low: float, high: float, *, tolerance: float, whole: bool
) -> float | None:
    """Where to probe next: the lower end, the upper end, then half-way between the highest value
    that holds and the lowest above it that does not; ``None`` when that is within ``tolerance``
    (a share of the higher one; whole numbers: or next to each other).

    Half-way is the geometric mean: loads are compared by their ratio.
    """
    if not probes:
        return low
    best, worst = bracket(probes)
    if best is None:
        return None
    if worst is None:
        return None if best >= high else high
    if worst - best <= tolerance * worst or (whole and worst - best <= 1):
        return None
    middle = math.sqrt(best * worst)
    if whole:
        middle = float(min(max(round(middle), best + 1), worst - 1))
    return middle


def bracket(probes: Sequence[Probe]) -> tuple[float | None, float | None]:
    """The highest value below the lowest failure, and the lowest failure; ``None`` without one.

    A value that holds above one that does not is noise or a cliff: the lower one decides.
    """
    worst = min((p.value for p in probes if not p.holds), default=None)
    below = [p.value for p in probes if p.holds and (worst is None or p.value < worst)]
    return max(below, default=None), worst
