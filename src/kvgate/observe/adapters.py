"""Which names each engine and store gives to what we need, over their versions.

Every field has a list of spellings, newest version first; the first one on the page is taken alone,
so a page of a version that shows old and new names side by side is read once. The page decides, not
a version number: builds are patched and back-ported. Golden pages of each generation hold the map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvgate.errors import UsageError
from kvgate.observe.counters import Counters, EngineCounters, MeterCounters, StoreCounters
from kvgate.observe.exposition import Sample, exact, latest, series, total

Role = Literal["engine", "store", "meter"]


@dataclass(frozen=True, slots=True)
class Name:
    """A spelling: metric name without ``_total`` and the labels it must carry."""

    metric: str
    labels: Mapping[str, str] | None = None

    def on(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of a page that go by this name."""
        return series(samples, self.metric, **(self.labels or {}))


@dataclass(frozen=True, slots=True)
class Adapter:
    """Turns a page into counters.

    ``name`` is what a contract or inventory calls it, ``role`` says which record it makes,
    ``prefixes`` are the beginnings of the names it owns (kept raw beside the counters).
    """

    name: str
    role: Role
    prefixes: tuple[str, ...]
    names: Mapping[str, tuple[Name, ...]]
    derive: Callable[[dict[str, float | None], Sequence[Sample]], None] | None = None

    def read(self, samples: Sequence[Sample]) -> Counters:
        """The counters on a page; what is not there is None."""
        values: dict[str, float | None] = {}
        for field, spellings in (*self.names.items(), *_PROCESS.items()):
            # The first spelling that is present decides, even when its value cannot be read.
            found = next((on for name in spellings if (on := name.on(samples))), [])
            values[field] = latest(found) if field == "process_start_time_s" else total(found)
        if self.derive is not None:
            self.derive(values, samples)
        if self.role == "engine":
            return EngineCounters(**values)
        values.pop("resident_bytes")
        if self.role == "meter":
            values.pop("late_s")
            return MeterCounters(**values)
        return StoreCounters(**values)


_PROCESS: Final[Mapping[str, tuple[Name, ...]]] = {
    "process_start_time_s": (Name("process_start_time_seconds"),),
    "resident_bytes": (Name("process_resident_memory_bytes"),),
    "late_s": (Name("kvgate_rehearsal_late_seconds"),),
}


def _by_source(source: str) -> tuple[Name, ...]:
    return (Name("vllm:prompt_tokens_by_source", {"source": source}),)


_VLLM: Final[Mapping[str, tuple[Name, ...]]] = {
    "prompt_tokens": (Name("vllm:prompt_tokens"),),
    "prompt_tokens_computed": _by_source("local_compute"),
    "prompt_tokens_engine_cache": _by_source("local_cache_hit"),
    "prompt_tokens_external": _by_source("external_kv_transfer"),
    # vLLM cannot tell what a connector found in host memory; the rehearsal's engine can.
    "prompt_tokens_dram": (Name("kvgate_rehearsal_dram_hit_tokens"),),
    "generation_tokens": (Name("vllm:generation_tokens"),),
    "running": (Name("vllm:num_requests_running"),),
    "waiting": (Name("vllm:num_requests_waiting"),),
    "preemptions": (Name("vllm:num_preemptions"),),
    "external_queries": (Name("vllm:external_prefix_cache_queries"),),
    "external_hits": (Name("vllm:external_prefix_cache_hits"),),
    # `gpu_` is the old name of the same counter; for a while pages carry both.
    "prefix_queries": (Name("vllm:prefix_cache_queries"), Name("vllm:gpu_prefix_cache_queries")),
    "prefix_hits": (Name("vllm:prefix_cache_hits"), Name("vllm:gpu_prefix_cache_hits")),
}

_SGLANG: Final[Mapping[str, tuple[Name, ...]]] = {
    "prompt_tokens": (Name("sglang:prompt_tokens"),),
    "prompt_tokens_engine_cache": (Name("sglang:cached_tokens", {"cache_source": "device"}),),
    "prompt_tokens_dram": (Name("sglang:cached_tokens", {"cache_source": "host"}),),
    "generation_tokens": (Name("sglang:generation_tokens"),),
    "running": (Name("sglang:num_running_reqs"),),
    "waiting": (Name("sglang:num_queue_reqs"),),
    "preemptions": (Name("sglang:num_retracted_requests"),),
}

_LMCACHE: Final[Mapping[str, tuple[Name, ...]]] = {
    "lookup_tokens": (
        Name("lmcache_mp_lookup_requested_tokens"),
        Name("lmcache:num_lookup_tokens"),
    ),
    # Never `cache_hit_rate` or another rate gauge: after a change of the retrieve path it is 1.
    "hit_tokens": (Name("lmcache_mp_lookup_hit_tokens"), Name("lmcache:num_lookup_hits")),
    "hit_tokens_dram": (Name("lmcache_mp_lookup_hit_l1_tokens"),),
    "hit_tokens_backend": (Name("lmcache_mp_lookup_hit_l2_tokens"),),
    "loads": (
        Name("lmcache_mp_l2_load_completed_requests"),
        Name("lmcache_mp_l2_load_completed"),
        Name("lmcache:num_remote_read_requests"),
    ),
    "bytes_read": (Name("lmcache:num_remote_read_bytes"),),
    "bytes_written": (Name("lmcache:num_remote_write_bytes"),),
    "used_bytes": (Name("lmcache_mp_l2_usage_bytes"),),
    "errors": (
        Name("lmcache_mp_l2_prefetch_failure_chunks"),
        Name("lmcache_mp_l2_prefetch_failed_keys"),
    ),
}

# A page is the master's or a client's: the master knows what is held, a client what was moved.
_MOONCAKE: Final[Mapping[str, tuple[Name, ...]]] = {
    "bytes_read": (
        Name("mooncake_transfer_read_bytes"),
        Name("mooncake_transfer_read_operation_bytes"),
    ),
    "bytes_written": (
        Name("mooncake_transfer_write_bytes"),
        Name("mooncake_transfer_write_operation_bytes"),
    ),
    "used_bytes": (Name("master_allocated_bytes"),),
    "capacity_bytes": (Name("master_total_capacity_bytes"), Name("master_capacity_bytes")),
}
_MOONCAKE_CALLS: Final = ("ExistKey", "BatchExistKey", "GetReplicaList", "BatchGetReplicaList")
_MOONCAKE_LOOKUPS: Final = (
    "master_exist_key_requests", "master_batch_exist_key_requests",
    "master_get_replica_list_requests", "master_batch_get_replica_list_requests",
)  # fmt: skip
_MOONCAKE_FAILURES: Final = (
    "master_put_start_failures", "master_put_end_failures", "master_batch_put_start_failures",
    "master_batch_put_end_failures",
)  # fmt: skip

_KVSTORE: Final[Mapping[str, tuple[Name, ...]]] = {
    "lookup_tokens": (Name("kvstore_lookup_tokens"),),
    "hit_tokens": (Name("kvstore_hit_tokens"),),
    "hit_tokens_backend": (Name("kvstore_hit_tokens"),),
    "loads": (Name("kvstore_loads"),),
    "bytes_read": (Name("kvstore_bytes_read"),),
    "bytes_written": (Name("kvstore_bytes_written"),),
    "stored_tokens": (Name("kvstore_stored_tokens"),),
    "pending_bytes": (Name("kvstore_pending_bytes"),),
    "used_bytes": (Name("kvstore_used_bytes"),),
    "capacity_bytes": (Name("kvstore_capacity_bytes"),),
    "errors": (Name("kvstore_errors"),),
}


def _derive_sglang(values: dict[str, float | None], samples: Sequence[Sample]) -> None:
    # SGLang counts whole prompts, cached part included, and labels what was cached with its tier.
    # Without that label the tiers cannot be told apart and nothing is derived.
    cached = series(samples, "sglang:cached_tokens")
    if not cached or any("cache_source" not in sample.labels for sample in cached):
        return
    below = [sample for sample in cached if sample.labels["cache_source"] != "device"]
    values["prompt_tokens_external"] = total(below)
    prompts, all_cached = values["prompt_tokens"], total(cached)
    if prompts is not None and all_cached is not None:
        values["prompt_tokens_computed"] = prompts - all_cached


# Joules, as the field's exporters of host and power supply name them.
_METER: Final[Mapping[str, tuple[Name, ...]]] = {
    "energy_j": (
        Name("kvgate_energy_joules"),
        Name("node_hwmon_energy_joule"),
        Name("node_rapl_package_joules"),
    ),
}


def _derive_vllm(values: dict[str, float | None], samples: Sequence[Sample]) -> None:
    # Before prompt tokens were counted by source, a connector's hits and those of the prefix cache
    # said it; what neither had was computed.
    external, cached = values["external_hits"], values["prefix_hits"]
    if external is None or series(samples, "vllm:prompt_tokens_by_source"):
        return
    values["prompt_tokens_external"] = external
    values["prompt_tokens_engine_cache"] = cached
    prompts = values["prompt_tokens"]
    if cached is not None and prompts is not None and prompts >= external + cached:
        values["prompt_tokens_computed"] = prompts - external - cached


def _derive_lmcache(values: dict[str, float | None], samples: Sequence[Sample]) -> None:
    submitted, stored = (
        total(series(samples, f"lmcache_mp_l2_store_{state}_objects_chunks"))
        for state in ("submitted", "completed")
    )
    if submitted is not None:
        values["pending_chunks"] = max(0.0, submitted - (stored or 0.0))
    # Every worker of a tensor-parallel engine counts the same tokens: the slowest one counts, and a
    # process that never stores has no say.
    workers = series(samples, "lmcache:num_stored_tokens")
    if total(workers) is not None:
        values["accepted_tokens"] = exact(min((s.value for s in workers if s.value), default=0.0))


def _derive_mooncake(values: dict[str, float | None], samples: Sequence[Sample]) -> None:
    # Different calls, not spellings of one: these are added. A failed lookup is a miss, not an
    # error, so that only failures to put count as the store's.
    calls = [
        total(series(samples, "mooncake_client_rpc_count", rpc_name=n)) for n in _MOONCAKE_CALLS
    ]
    calls += [total(series(samples, name)) for name in _MOONCAKE_LOOKUPS]
    values["lookups"] = _added(calls)
    values["errors"] = _added([total(series(samples, name)) for name in _MOONCAKE_FAILURES])


def _added(counts: Sequence[float | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_KINDS: Final[Mapping[str, Adapter]] = {
    "vllm": Adapter("vllm", "engine", ("vllm:", "kvgate_rehearsal_"), _VLLM, _derive_vllm),
    "sglang": Adapter("sglang", "engine", ("sglang:",), _SGLANG, _derive_sglang),
    "lmcache": Adapter("lmcache", "store", ("lmcache_mp_", "lmcache:"), _LMCACHE, _derive_lmcache),
    "mooncake": Adapter("mooncake", "store", ("mooncake_", "master_"), _MOONCAKE, _derive_mooncake),
    "kvstore": Adapter("kvstore", "store", ("kvstore_",), _KVSTORE),
    "meter": Adapter("meter", "meter", ("kvgate_energy_", "node_hwmon_", "node_rapl_"), _METER),
}

ADAPTERS: Final = tuple(_KINDS)


def adapter_for(kind: str) -> Adapter:
    """The adapter of an engine, store or meter: vllm, sglang, lmcache, kvstore (the rehearsal's),
    meter.

    Raises UsageError for an unknown kind.
    """
    adapter = _KINDS.get(kind.lower())
    if adapter is None:
        raise UsageError(f"no adapter for {kind!r}", remedy=f"use one of {', '.join(ADAPTERS)}")
    return adapter
