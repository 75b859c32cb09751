"""A long run as evidence would tell it, made by hand: nothing was measured.

A :class:`Story` is a quiet run; a test changes one thing of it and looks at the verdicts. Times are
campaign seconds, and the time scale is 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kvgate.analyse.assemble import RawBlock, assemble
from kvgate.analyse.results import Analysis
from kvgate.contract import Contract, SoakPlan
from kvgate.contract_gates import Canaries
from kvgate.verdict import Verdict

from .builders import contract, judged
from .test_validity import good, requests

Floats = npt.NDArray[np.float64]
S = 1_000_000_000
STEP_S = 2.0
"""Between two requests; ten times as long between two looks at the counters."""
TTFT_S = 6.0
E2E_S = 8.0
FAULT_TOOK_S = 40.0
WORDS = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")


def plan(terms: Contract | None = None) -> SoakPlan:
    found = (terms or contract()).gate(4).soak
    assert found is not None
    return found


W = plan().window_s
END = plan().duration_s
FAULT = plan().faults[0].at_s
LATE = END - 4 * W
"""Well after the fault and its recovery."""
STORE = ("store-appliance/lookup_tokens", "store-appliance/hit_tokens")
READ = "store-appliance/bytes_read"
EXTERNAL = "engine/prompt_tokens_external"


def canaries() -> Canaries:
    found = plan().canaries
    assert found is not None
    return found


def ns(seconds: Floats) -> Any:
    return pd.array([None if np.isnan(s) else round(s * S) for s in seconds], dtype="Int64")


def table(sent_s: Floats, ttft_s: Floats) -> pd.DataFrame:
    """Requests that all succeeded, issued at ``sent_s``."""
    first, n = sent_s + ttft_s, len(sent_s)
    return pd.DataFrame(
        {
            "request_id": [f"r{i}" for i in range(n)],
            "prompt_digest": [f"p{i}" for i in range(n)],
            "scheduled_ns": ns(sent_s), "sent_ns": ns(sent_s), "first_token_ns": ns(first),
            "last_token_ns": ns(first + (E2E_S - TTFT_S)), "end_ns": ns(first + E2E_S - TTFT_S),
            "output_tokens": pd.array([64] * n, dtype="Int64"),
            "prompt_tokens": pd.array([2048] * n, dtype="Int64"),
            "outcome": ["ok"] * n, "tokens": [None] * n, "token_logprobs": [None] * n,
            "top2_margin": [None] * n,
        }
    )  # fmt: skip


def words(prompt: int) -> list[str]:
    """The right answer to a canary's prompt: no two alike."""
    return [WORDS[prompt % 12], "x", "y"]


def answered(frame: pd.DataFrame, prompts: list[int]) -> pd.DataFrame:
    """The frame's rows as right answers to these prompts."""
    said: dict[str, Any] = {
        "prompt_digest": [f"canary-{p}" for p in prompts],
        "tokens": [words(p) for p in prompts],
        "token_logprobs": [[-0.1, -0.2, -0.3]] * len(frame),
        "top2_margin": [[1.0, 1.0, 1.0]] * len(frame),
    }
    return frame.assign(**said)


def reference_rows(after_s: float) -> pd.DataFrame:
    """The reference arm's right answers, asked once so many seconds after the start."""
    frame = answered(requests().iloc[:12], list(range(12)))
    moved = round(after_s * S)
    for column in [c for c in frame.columns if c.endswith("_ns")]:
        if column == "token_ns":
            frame[column] = [[stamp + moved for stamp in stamps] for stamps in frame[column]]
        elif column != "client_lag_ns":
            frame[column] = frame[column] + moved
    return frame


def restored(terms: Contract) -> dict[str, Floats]:
    """Tokens and bytes of each request, by counter."""
    n = round(plan(terms).duration_s / STEP_S)
    tokens = np.full(n, 2048.0)
    return {
        "engine/prompt_tokens": tokens.copy(),
        "engine/prompt_tokens_external": tokens.copy(),
        "engine/prompt_tokens_engine_cache": np.zeros(n),
        "store-appliance/lookup_tokens": tokens.copy(),
        "store-appliance/hit_tokens": tokens.copy(),
        "store-appliance/bytes_read": tokens * terms.model.kv_bytes_per_token,
    }


@dataclass
class Story:
    """A quiet run with its planned faults; every field may be changed before it is judged.

    ``ttft_s`` and ``sent_s`` are those of each request, ``counts`` what each added to a counter
    (NaN nowhere: take a counter out instead). ``restarted`` says when another process was first
    seen, ``restarts`` what the counters' increase says; ``resident`` is the engine's memory.
    """

    terms: Contract = field(default_factory=contract)
    frame: pd.DataFrame = field(init=False)
    canary: pd.DataFrame | None = field(init=False)
    references: list[pd.DataFrame] = field(init=False)
    counts: dict[str, Floats] = field(init=False)
    restarted: dict[str, list[float]] = field(init=False)
    restarts: dict[str, int | None] = field(init=False)
    resident: Floats = field(init=False)
    block: dict[str, Any] = field(init=False)
    times: int = 1

    def __post_init__(self) -> None:
        soak = plan(self.terms)
        self.sent_s = np.arange(0.0, soak.duration_s, STEP_S)
        self.frame = table(self.sent_s, np.full(len(self.sent_s), TTFT_S))
        asked = np.arange(0.0, soak.duration_s, canaries().every_s)
        round_ = [i % 12 for i in range(len(asked))]
        self.canary = answered(table(asked, np.full(len(asked), TTFT_S)), round_)
        self.references = [reference_rows(0.0), reference_rows(soak.duration_s + 600)]
        self.counts = restored(self.terms)
        self.restarted = {"store-appliance": [f.at_s + 20 for f in soak.faults]}
        self.restarts = {"engine": 0, "store-appliance": len(soak.faults), "store-baseline": 0}
        self.resident = np.full(round(soak.duration_s / 20), 1e9)
        self.block = {
            "n": 2, "kind": "soak", "arm": "appliance", "role": "soak",
            "cell": {"workload": "cold_restore", "level": soak.level},
            "load_state": "done", "primed_tokens": 104 * 2048, "duration_s": soak.duration_s,
            "time_scale": 1.0, "prompts": {"pool": "p", "first": 0, "count": 104},
            "client": {
                "state": "done", "loop_stall_p99_ns": 1_000_000, "cpu_s": 0.2, "wall_s": 1.0,
                "mean_in_flight": 7.9, "clock_offset_start_ns": 5, "clock_offset_end_ns": 9,
            },
            "calibration": {"attempts": [{
                "level": soak.level, "requests": 16, "failed": 0, "ttft_error_p99_ms": 1.0,
                "first_token_lag_p99_ms": 0.1, "held": soak.level, "cpu_share": 0.1,
            }]},
            "observation": {
                "started_ns": 0, "ended_ns": round(soak.duration_s * S), "gaps": [],
                "coverage": {"engine": 1.0, "host": 1.0}, "coverage_share": 1.0,
            },
            "events": [
                {"at_s": f.at_s, "ended_s": f.at_s + FAULT_TOOK_S, "kind": f.kind,
                 "detail": "pids differ", "proved": True}
                for f in soak.faults
            ],
        }  # fmt: skip

    # --- changes ----------------------------------------------------------------------------

    def within(self, low_s: float, high_s: float) -> Any:
        """Requests sent in a stretch, as a mask."""
        return (self.sent_s >= low_s) & (self.sent_s < high_s)

    def slow(self, low_s: float, high_s: float, factor: float) -> Story:
        """TTFT of the requests sent in a stretch times ``factor``."""
        ttft = np.where(self.within(low_s, high_s), TTFT_S * factor, TTFT_S)
        self.frame = table(self.sent_s, ttft)
        return self

    def fail(self, low_s: float, high_s: float, every: int = 1, kind: str = "timeout") -> Story:
        """Every ``every``-th request sent in a stretch failed."""
        chosen = np.flatnonzero(self.within(low_s, high_s))[::every]
        self.frame.loc[chosen, "outcome"] = kind
        return self

    def without(self, low_s: float, high_s: float) -> Story:
        """No request was recorded in a stretch, and no counter moved."""
        keep = ~self.within(low_s, high_s)
        self.frame = self.frame[keep].reset_index(drop=True)
        for name in self.counts:
            self.counts[name] = np.where(keep, self.counts[name], 0.0)
        return self

    def lost(self, low_s: float, high_s: float, *names: str, share: float = 1.0) -> Story:
        """Counters that did not move for a share of the requests of a stretch."""
        for name in names:
            gone = np.where(self.within(low_s, high_s), share, 0.0)
            self.counts[name] = self.counts[name] * (1 - gone)
        return self

    def ended(self, at_s: float) -> Story:
        """The breaker ended the run."""
        self.frame = self.frame[self.sent_s < at_s].reset_index(drop=True)
        assert self.canary is not None
        asked = self.canary["sent_ns"] < at_s * S
        self.canary = self.canary[asked].reset_index(drop=True)
        self.block["observation"]["ended_ns"] = round(at_s * S)
        breaker = {"at_s": at_s, "kind": "breaker", "detail": "too many failed", "proved": True}
        events = [e for e in self.block["events"] if e["at_s"] < at_s]
        self.restarts["store-appliance"] = len(events)
        self.restarted["store-appliance"] = self.restarted["store-appliance"][: len(events)]
        return self.told(load_state="interrupted", client=None, events=[*events, breaker])

    def told(self, **changed: Any) -> Story:
        """Keys of block.json replaced."""
        self.block |= changed
        return self

    # --- judging ----------------------------------------------------------------------------

    def analysis(self) -> Analysis:
        soak = [
            RawBlock(2 + 10 * i, self._told(), self.frame, self._engine())
            for i in range(self.times)
        ]
        beside = [] if self.canary is None else [self._canary()]
        before = [self._reference(n, frame) for n, frame in enumerate(self.references)]
        return assemble(self.terms, 4, [*before, *soak, *beside], {}, {}, 1.0)

    def verdicts(self) -> dict[str, Verdict]:
        return {c.metric: c.verdict for c in judged(self.analysis(), gate=4).clauses}

    def reasons(self) -> dict[str, str]:
        return {c.metric: str(c.reason) for c in judged(self.analysis(), gate=4).clauses}

    def broken(self) -> set[str]:
        return {e.condition.name for e in self.analysis().soak_exclusions}

    def _told(self) -> dict[str, Any]:
        block = copy.deepcopy(self.block)
        block.setdefault("requests_recorded", len(self.frame))
        observation = block.get("observation")
        if isinstance(observation, dict) and observation:
            observation.setdefault("targets", self._targets())
        read = self.counts.get("store-appliance/bytes_read")
        block.setdefault("moved", {"bytes": None if read is None else float(read.sum())})
        return block

    def _targets(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for name, again in self.restarts.items():
            delta = {
                key.partition("/")[2]: float(values.sum())
                for key, values in self.counts.items()
                if key.startswith(f"{name}/")
            }
            held = {"stored_tokens": 104 * 2048, "errors": 0} if name != "engine" else {}
            found[name] = {
                "before": held, "after": {},
                "increase": {"restarts": again, "delta": {"late_s": 0.0, **delta}},
            }  # fmt: skip
        return found

    def _engine(self) -> pd.DataFrame:
        """Looks at the counters: each shows what the requests sent so far have added."""
        ticks = np.arange(0.0, plan(self.terms).duration_s + 1, 10 * STEP_S)
        rows: list[pd.DataFrame] = []

        def add(source: str, name: str, at_s: Floats, values: Floats) -> None:
            rows.append(pd.DataFrame({"t_ns": (at_s * S).astype(np.int64), "source": source,
                                      "name": name, "value": values}))  # fmt: skip

        for key, values in self.counts.items():
            source, _, name = key.partition("/")
            total = np.concatenate([[0.0], np.cumsum(values)])
            seen = total[np.searchsorted(self.sent_s, ticks)]
            add(source, name, ticks, np.asarray(seen, dtype=np.float64))
        for source in self.restarts:
            starts = np.zeros(len(ticks))
            for at_s in self.restarted.get(source, []):
                starts += np.where(ticks >= at_s, 1000.0, 0.0)
            add(source, "process_start_time_ms", ticks, starts + 1e12)
        if len(self.resident):
            add(
                "engine",
                "resident_bytes",
                20 * np.arange(len(self.resident), dtype=np.float64),
                self.resident,
            )
        return pd.concat(rows, ignore_index=True)

    def _canary(self) -> RawBlock:
        assert self.canary is not None
        block = {
            "n": 3, "kind": "canary", "arm": "appliance", "load_state": "done",
            "cell": {"workload": "probe", "level": 2}, "requests_recorded": len(self.canary),
        }  # fmt: skip
        return RawBlock(3, block, self.canary, pd.DataFrame())

    def _reference(self, n: int, frame: pd.DataFrame) -> RawBlock:
        block = good()
        total = len(frame) * 2048
        block |= {
            "n": n, "arm": "recompute", "role": "reference", "kind": "probe", "session": n,
            "pair": None, "position": 0, "started_at": "2026-03-04T10:00:00+00:00",
            "cell": {"workload": "probe", "level": 2}, "requests_planned": len(frame),
            "requests_recorded": len(frame), "prompts": {"pool": "c", "first": 0, "count": 12},
        }  # fmt: skip
        frame = frame.assign(request_id=[f"b{n}-{i}" for i in range(len(frame))])
        block["client"] |= {
            "started_ns": int(frame["scheduled_ns"].min()), "ended_ns": int(frame["end_ns"].max()),
        }  # fmt: skip
        attempts = block["calibration"]["attempts"]
        block["calibration"]["attempts"] = [attempt | {"level": 2} for attempt in attempts]
        delta = block["observation"]["targets"]["engine"]["increase"]["delta"]
        delta |= {"prompt_tokens": total, "prompt_tokens_computed": total,
                  "prompt_tokens_external": 0, "generation_tokens": len(frame) * 64}  # fmt: skip
        store = block["observation"]["targets"]["store-appliance"]["increase"]["delta"]
        store |= {"lookup_tokens": 0, "bytes_read": 0}
        return RawBlock(n, block, frame, pd.DataFrame())
