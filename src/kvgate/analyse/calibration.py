"""Whether the load host can hold a block's level, from its error budget in ``block.json``. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvgate.analyse.checks import Block, at_most
from kvgate.analyse.counters import value
from kvgate.analyse.load_hosts import load_hosts_of
from kvgate.contract_tables import Validity
from kvgate.verdict import About, Condition


def holds(limits: Validity, calibration: Mapping[str, Any] | None, level: int) -> bool:
    """Whether the last attempt kept every limit at ``level``."""
    return client_holds_level(limits, calibration, level).ok is True


def client_holds_level(
    limits: Validity, calibration: Mapping[str, Any] | None, level: int
) -> Condition:
    """The condition of that name. Its value is the largest share that any figure of the error
    budget takes of its limit: 1 is the limit itself, and failed requests are beyond it."""
    return at_most(
        "client_holds_level",
        About.INSTRUMENT,
        _largest_share(limits, _last(calibration), level),
        1.0,
        "1",
        "against a truth server the client could not hold the level: see calibration in "
        "block.json, free the load host or use a faster one",
    )


def clients_hold_level(limits: Validity, block: Block, level: int) -> Condition:
    """:func:`client_holds_level` of the block's client, or of the worst of its load hosts, each at
    its own share of the level; shares that are not the level are held by nobody."""
    hosts = load_hosts_of(block)
    if hosts is None:
        return client_holds_level(limits, block.get("calibration"), level)
    shares = [value(said, "level") or 0 for said in hosts.values()]
    found = [
        # Several clients of one host are held by it together.
        client_holds_level(limits, said.get("calibration"), int(value(said, "host_level") or share))
        for said, share in zip(hosts.values(), shares, strict=True)
    ]
    if sum(shares) != level:
        return client_holds_level(limits, None, level)
    return max(found, key=lambda c: math.inf if c.ok is None else float(c.value or 0))


def _last(calibration: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    attempts = None if calibration is None else calibration.get("attempts")
    if not isinstance(attempts, list) or not attempts or not isinstance(attempts[-1], Mapping):
        return None
    last: Mapping[str, Any] = attempts[-1]
    return last


def _largest_share(limits: Validity, budget: Mapping[str, Any] | None, level: int) -> float | None:
    """None where a figure is missing, or where another level was tried."""
    tried, requests, failed = (value(budget, n) for n in ("level", "requests", "failed"))
    if tried != level or not requests or failed is None:
        return None
    if failed:
        return 1.0 + failed / requests
    held = value(budget, "held")
    ttft_ms, lag_ms = value(budget, "ttft_error_p99_ms"), value(budget, "first_token_lag_p99_ms")
    cpu = value(budget, "cpu_share")
    if held is None or held <= 0 or ttft_ms is None or lag_ms is None or cpu is None:
        return None
    return max(
        ttft_ms / 1000 / limits.calibration_ttft_error_s_at_most,
        lag_ms / 1000 / limits.calibration_lag_s_at_most,
        cpu / limits.calibration_cpu_share_at_most,
        limits.calibration_in_flight_share_at_least * level / held,
    )
