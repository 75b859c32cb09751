"""A made-up block of a cold restore, seen through the counters that a golden page has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd

from kvgate.analyse.acknowledged import TAKES
from kvgate.analyse.block import block_statistics
from kvgate.analyse.validity import conditions
from kvgate.conduct.block import Bench, moved_bytes
from kvgate.contract import Contract, load_contract
from kvgate.drive.arms import RunningArm
from kvgate.observe.adapters import adapter_for
from kvgate.observe.counters import EngineCounters, StoreCounters, increase
from kvgate.observe.exposition import parse
from kvgate.observe.observation import Observation, TargetView
from kvgate.observe.rows import Rows
from kvgate.verdict import Condition

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
LEVEL, COUNT, PROMPT, OUTPUT = 8, 48, 2048, 64
TOKENS = COUNT * PROMPT
S = 1_000_000_000

STORES = sorted(
    p.stem for p in GOLDEN.glob("*.prom") if adapter_for(p.stem.split("-")[0]).role == "store"
)
ENGINES = sorted({p.stem for p in GOLDEN.glob("*.prom")} - set(STORES))
TOO_OLD = {"vllm-gpu-names", "vllm-both-names"}
"""Engines of before connectors: nothing on their pages tells where tokens came from."""
WITNESS = {"mooncake-master": "rdma", "lmcache-disk": "rdma"}
"""Who counts the bytes where the page itself counts none; ``store`` for the others."""


def terms() -> Contract:
    """The lab's conditions: nothing may be simulated."""
    contract = load_contract(ROOT / "gates" / "contracts" / "rehearsal.toml")
    # Not every page tells how full its store is: a contract plans that only where one does.
    validity = contract.validity.model_copy(
        update={"simulator_late_s_at_most": None, "fill_share_at_most": None}
    )
    return contract.model_copy(update={"validity": validity})


CONTRACT = terms()
KV = CONTRACT.model.kv_bytes_per_token


def names_on(page: str) -> frozenset[str]:
    counters = adapter_for(page.split("-")[0]).read(parse((GOLDEN / f"{page}.prom").read_text()))
    return frozenset(k for k, v in counters.to_json().items() if v is not None)


def only(page: str, values: Mapping[str, float]) -> dict[str, float | None]:
    on_page = names_on(page)
    return {name: value for name, value in values.items() if name in on_page}


EMPTY = dict.fromkeys(
    ("stored_tokens", "used_bytes", "bytes_written", "accepted_tokens", "pending_bytes",
     "pending_chunks", "errors",
     "lookup_tokens", "lookups", "hit_tokens", "hit_tokens_dram", "hit_tokens_backend", "loads",
     "bytes_read"), 0.0,
)  # fmt: skip
PRIMED = EMPTY | {"stored_tokens": TOKENS, "used_bytes": TOKENS * KV, "bytes_written": TOKENS * KV,
                  "accepted_tokens": TOKENS}  # fmt: skip
ASKED = PRIMED | {"lookup_tokens": TOKENS, "lookups": COUNT}
RESTORED = ASKED | {
    "hit_tokens": TOKENS, "hit_tokens_backend": TOKENS, "loads": COUNT, "bytes_read": TOKENS * KV,
}  # fmt: skip


def store_view(page: str, before: Mapping[str, float], after: Mapping[str, float]) -> TargetView:
    old, new = (StoreCounters.from_json(only(page, v)) for v in (before, after))
    return TargetView("store", page.split("-")[0], "store", old, new, increase(old, new))


def engine_view(page: str, external: float) -> TargetView:
    zero = dict.fromkeys(names_on(page) - {"process_start_time_ms"}, 0.0)
    moved = {
        "prompt_tokens": TOKENS, "prompt_tokens_external": external,
        "prompt_tokens_computed": TOKENS - external, "external_queries": TOKENS,
        "external_hits": external, "generation_tokens": COUNT * OUTPUT, "prefix_queries": TOKENS,
    }  # fmt: skip
    old = EngineCounters.from_json(zero)
    new = EngineCounters.from_json(zero | only(page, moved))
    return TargetView("engine", "vllm", "engine", old, new, increase(old, new))


def observed(engine: TargetView, store: TargetView, other: TargetView, rdma: float) -> Observation:
    host = Rows()
    for at, value in ((0, 1e15), (S, 1e15 + rdma)):
        host.add(at, "rdma:mlx5_0/1", "rx_bytes", value)
    targets = {"engine": engine, "store-appliance": store, "store-baseline": other}
    return Observation(
        period_s=1.0, started_ns=0, ended_ns=S, engine=Rows(), store=Rows(), host=host,
        targets=targets, coverage=dict.fromkeys((*targets, "host"), 1.0), coverage_share=1.0,
        gaps=(), notes=(), clock=None, clock_steps=(),
    )  # fmt: skip


def requests() -> pd.DataFrame:
    rows = []
    for i in range(COUNT):
        sent = S * (1 + i // LEVEL)
        stamps = [sent + 100_000_000 + 1_000_000 * k for k in range(OUTPUT)]
        rows.append({
            "request_id": f"b3-{i}", "load_host": "h", "prompt_digest": f"p{i}",
            "intended_ns": sent, "scheduled_ns": sent, "connected_ns": sent, "sent_ns": sent,
            "first_byte_ns": stamps[0], "first_token_ns": stamps[0], "first_text_ns": stamps[0],
            "last_token_ns": stamps[-1], "end_ns": stamps[-1], "token_ns": stamps,
            "coalesced": [], "prompt_tokens": PROMPT, "output_tokens": OUTPUT, "cached_tokens": 0,
            "finish_reason": "length", "outcome": "ok", "error": None, "client_lag_ns": 1000,
            "answer_digest": "d", "tokens": None, "token_logprobs": None, "top2_margin": None,
        })  # fmt: skip
    return pd.DataFrame(rows)


def broken(
    engine_page: str,
    page: str,
    after: Mapping[str, float],
    external: float,
    *,
    other_after: Mapping[str, float] = PRIMED,
    before: Mapping[str, float] = PRIMED,
    role: str = "test",
    moved: float | None = None,
) -> dict[str, Condition]:
    """The conditions that a block of the appliance arm breaks when the store moved so."""
    told = observed(
        engine_view(engine_page, external),
        store_view(page, before, after),
        store_view(page, PRIMED, other_after),
        external * KV,
    )
    inventory = SimpleNamespace(store_bytes=WITNESS.get(page, "store"))
    bench = cast(Bench, SimpleNamespace(inventory=inventory, contract=CONTRACT))
    arm = RunningArm("appliance", "appliance", {}, {}, ())
    by = next((name for name in TAKES if name in names_on(page)), None)
    block: dict[str, Any] = {
        "n": 3, "arm": "appliance", "role": role, "kind": "cold_restore",
        "cell": {"workload": "cold_restore", "level": LEVEL},
        "requests_planned": COUNT, "prompt_tokens_each": PROMPT, "output_tokens_each": OUTPUT,
        "prompts": {"pool": "p", "first": 0, "count": COUNT}, "stores_stay_up": True,
        "primed_tokens": TOKENS, "primed_by": by, "duration_s": TOKENS * KV / 6e9,
        "client": {
            "state": "done", "loop_stall_max_ns": 1_000_000, "cpu_s": 0.2, "wall_s": 1.0,
            "mean_in_flight": 7.9, "clock_offset_start_ns": 5, "clock_offset_end_ns": 9,
        },
        "calibration": {"attempts": [{
            "level": LEVEL, "requests": 16, "failed": 0, "ttft_error_p99_ms": 1.0,
            "first_token_lag_p99_ms": 0.1, "held": 7.9, "cpu_share": 0.1,
        }]},
        "observation": told.to_json(),
        "moved": moved_bytes(bench, arm, told, [told.host]),
    }  # fmt: skip
    if moved is not None:
        block["moved"] = {"bytes": moved}
    block = json.loads(json.dumps(block))
    frame = requests()
    block["client"] |= {
        "started_ns": int(frame["scheduled_ns"].min()), "ended_ns": int(frame["end_ns"].max()),
    }  # fmt: skip
    found = conditions(CONTRACT, block, frame, block_statistics(frame, LEVEL))
    return {c.name: c for c in found if c.ok is not True}
