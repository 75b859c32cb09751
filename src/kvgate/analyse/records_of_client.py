"""Whether the requests of a block are those that its client sent, and when it sent them. Pure.

Client and table are two witnesses of one block: a table from another block, or one whose times were
moved or stretched, contradicts what the client says of its own run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from kvgate.analyse.checks import NS, Block
from kvgate.analyse.counters import value
from kvgate.contract_tables import Validity
from kvgate.verdict import About, Condition


def records_of_client(limits: Validity, block: Block, requests: pd.DataFrame) -> Condition:
    """That every request bears the block's number, and that together they take as long as the
    client ran: it begins with its first request and ends with its last.

    Times are on one clock already. What a client may stand still and a clock may drift is allowed.
    """
    client = block.get("client")
    ends = (value(client, "started_ns"), value(client, "ended_ns"))
    known = len(requests) > 0 and None not in ends
    wrong: list[str] = []
    if known:
        allowed_s = limits.client_stall_s_at_most + limits.load_clock_drift_s_at_most
        wrong = list(_wrong(block, requests, ends, allowed_s))
    return Condition(
        "records_of_client",
        About.INSTRUMENT,
        not wrong if known else None,
        ("; ".join(wrong) or "as the client says") if known else None,
        "as the client says",
        "text",
        "requests.parquet and the client's report contradict each other: evidence was exchanged or "
        "changed; measure the block again",
    )


def _wrong(
    block: Block,
    requests: pd.DataFrame,
    ends: tuple[float | None, float | None],
    allowed_s: float,
) -> Iterator[str]:
    others = ~requests["request_id"].astype(str).str.startswith(f"b{int(block['n'])}-")
    if others.any():
        yield f"{int(others.sum())} requests of another block"
    apart = (
        ("first request", "start", int(requests["scheduled_ns"].min()), ends[0]),
        ("last end", "end", int(requests["end_ns"].max()), ends[1]),
    )
    for ours, theirs, found_ns, told_ns in apart:
        gap_s = (found_ns - int(told_ns or 0)) * NS
        if abs(gap_s) > allowed_s:
            yield f"{ours} {gap_s:+.3g} s from the client's {theirs}"
