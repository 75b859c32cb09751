"""One million requests judged: seconds and memory of ``kvgate judge BUNDLE --json``.

``python benchmarks/judge/bench.py [--requests 1000000] [--repeat 2] [--json FILE]``

Writes a sealed bundle of G3 of the rehearsal's contract, whose blocks are only larger; every figure
in it is made up. Then judges it in a process of its own, as a stranger would. Exit 1 when the best
repeat takes over 10 s or any over 2 GiB, or when the bytes differ from the stored verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kvgate.adjudicate import adjudicate
from kvgate.campaign import CampaignFacts, Mode
from kvgate.contract import Contract, parse_contract
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import REQUESTS_SCHEMA, request_writer
from kvgate.plan import Cell, Session, pair_order, reference_sessions, requests_in

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 10.0
LIMIT_BYTES: Final = 2 << 30
PAIRS: Final = 10
SECOND: Final = 1_000_000_000
FASTER: Final = 1.5
"""The made-up appliance: a third less TTFT than the reference."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as scratch:
        root = Path(scratch) / "g3-001"
        began = time.perf_counter()
        rows = write_bundle(root, given.requests)
        size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
        sys.stdout.write(
            f"{rows:,} requests in {size / 1e6:.0f} MB, written and judged in "
            f"{time.perf_counter() - began:.0f} s\n"
        )
        runs = [judge_once(root) for _ in range(given.repeat)]
    for run in runs:
        sys.stdout.write(
            f"{run['seconds']:.1f} s ({run['cpu_s']:.1f} s of processors), "
            f"{run['peak_bytes'] / 2**20:.0f} MiB, exit {run['exit']}, "
            f"stored verdict {run['stored']}\n"
        )
    kept = (
        min(run["seconds"] for run in runs) <= LIMIT_S
        and max(run["peak_bytes"] for run in runs) <= LIMIT_BYTES
        and all(run["exit"] == 0 and run["stored"] == "identical" for run in runs)
    )
    limits = f"limits {LIMIT_S:.0f} s, {LIMIT_BYTES / 2**20:.0f} MiB"
    sys.stdout.write(f"{limits}: {'kept' if kept else 'NOT KEPT'}\n")
    if given.json is not None:
        given.json.write_text(json.dumps({"requests": rows, "runs": runs, "kept": kept}, indent=2))
    return 0 if kept else 1


def judge_once(root: Path) -> dict[str, Any]:
    """Wall seconds and peak resident bytes of one judge, and whether its bytes are the stored."""
    out = root.parent / "judged.json"
    began = time.perf_counter()
    command = [sys.executable, "-m", "kvgate.cli", "judge", str(root), "--json"]
    with out.open("wb") as target:
        child = subprocess.Popen(command, stdout=target, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    same = out.read_bytes() == (root / "verdict.json").read_bytes()
    return {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "exit": os.waitstatus_to_exitcode(status),
        "stored": "identical" if same else "differs",
    }


def write_bundle(root: Path, requests: int) -> int:
    """The sealed bundle; returns the number of its requests."""
    text = (ROOT / "gates" / "contracts" / "rehearsal.toml").read_text()
    shape = 'kind = "cold_restore"\nprompt_tokens = 2048\noutput_tokens = 64\n'
    assert text.count(shape) == 1
    sessions_of_pairs = 2 * PAIRS
    per_level = -(-requests // (sessions_of_pairs * (8 + 16 + 32)))
    data = text.replace(shape, f"{shape}requests_per_level = {per_level}\n").encode()
    contract = parse_contract(data, name="bench")
    plan = contract.gate(3).pairs
    assert plan is not None
    sessions = list(reference_sessions(contract, 3))
    for pair in range(PAIRS):
        sessions.extend(pair_order(contract, 3, plan, pair, 1).sessions)
    told = {arm: {"engine": "bench 1.0", "model_digest": "bench"} for arm in contract.arms}
    rng = np.random.default_rng(1)
    n = rows = 0
    with Journal(root) as journal:
        journal.write_bytes("contract.toml", data)
        journal.write_json("inventory.json", {"hosts": {}})
        journal.write_json("campaign.json", _campaign(contract))
        journal.write_json("plan.json", {"gate": 3, "sessions": [], "environment": told})
        for number, session in enumerate(sessions):
            for cell in session.cells:
                count = requests_in(contract.workloads[cell.workload], cell.level)
                noise = float(rng.normal(0.0, 0.01))
                table = _table(contract, session, cell, n, count, noise)
                with request_writer(journal.block_dir(n) / "requests.parquet") as writer:
                    writer.write_table(table)
                block = _block(contract, n, number, session, cell, count)
                block["client"] |= {
                    "started_ns": int(table["scheduled_ns"].to_numpy().min()),
                    "ended_ns": int(table["end_ns"].to_numpy().max()),
                }
                journal.finish_block(n, block)
                n, rows = n + 1, rows + count
        journal.write_bytes("verdict.json", adjudicate(root).verdict_json)
        journal.seal(previous_manifest_sha256=None, kvgate_version="0.0.bench")
    return rows


def _campaign(contract: Contract) -> CampaignFacts:
    return CampaignFacts(
        name="bench", gate=3, run=1, mode=Mode.COUNTED, rehearsal=True,
        as_of="2026-03-04T10:00:00+00:00", contract_id=contract.id,
        contract_digest=contract.digest, kvgate_version="0.0.bench", inventory="bench",
        selected=tuple(c.id for c in contract.gate(3).clause), retests_used=0, reruns_used=0,
        serials=contract.appliance.serials, firmware=contract.appliance.firmware,
        predecessor=None, faults=(), time_scale=1.0, extends=None,
    )  # fmt: skip


def _table(
    contract: Contract, session: Session, cell: Cell, n: int, count: int, noise: float
) -> pa.Table:
    """``count`` requests of ``cell.level`` streams, one after the other in each stream."""
    workload = contract.workloads[cell.workload]
    tokens = workload.output_tokens
    rng = np.random.default_rng(1000 + n)
    faster = FASTER if session.role == "test" and workload.kind != "miss" else 1.0
    ttft = (SECOND / faster * np.exp(noise + rng.normal(0, 0.02, count))).astype(np.int64)
    gaps = rng.integers(900_000, 1_100_000, (count, tokens - 1), dtype=np.int64)
    lasts = ttft + gaps.sum(axis=1)
    streams = lasts.reshape(-1, cell.level)
    sent = (n * 10_000 * SECOND + np.cumsum(streams, axis=0) - streams).reshape(-1)
    first = sent + ttft
    stamps = np.concatenate([first[:, None], first[:, None] + np.cumsum(gaps, axis=1)], axis=1)
    whole = pa.array(np.arange(count + 1, dtype=np.int32) * tokens)
    columns: dict[str, Any] = {
        "request_id": [f"b{n}-{i}" for i in range(count)],
        "load_host": ["bench"] * count,
        "prompt_digest": [f"p{i}" for i in range(count)],
        **dict.fromkeys(("intended_ns", "scheduled_ns", "connected_ns", "sent_ns"), sent),
        **dict.fromkeys(("first_byte_ns", "first_token_ns", "first_text_ns"), first),
        **dict.fromkeys(("last_token_ns", "end_ns"), stamps[:, -1]),
        "token_ns": pa.ListArray.from_arrays(whole, pa.array(stamps.reshape(-1))),
        "coalesced": [[]] * count,
        "prompt_tokens": np.full(count, workload.prompt_tokens),
        "output_tokens": np.full(count, tokens),
        "cached_tokens": np.zeros(count, dtype=np.int64),
        "finish_reason": ["length"] * count,
        "outcome": ["ok"] * count,
        "error": [None] * count,
        "client_lag_ns": np.full(count, 1000),
        "answer_digest": ["d"] * count,
    }
    probe = workload.kind == "probe"
    columns["tokens"] = [["a"] * tokens] * count if probe else [None] * count
    columns["token_logprobs"] = [[-0.1] * tokens] * count if probe else [None] * count
    columns["top2_margin"] = [[1.0] * tokens] * count if probe else [None] * count
    arrays = [
        a if isinstance(a := columns[f.name], pa.Array) else pa.array(a, type=f.type)
        for f in REQUESTS_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=REQUESTS_SCHEMA)


def _block(
    contract: Contract, n: int, number: int, session: Session, cell: Cell, count: int
) -> dict[str, Any]:
    """``block.json`` of a block that keeps every condition."""
    workload = contract.workloads[cell.workload]
    tokens = count * workload.prompt_tokens
    store = contract.arms[session.arm].store
    restored = tokens if store != "none" and workload.kind != "miss" else 0
    moved = restored * contract.model.kv_bytes_per_token

    def target(**delta: float) -> dict[str, Any]:
        stored = {"stored_tokens": tokens, "errors": 0, "used_bytes": 5, "capacity_bytes": 10}
        increase = {"restarts": 0, "delta": {"late_s": 0.0, "errors": 0, **delta}}
        return {"before": stored, "after": stored, "increase": increase}

    targets = {
        f"store-{name}": target(
            lookup_tokens=tokens if name == store else 0, bytes_read=moved if name == store else 0
        )
        for name in ("appliance", "baseline")
    }
    targets["engine"] = target(
        prompt_tokens=tokens, prompt_tokens_computed=tokens - restored,
        prompt_tokens_engine_cache=0, prompt_tokens_external=restored, preemptions=0,
        generation_tokens=count * workload.output_tokens,
    )  # fmt: skip
    return {
        "n": n, "session": number, "pair": session.pair, "role": session.role,
        "position": session.position, "arm": session.arm, "cell": asdict(cell),
        "kind": workload.kind, "started_at": "2026-03-04T10:00:00+00:00",
        "requests_planned": count, "requests_recorded": count,
        "prompt_tokens_each": workload.prompt_tokens, "output_tokens_each": workload.output_tokens,
        "prompts": {"pool": "bench", "first": 0, "count": count}, "primed_tokens": tokens,
        "duration_s": max(moved / 6e9, 1.0), "moved": {"bytes": moved},
        "client": {
            "state": "done", "loop_stall_max_ns": 1_000_000, "cpu_s": 0.2, "wall_s": 1.0,
            "mean_in_flight": cell.level, "clock_offset_start_ns": 5, "clock_offset_end_ns": 9,
        },
        "calibration": {
            "level": cell.level,
            "attempts": [{
                "level": cell.level, "requests": 16, "failed": 0, "ttft_error_p99_ms": 1.0,
                "first_token_lag_p99_ms": 0.1, "held": float(cell.level), "cpu_share": 0.1,
            }],
        },
        "observation": {
            "coverage_share": 1.0, "clock_steps": [], "targets": targets,
            "coverage": {"engine": 1.0, "host": 1.0, **({} if store == "none" else
                                                        {f"store-{store}": 1.0})},
        },
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
