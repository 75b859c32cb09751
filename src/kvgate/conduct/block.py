"""Measures one block: snapshot, load, snapshot, evidence on disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvgate.analyse.counters import engine_names
from kvgate.campaign import utc_text
from kvgate.conduct.calibration import Calibrations
from kvgate.conduct.clients import Client, LocalClient
from kvgate.conduct.elsewhere import Elsewhere, Watched, group_here, grown_together
from kvgate.contract import Contract
from kvgate.contract_tables import Workload
from kvgate.drive.arms import RunningArm
from kvgate.evidence.journal import Journal
from kvgate.evidence.tables import write_requests
from kvgate.inventory import Inventory
from kvgate.load.job import Closed, Conversation, Job, Prompts, Shared
from kvgate.observe.adapters import adapter_for
from kvgate.observe.fabric import fabric_of
from kvgate.observe.observation import Observation, TargetView
from kvgate.observe.rows import Rows
from kvgate.observe.sampler import Sampler, Target
from kvgate.observe.scrape import scrape
from kvgate.observe.throttling import throttling_of
from kvgate.plan import Cell, PromptRange, Session, prompts_of, seed_of
from kvgate.progress import Progress
from kvgate.reuse import shared_parts

SAMPLE_PERIOD_S = 1.0
CLIENT_GRACE_S = 30.0
LEAST_DEADLINE_S = 10.0
"""Real seconds: a rehearsal's compressed deadline must not catch a machine that is merely busy."""
BYTES_PER_REQUEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Bench:
    """What every block of a gate run shares; ``calibrations`` is what its client holds."""

    contract: Contract
    inventory: Inventory
    gate: int
    journal: Journal
    work_dir: Path
    progress: Progress
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    calibrations: Calibrations = field(init=False)

    def urls(self, cell: Cell) -> tuple[str, ...]:
        """The engines that serve a cell."""
        return self.inventory.engine_urls(self.contract.instances(cell.parallelism))

    def __post_init__(self) -> None:
        found = Calibrations(self.contract.validity, self.work_dir)
        object.__setattr__(self, "calibrations", found)

    @property
    def client(self) -> Client:
        """What carries the load of a block."""
        return self.elsewhere.load or LocalClient(self.calibrations)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands in the run: its number, its session, and what its store was primed
    with; ``primed_by`` is the counter that acknowledged it, ``primed_started_ms`` when the process
    began that did (Unix time)."""

    n: int
    session_number: int
    session: Session
    primed_tokens: int
    primed_by: str | None = None
    primed_started_ms: int | None = None


def measure_block(bench: Bench, arm: RunningArm, place: Place, cell: Cell) -> Mapping[str, Any]:
    """Measure one cell of a session and write the block; returns its block.json.

    A failing engine is a measured block that says so; CannotMeasure is raised only where nothing
    could be measured at all (no client, no disk).
    """
    workload = bench.contract.workloads[cell.workload]
    prompts = prompts_of(bench.contract, bench.gate, place.session, cell)
    bench.journal.ensure_space(prompts.count * BYTES_PER_REQUEST)
    folder = bench.journal.block_dir(place.n)
    urls = bench.urls(cell)
    size = (cell.level, prompts.count, len(urls))
    if not bench.client.known(*size):
        bench.progress.doing(f"trying the load client itself at {cell.level} streams")
    calibration = bench.client.calibrate(*size)
    job = block_job(bench, workload, prompts, cell.level, f"b{place.n}", urls)
    started_at = utc_text(datetime.now(UTC))
    watched = Watched(bench.inventory, bench.elsewhere, arm.store_pids, SAMPLE_PERIOD_S)
    sampler = Sampler(
        targets(bench, arm, urls),
        period_s=SAMPLE_PERIOD_S,
        timeout_s=2.0,
        pids=watched.local_pids,
    )
    with watched, sampler:
        started = time.monotonic()
        loaded = bench.client.run(
            job,
            calibration=calibration,
            on_progress=lambda counts: bench.progress.requests(counts.done, prompts.count),
            deadline_s=job.block_deadline_s + CLIENT_GRACE_S,
        )
        duration_s = loaded.lasted_s or time.monotonic() - started
    observation = sampler.stop()
    rows = _keep_requests(job, folder)
    observation.write(folder / "engine.parquet", folder / "host.parquet", watched.rows)
    block = {
        "n": place.n,
        "gate": bench.gate,
        "session": place.session_number,
        "pair": place.session.pair,
        "role": place.session.role,
        "position": place.session.position,
        "pool": place.session.pool,
        "arm": arm.arm,
        "cell": asdict(cell),
        "engines": len(urls),
        "setup": arm.info.get("setup"),
        "kind": workload.kind,
        "requests_planned": prompts.count,
        "requests_recorded": rows,
        "prompt_tokens_each": workload.prompt_tokens,
        "output_tokens_each": workload.output_tokens,
        "prompts": {"pool": prompts.pool, "first": prompts.first, "count": prompts.count},
        "primed_tokens": place.primed_tokens,
        "primed_by": place.primed_by,
        "primed_started_ms": place.primed_started_ms,
        "stores_stay_up": bench.inventory.stores_stay_up,
        "started_at": started_at,
        "duration_s": duration_s * bench.inventory.time_scale,
        "time_scale": bench.inventory.time_scale,
        **loaded.to_json(),
        "observation": observation.to_json(),
        "moved": moved_bytes(bench, arm, observation, watched.engine_rows(observation)),
        "host": {
            "group": group_here(bench.inventory),
            "fabric": fabric_of(observation.host),
            "throttling": throttling_of(observation.host),
        },
        **watched.to_json(),
    }  # fmt: skip
    bench.journal.finish_block(place.n, block)
    return block


def block_job(
    bench: Bench,
    workload: Workload,
    prompts: PromptRange,
    level: int,
    prefix: str,
    urls: tuple[str, ...] = (),
) -> Job:
    """The job of one block; its deadlines are the workload's, in this inventory's seconds.

    ``urls`` are the engines that share it; none: the inventory's one engine.
    """
    scale = bench.inventory.time_scale
    deadline_s = max(LEAST_DEADLINE_S, workload.request_deadline_s / scale)
    rounds = -(-prompts.count // level)
    shutil.rmtree(bench.work_dir / prefix, ignore_errors=True)
    work = bench.work_dir / prefix
    work.mkdir(parents=True)
    contract = bench.contract
    return Job(
        url=urls[0] if urls else bench.inventory.engine_url,
        urls=urls if len(urls) > 1 else (),
        model=contract.model.name,
        arrival=Closed(concurrency=level),
        prompts=Prompts(
            seed=seed_of(contract, "prompts"),
            pool=prompts.pool,
            first=prompts.first,
            count=prompts.count,
            tokens=workload.prompt_tokens,
            vocab_low=contract.model.vocab_low,
            vocab_high=contract.model.vocab_high,
            shape=_shape(workload, contract.model.chunk_tokens),
        ),
        output_tokens=workload.output_tokens,
        request_deadline_s=deadline_s,
        block_deadline_s=deadline_s * (rounds + 1),
        records_path=str(work / "records.jsonl"),
        report_path=str(work / "client.json"),
        load_host=bench.inventory.group("load_clients")[0],
        request_id_prefix=prefix,
        logprobs=2 if workload.kind == "probe" else None,
        ask_token_ids=True,
    )


def _shape(workload: Workload, chunk_tokens: int) -> Shared | Conversation | None:
    """What the prompts of a workload have in common, in the client's words."""
    shared = shared_parts(workload, chunk_tokens)
    if shared is not None:
        return Shared(shared.prefix_tokens, shared.groups)
    if workload.kind == "multi_turn" and workload.turns and workload.user_tokens:
        return Conversation(workload.turns, workload.user_tokens)
    return None


def _keep_requests(job: Job, folder: Path) -> int:
    records = Path(job.records_path)
    rows = write_requests([records] if records.exists() else [], folder / "requests.parquet")
    shutil.rmtree(records.parent, ignore_errors=True)
    return rows


def targets(bench: Bench, arm: RunningArm, urls: tuple[str, ...] = ()) -> Sequence[Target]:
    """The engines, meters, and the stores: the other arms' must be seen untouched.

    Where stores stay up, all are targets and silence is a gap; elsewhere those that answer.
    """
    inventory = bench.inventory
    found = [
        Target(name, adapter_for("vllm"), f"{url}/metrics")
        for name, url in zip(
            engine_names(len(urls) or 1), urls or (inventory.engine_url,), strict=True
        )
    ]
    for store in sorted(inventory.store_ports):
        url = inventory.store_url(store)
        wanted = store == arm.store or inventory.stores_stay_up
        if url and (wanted or scrape(f"{url}/metrics", 2.0).ok):
            adapter = adapter_for(inventory.store_metrics)
            found.append(Target(f"store-{store}", adapter, f"{url}/metrics"))
    for meter, url in sorted(inventory.meters.items()):
        found.append(Target(f"meter-{meter}", adapter_for("meter"), url))
    return found


def moved_bytes(
    bench: Bench, arm: RunningArm, observation: Observation, engines: Sequence[Rows]
) -> Mapping[str, Any]:
    """Bytes that the arm's store read in the block, and who counted them; ``engines`` is what the
    kernels of the engine hosts say, the first host's first."""
    if arm.store is None:
        return {"bytes": 0, "how": "no store in this arm"}
    if bench.inventory.store_bytes == "store":
        view = observation.targets.get(f"store-{arm.store}")
        return _counted_by_store(view, bench.contract.model.kv_bytes_per_token)
    if bench.inventory.store_bytes == "rdma":
        total = grown_together(engines, "rx_bytes", _rdma_ports)
        return {"bytes": total, "how": "port_rcv_data of the engine hosts' RDMA ports"}
    processes = [f"pid:{pid}" for pid in arm.store_pids]
    total = grown_together(engines[:1], "read_bytes", lambda _rows: processes)
    return {"bytes": total, "how": "read_bytes of the store's processes in /proc"}


def _rdma_ports(rows: Rows) -> list[str]:
    return [source for source in rows.sources() if source.startswith("rdma:")]


def _counted_by_store(view: TargetView | None, kv_bytes_per_token: int) -> Mapping[str, Any]:
    read = None if view is None else _grown(view, "bytes_read")
    if view is None or read is not None:
        return {"bytes": read, "how": "the store's own counter of bytes read"}
    # A store that counts no bytes still says which tokens it found behind its memory, and whether
    # it loaded anything from there.
    loads, tokens = _grown(view, "loads"), _grown(view, "hit_tokens_backend")
    found = None
    if loads == 0:
        found = 0.0
    elif loads is not None and tokens is not None:
        found = tokens * kv_bytes_per_token
    return {"bytes": found, "how": "tokens that the store found behind its memory, as bytes of the "
            "contract's model: it counts no bytes"}  # fmt: skip


def _grown(view: TargetView, name: str) -> float | None:
    """The growth of a store's counter. Pages that count lookups already and name this counter only
    when it first moves had it at 0."""
    if view.increase is None:
        return None
    delta = view.increase.delta.get(name)
    first, last = getattr(view.before, name), getattr(view.after, name)
    if delta is None and first is None and getattr(view.before, "lookup_tokens", None) is not None:
        moved: float | None = last
        return moved
    return delta
