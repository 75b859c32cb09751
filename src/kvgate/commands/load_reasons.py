"""Why requests failed, in the server's words, and why a run has no throughput, in ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import pandas as pd

from kvgate.analyse.block import BlockStatistics
from kvgate.record import NS_PER_S, Outcome

_MOST: Final = 160
_STATUS: Final = re.compile(r"HTTP \d{3}(?=: )")
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")


def said_by_server(error: str) -> str:
    """A request's error as one short line that cannot speak to a terminal.

    Of a body that is JSON only its message is kept: ``HTTP 404: The model `x` does not exist.``
    """
    status = _STATUS.match(error)
    head, body = ("", error) if status is None else (f"{status[0]}: ", error[status.end() + 2 :])
    line = " ".join(_UNSEEN.sub(" ", head + (_message(body) or body)).split())
    return line if len(line) <= _MOST else line[: _MOST - 3] + "..."


def _message(body: str) -> str | None:
    """The message in an error body of an engine, wherever engines put it."""
    try:
        found = json.loads(body)
    except ValueError:
        # A body that was cut off in the record still begins with its message.
        quoted = re.search(r'"(?:message|detail)"\s*:\s*"((?:[^"\\]|\\.)+)', body)
        return None if quoted is None else quoted[1].replace('\\"', '"')
    for key in ("error", "message", "detail"):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
    if isinstance(found, Mapping):
        found = found.get("message")
    return found if isinstance(found, str) and found.strip() else None


def first_errors(requests: pd.DataFrame) -> dict[str, str]:
    """Of each kind of failure the most frequent error, in words; kinds without any are left out."""
    failed = requests[(requests["outcome"] != Outcome.OK.value) & requests["error"].notna()]
    return {
        str(kind): said_by_server(str(errors.mode().iloc[0]))
        for kind, errors in failed.groupby("outcome")["error"]
    }


def served(requests: pd.DataFrame) -> tuple[float, float] | None:
    """(output tokens per s, s) of the good requests, from the first one wanted to the last token;
    None without any."""
    good = requests[requests["outcome"] == Outcome.OK.value]
    if good.empty or good["output_tokens"].isna().any():
        return None
    lasts_s = float(good["last_token_ns"].max() - good["intended_ns"].min()) / NS_PER_S
    return (float(good["output_tokens"].sum()) / lasts_s, lasts_s) if lasts_s > 0 else None


def no_throughput(
    statistics: BlockStatistics, requests: pd.DataFrame, *, open_loop: bool
) -> str | None:
    """Why a run that served requests has no steady throughput; None where it has one.

    In an open loop the arrivals decide it, so that only what was served over the whole run is
    told; a fixed concurrency needs requests enough for a window at that concurrency.
    """
    if statistics.n_ok == 0 or (statistics.output_tok_per_s and not open_loop):
        return None
    if open_loop:
        rate = served(requests)
        told = "" if rate is None else f": {rate[0]:.6g} tok/s were served over {rate[1]:.3g} s"
        return f"no steady window, since the arrivals decide the throughput{told}"
    level = statistics.level
    if statistics.window_s is None:
        why = f"the last issue came before completion number {level}"
    else:
        why = f"no token arrived in its {statistics.window_s:.3g} s"
    return f"no throughput: the steady window is empty ({why}); give at least {3 * level} requests"
