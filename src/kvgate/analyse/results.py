"""What analysis hands to decision and report: blocks, pairs and observations, all plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvgate.analyse.block import BlockStatistics
from kvgate.plan import Cell
from kvgate.reason import Reason
from kvgate.verdict import About, Condition, Exclusion

INTERRUPTED: Final = "interrupted"
"""A session's state in ``plan.json``, and the condition that its blocks broke."""


@dataclass(frozen=True, slots=True)
class BlockResult:
    """One measured block: where it belongs, its one-number statistics, its validity.

    ``role`` is "reference" or "test"; ``pair`` is None for blocks outside pairs; ``position`` is
    the place of its session inside the pair (0 ran first); ``counters`` are the increases of engine
    and store counters over the block (None: missing); ``prompts`` is a digest of its prompts.
    """

    n: int
    session: int
    pair: int | None
    role: str
    position: int
    arm: str
    cell: Cell
    kind: str
    statistics: BlockStatistics
    conditions: tuple[Condition, ...]
    counters: Mapping[str, float | None]
    started_at: str
    restore_bytes_per_s: float | None = None
    prompts: str = ""

    @property
    def valid(self) -> bool:
        return bool(self.conditions) and all(c.ok is True for c in self.conditions)

    @property
    def interrupted(self) -> bool:
        """Of a session that an interruption broke off: measured anew under another number."""
        return any(c.name == INTERRUPTED and c.ok is not True for c in self.conditions)

    @property
    def failed_share(self) -> float | None:
        """Requests that did not succeed over requests sent."""
        n = self.statistics.n_requests
        return (n - self.statistics.n_ok) / n if n else None


@dataclass(frozen=True, slots=True)
class Answer:
    """One probe answer, by prompt: tokens and log-probabilities (nats) of each position."""

    block: int
    arm: str
    prompt_digest: str
    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    margins: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """A value of a metric at one place: a host's fact or a number of a long run.

    ``about`` says whom a value outside its limit speaks about; None leaves that to the metric.
    ``cause`` says why there is no value, or why it speaks about nobody but the appliance or not.
    """

    metric: str
    where: str
    value: float | str | None
    unit: str
    cause: Reason | None = None
    about: About | None = None


@dataclass(frozen=True, slots=True)
class SoakWindow:
    """One window of a long run; times in campaign seconds since its start.

    The shares are of the engine's prompt tokens in the window, ``bytes_share`` is bytes that the
    store read over those that the restored tokens need; ``excused`` where it touches the recovery
    from a proved planned fault.
    """

    start_s: float
    end_s: float
    n_requests: int
    n_failed: int
    ttft_p50_s: float | None
    output_tok_per_s: float | None
    resident_bytes: float | None
    restored_share: float | None = None
    engine_cache_share: float | None = None
    bytes_share: float | None = None
    excused: bool = False


@dataclass(frozen=True, slots=True)
class SoakEvent:
    """Something that happened in a long run: an injected fault with its proof, or a restart.

    ``ended_s`` is when the injection was over (None: not told); ``cause`` says ``detail`` in
    every language, where it was ours to say.
    """

    at_s: float
    kind: str
    detail: str
    proved: bool | None
    ended_s: float | None = None
    cause: Reason | None = None


class Ending(StrEnum):
    """Why nothing more was measured; ``plan.json`` holds it under ``ended``."""

    TARGET = "target"  # everything that was planned is measured
    ENOUGH = "enough"  # no further pair could change what the clauses say
    UNUSABLE = "unusable"  # not one pair could be used, so more of the same would not help
    REOPENED = "reopened"  # a change reopened a gate that this run builds on


@dataclass(frozen=True, slots=True)
class End:
    """What ``plan.json`` says of a run that says that it ended.

    ``why`` is None for a word that no run writes. ``pairs`` are those whose sessions ended, in the
    setup that has the fewest; ``running`` and ``broken`` are numbers of sessions: those that never
    ended, and those without a whole pair. ``sessions`` are the ones that ended; ``long_run``: there
    is a whole block of a long run.
    """

    why: Ending | None
    pairs: int = 0
    running: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    sessions: tuple[int, ...] = ()
    long_run: bool = False


Configuration = Mapping[str, Mapping[str, str]]
"""What was under test: kind (engine, tuning, ...) -> place -> what it said."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that the judge looks at; a pure function of the evidence bundle.

    ``samples`` holds, by block number, the single values of good requests, "ttft_s" and "itl_s" in
    campaign seconds, for whoever shows a distribution; no clause is judged by them.
    ``configuration`` is what was under test, kind -> place -> what it said; ``hours`` is how long
    the run took, None where its evidence does not tell. ``end`` is what the run says of its end.
    """

    blocks: tuple[BlockResult, ...]
    answers: tuple[Answer, ...]
    observed: tuple[Observed, ...]
    windows: tuple[SoakWindow, ...]
    events: tuple[SoakEvent, ...]
    expected_hosts: Mapping[str, tuple[str, ...]]
    time_scale: float
    samples: Mapping[int, Mapping[str, NDArray[np.float64]]] = field(default_factory=dict)
    configuration: Configuration = field(default_factory=dict)
    hours: float | None = None
    copied: tuple[tuple[int, int], ...] = ()
    soak_exclusions: tuple[Exclusion, ...] = ()
    end: End | None = None
