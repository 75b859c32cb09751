"""Did the engines serve our requests, all of them, and nobody else's? Pure.

Shares of an engine's own counters cannot tell: they stay what they are when a stranger's requests
are among them, when two ports lead to one engine, and when records claim what nobody served.
"""

from __future__ import annotations

import pandas as pd

from kvgate.analyse.checks import Block
from kvgate.analyse.counters import ENGINE, grown, restarts
from kvgate.contract import Contract
from kvgate.record import Outcome
from kvgate.reuse import prompt_lengths
from kvgate.verdict import About, Condition


def engine_served_ours(contract: Contract, block: Block, requests: pd.DataFrame) -> Condition:
    """Whether prompt and answer tokens that all engines counted lie between those of the good
    requests and what all requests can have asked for.

    The value is the larger of the two shares by which a count lies outside; None where a counter,
    the table or a good request's own count is missing. Fewer than recorded speaks about the
    instrument, unless an engine was restarted and its count is a lower bound.
    """
    answers = int(block["output_tokens_each"])
    off = [
        # An engine may count its last step only after it has said it: one token of each answer.
        _outside(grown(block, ENGINE, counter), _between(block, requests, column, most_each, spare))
        for counter, column, most_each, spare in (
            ("prompt_tokens", "prompt_tokens", _longest_prompt(contract, block), 0),
            ("generation_tokens", "output_tokens", answers, 1),
        )
    ]
    known = [share for share in off if share is not None]
    worst = max(known, key=abs) if len(known) == len(off) else None
    fewer = worst is not None and worst < 0 and restarts(block, ENGINE) == 0
    limit = contract.validity.engine_count_within
    return Condition(
        "engine_served_ours",
        About.INSTRUMENT if fewer else About.ENVIRONMENT,
        None if worst is None else abs(worst) <= limit,
        None if worst is None else abs(worst),
        limit,
        "1",
        "the engines counted other tokens than our clients: look for requests of others, for two "
        "ports that lead to one engine, and where they counted fewer for records that claim more",
    )


def _longest_prompt(contract: Contract, block: Block) -> int:
    if block["kind"] != "multi_turn":
        return int(block["prompt_tokens_each"])
    workload = contract.workloads[str(block["cell"]["workload"])]
    planned = prompt_lengths(workload, int(block["requests_planned"]))
    return max(planned or {int(block["prompt_tokens_each"]): 0})


def _between(
    block: Block, requests: pd.DataFrame, column: str, most_each: int, spare: int
) -> tuple[float, float] | None:
    """(least, most) tokens that the engines must have counted; ``spare`` may lack of each good
    request. A request that failed, or is not on record, had none or as many as planned."""
    if not len(requests):
        return None
    # One that is on record twice was asked once.
    requests = requests.drop_duplicates("request_id")
    good, tokens = requests["outcome"] == Outcome.OK.value, pd.to_numeric(requests[column])
    told = tokens[good]
    if bool(told.isna().any()):
        return None
    failed = tokens[~good].fillna(0).clip(lower=most_each)
    unrecorded = max(0, int(block["requests_planned"]) - len(requests))
    least = float((told - spare).clip(lower=0).sum())
    return least, float(told.sum()) + float(failed.sum()) + unrecorded * most_each


def _outside(counted: float | None, between: tuple[float, float] | None) -> float | None:
    """By which share of the most a count lies above (positive) or below it (negative)."""
    if counted is None or between is None:
        return None
    least, most = between
    if most <= 0:
        return None
    return max(0.0, counted - most) / most or -max(0.0, least - counted) / most
