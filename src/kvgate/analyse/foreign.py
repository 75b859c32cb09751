"""What a block from another tool's file does not prove, as conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kvgate.analyse.block import BlockStatistics
from kvgate.record import Lack
from kvgate.verdict import About, Condition

_REMEDIES: Final[Mapping[Lack, str]] = {
    Lack.REQUESTS: "export single requests (vLLM: --save-detailed), not totals",
    Lack.ISSUE_TIMES: "the file must say when each request was sent",
    Lack.TOKEN_TIMES: "the file must hold the arrival of each token or chunk",
    Lack.TOKEN_COUNTS: "token counts must come from the server's usage",
    Lack.PROMPT_IDENTITY: "prompts must be told apart, or repeats are answered from caches unseen",
    Lack.WHOLE_ANSWERS: "this tool takes a cut-off stream for a success",
    Lack.CLIENT_HEALTH: "nothing shows that the load host was not the bottleneck",
    Lack.CLOCK: "durations come from a clock that can step",
    Lack.COUNTERS: "give engine_before and engine_after: nothing else proves coldness",
}


def lacks_of(block: Mapping[str, Any]) -> frozenset[Lack] | None:
    """What the block's file does not carry; None for a block that we measured ourselves."""
    told = block.get("imported")
    if told is None:
        return None
    # A block that does not say what it lacks is unusable: KeyError and TypeError end there.
    return frozenset(Lack(name) for name in told["lacks"])


def foreign_conditions(block: Mapping[str, Any], lacks: frozenset[Lack]) -> Iterator[Condition]:
    """One condition for each guarantee; it holds where the file carries it.

    Counters may come from elsewhere: two metrics pages stand for them.
    """
    observation: Mapping[str, Any] = block.get("observation") or {}
    for lack in Lack:
        missing = lack in lacks
        if lack is Lack.COUNTERS and observation.get("targets"):
            missing = False
        yield Condition(
            f"file_has_{lack.value}",
            About.INSTRUMENT,
            None if missing else True,
            "missing" if missing else "present",
            "present",
            "text",
            _REMEDIES[lack],
        )


def known_only(statistics: BlockStatistics, lacks: frozenset[Lack]) -> BlockStatistics:
    """The statistics that the file's times can carry; what they cannot is missing, not guessed."""
    known = statistics
    if lacks & {Lack.TOKEN_TIMES, Lack.ISSUE_TIMES}:
        known = replace(known, output_tok_per_s=None, window_s=None, mean_in_flight_in_window=None)
    if Lack.TOKEN_TIMES in lacks:
        known = replace(
            known,
            itl_p50_s=None, itl_p99_s=None, itl_share=None, chunk_gap_p50_s=None,
            chunk_gap_p99_s=None, coalesced_share=None,
        )  # fmt: skip
    return known
