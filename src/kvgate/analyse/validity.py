"""Was this block a measurement at all? Every condition by name, with value, limit and remedy.

Pure: it looks at ``block.json`` and the request table only. No condition looks at latency: leaving
out slow pairs would turn a 5 % risk into 9-17 %. A value that is missing breaks its condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from kvgate.analyse.block import BlockStatistics
from kvgate.analyse.calibration import clients_hold_level
from kvgate.analyse.checks import NS, Block, at_least, at_most, coverage_of, ratio, scaled
from kvgate.analyse.counted import engine_served_ours
from kvgate.analyse.counters import (
    ENGINE,
    STORE_PREFIX,
    engines_of,
    grown,
    grown_in,
    restarts,
    simulates,
    targets,
    value,
)
from kvgate.analyse.foreign import foreign_conditions, lacks_of
from kvgate.analyse.load_hosts import clients_of, largest_cpu_share, load_host_conditions
from kvgate.analyse.records_of_client import records_of_client
from kvgate.analyse.served import served_conditions
from kvgate.analyse.setup import setup_conditions
from kvgate.contract import Contract
from kvgate.contract_tables import Validity
from kvgate.record import Lack, Outcome
from kvgate.verdict import About, Condition


def conditions(
    contract: Contract, block: Block, requests: pd.DataFrame, statistics: BlockStatistics
) -> tuple[Condition, ...]:
    """All conditions of one block, in a fixed order.

    ``block`` is the content of block.json; ``requests`` the table of requests.parquet and
    ``statistics`` what they give.
    """
    lacks = lacks_of(block)
    return (
        *(
            _instrument(contract.validity, block, requests)
            if lacks is None
            else _foreign(contract.validity, block, requests, statistics, lacks)
        ),
        at_most(
            "responses_possible",
            About.INSTRUMENT,
            float(statistics.n_impossible) if len(requests) else None,
            0,
            "1",
            "a finished request without token or with times out of order cannot be true",
        ),
        *_environment(contract.validity, block),
        engine_served_ours(contract, block, requests),
        *setup_conditions(contract, block),
        *_load_host(contract.validity, block),
        *_simulation(contract, block),
        *served_conditions(contract, block, requests),
    )


def _foreign(
    limits: Validity,
    block: Block,
    requests: pd.DataFrame,
    statistics: BlockStatistics,
    lacks: frozenset[Lack],
) -> Iterator[Condition]:
    """In place of what only our own client can say of itself."""
    yield from foreign_conditions(block, lacks)
    yield from _recorded(block, requests, known=len(requests) > 0)
    yield at_least(
        "in_flight",
        About.INSTRUMENT,
        ratio(statistics.mean_in_flight_in_window, float(block["cell"]["level"])),
        limits.in_flight_share_at_least,
        "1",
        "the planned concurrency was not held: check connection limits and the client's CPU",
    )


def _instrument(limits: Validity, block: Block, requests: pd.DataFrame) -> Iterator[Condition]:
    client: Mapping[str, Any] = block.get("client") or {}
    level = int(block["cell"]["level"])
    state = client.get("state")
    yield Condition(
        "client_ran",
        About.INSTRUMENT,
        None if state is None else state == "done",
        state,
        "done",
        "text",
        "see the client's message in block.json; nothing of the appliance was measured",
    )
    yield clients_hold_level(limits, block, level)
    yield from load_host_conditions(limits, block, requests)
    yield from _recorded(block, requests, known=bool(client))
    yield records_of_client(limits, block, requests)
    yield at_most(
        "client_stall",
        About.INSTRUMENT,
        scaled(value(client, "loop_stall_max_ns"), NS),
        limits.client_stall_s_at_most,
        "s",
        "the load host is too busy: use a faster one or fewer streams",
    )
    yield at_most(
        "client_cpu",
        About.INSTRUMENT,
        largest_cpu_share(block),
        limits.client_cpu_share_at_most,
        "1",
        "the load host is the bottleneck: use more load hosts",
    )
    yield at_least(
        "in_flight",
        About.INSTRUMENT,
        ratio(value(client, "mean_in_flight"), float(level)),
        limits.in_flight_share_at_least,
        "1",
        "the planned concurrency was not held: check connection limits and the client's CPU",
    )
    yield at_most(
        "clock_step",
        About.INSTRUMENT,
        _largest_step_s(block),
        limits.clock_step_s_at_most,
        "s",
        "stop whatever steps the clock (chronyd makestep, VM time sync) during a block",
    )
    yield at_least(
        "telemetry_coverage",
        About.INSTRUMENT,
        coverage_of(block),
        limits.telemetry_coverage_at_least,
        "1",
        "the engine's metrics must answer during the whole block",
    )


def _largest_step_s(block: Block) -> float | None:
    """The largest jump of the wall clock that a client or the sampler saw; a jump there and back is
    two.

    None where a client's offsets or the sampler's list are missing. The largest jump that a client
    counted itself is a further witness.
    """
    seen = (block.get("observation") or {}).get("clock_steps")
    if not isinstance(seen, list):
        return None
    steps = [value(step, "step_ns") for step in seen]
    for client in clients_of(block):
        start, end = (value(client, f"clock_offset_{at}_ns") for at in ("start", "end"))
        steps.append(None if start is None or end is None else end - start)
        steps.append(value(client, "clock_step_max_ns") or 0.0)
    known = [abs(step) for step in steps if step is not None]
    return max([*known, 0.0]) * NS if len(known) == len(steps) else None


def _recorded(block: Block, requests: pd.DataFrame, *, known: bool) -> Iterator[Condition]:
    planned = int(block["requests_planned"])
    yield Condition(
        "requests_recorded",
        About.INSTRUMENT,
        len(requests) == planned if known else None,
        float(len(requests)) if known else None,
        planned,
        "1",
        "the client must record every planned request, and each once",
    )
    unique = float(requests["prompt_digest"].nunique()) if len(requests) else None
    yield at_least(
        "prompts_unique",
        About.INSTRUMENT,
        unique,
        min(planned, int(block["prompts"]["count"])),
        "1",
        "prompts must not repeat inside a block: repeats are answered from caches",
    )
    outcomes = requests["outcome"] if len(requests) else pd.Series(dtype=str)
    ours = sum(
        int((outcomes == outcome.value).sum()) for outcome in Outcome if outcome.of_instrument
    )
    yield at_most(
        "client_faults",
        About.INSTRUMENT,
        float(ours) if known else None,
        0,
        "1",
        "raise the open-file limit of the load host and check its memory",
    )


def _environment(limits: Validity, block: Block) -> Iterator[Condition]:
    again = restarts(block, ENGINE)
    yield Condition(
        "engine_alive",
        About.ENVIRONMENT,
        None if again is None else again == 0,
        None if again is None else f"{again} restarts",
        "0 restarts",
        "text",
        "the engine died or restarted in the block: see its log, then run again",
    )
    yield at_most(
        "preemptions",
        About.ENVIRONMENT,
        grown(block, ENGINE, "preemptions"),
        limits.preemptions_at_most,
        "1",
        "the engine ran out of KV memory: lower the level or the prompt length",
    )


def _load_host(limits: Validity, block: Block) -> Iterator[Condition]:
    """What the contract wants to know of the hosts' processors, accelerators and network ports.

    Not looked at without a limit. With one, a host that cannot tell breaks the block.
    """
    for name, part, figure, limit, remedy in (
        ("no_throttling", "throttling", "share", limits.throttled_share_at_most,
         ("a processor or accelerator was slowed down: check cooling, power and its limits; where "
         "nothing was told, see that every engine host's tool tells of all its accelerators")),
        ("fabric_clean", "fabric", "errors", limits.fabric_errors_at_most,
         "the network lost, damaged or repeated frames: check cables, optics and flow control"),
        ("fabric_unpaused", "fabric", "pauses", limits.fabric_pauses_at_most,
         "the network was told to wait: find who sends pause frames before blaming the store"),
    ):  # fmt: skip
        if limit is not None:
            needed = limits.accelerators_per_engine_host_at_least if part == "throttling" else 0
            yield at_most(
                name, About.ENVIRONMENT, _of_hosts(block, part, figure, needed), limit, "1", remedy
            )


def _of_hosts(block: Block, part: str, figure: str, accelerators: int) -> float | None:
    """The worst of this host and those observed elsewhere.

    Engine hosts must tell, each of at least so many ``accelerators``; a host that only sends
    requests need not have what is asked for, unless it is the only one that is observed. A block
    that does not say what this host is takes it for one that only sends, where an engine is
    elsewhere.
    """

    def told(host: Mapping[str, Any]) -> float | None:
        found: Mapping[str, Any] = host.get(part) or {}
        enough = not accelerators or (value(found, "accelerators_told") or 0) >= accelerators
        return value(found, figure) if enough else None

    elsewhere: Mapping[str, Mapping[str, Any]] = block.get("hosts") or {}
    every: list[Mapping[str, Any]] = [block.get("host") or {}, *elsewhere.values()]
    engines = [h for h in every if h.get("group") == "engines"]
    others = [h for h in every if h.get("group") != "engines"]
    if not engines:
        engines, others = others[:1], others[1:]
    must = [told(h) for h in engines]
    may = [value(h.get(part), figure) for h in others]
    if None in must:
        return None
    return max(v for v in (*must, *may) if v is not None)


def _simulation(contract: Contract, block: Block) -> Iterator[Condition]:
    """A rehearsal's engine and store must have kept their own schedule; anywhere else there must
    be none: only simulated parts count how late they were."""
    limit = contract.validity.simulator_late_s_at_most
    if limit is None:
        simulated = [name for name in sorted(targets(block)) if simulates(block, name)]
        yield Condition(
            "nothing_simulated",
            About.INSTRUMENT,
            not simulated,
            ", ".join(simulated) or "none",
            "none",
            "text",
            "a simulated part can prove nothing about an appliance: use the real one",
        )
        return
    store = contract.arms[str(block["arm"])].store
    names = [*engines_of(block), *([] if store == "none" else [STORE_PREFIX + store])]
    late = [grown_in(block, name, "late_s") for name in names]
    yield at_most(
        "simulator_on_time",
        About.INSTRUMENT,
        None if None in late else max(s for s in late if s is not None),
        limit,
        "s",
        "the machine was too busy to simulate: close other programs, or lower kvgate_time_scale",
    )
