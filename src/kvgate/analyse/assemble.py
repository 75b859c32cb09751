"""Evidence, already read into plain tables, to everything the judge looks at. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from kvgate.analyse.block import BlockMeasured, BlockStatistics, measure_block
from kvgate.analyse.counters import ENGINE, STORE_PREFIX, energy_j, grown, value
from kvgate.analyse.facts import observe_host
from kvgate.analyse.foreign import known_only, lacks_of
from kvgate.analyse.load_hosts import on_one_clock
from kvgate.analyse.paired import prompts_digest, with_same_prompts
from kvgate.analyse.results import Analysis, Answer, BlockResult, Observed
from kvgate.analyse.soak.run import Part, Soak, analyse_soak
from kvgate.analyse.validity import conditions
from kvgate.contract import Contract
from kvgate.errors import CannotMeasure
from kvgate.plan import Cell
from kvgate.record import Lack, Outcome

ENGINE_COUNTERS = (
    "prompt_tokens",
    "prompt_tokens_computed",
    "prompt_tokens_engine_cache",
    "prompt_tokens_external",
    "generation_tokens",
    "preemptions",
)
MOST_GAPS_SHOWN = 50_000
UNUSABLE = (KeyError, TypeError, ValueError, AttributeError)
"""What evidence that was changed or cut off makes of reading it."""
STORE_COUNTERS = ("lookup_tokens", "hit_tokens", "bytes_read", "errors")


@dataclass(frozen=True, slots=True)
class RawBlock:
    """One finished block as it was read: block.json, requests.parquet, engine.parquet."""

    n: int
    block: Mapping[str, Any]
    requests: pd.DataFrame
    engine: pd.DataFrame


def assemble(
    contract: Contract,
    gate: int,
    blocks: Iterable[RawBlock],
    facts: Mapping[str, Mapping[str, Any]],
    expected_hosts: Mapping[str, tuple[str, ...]],
    time_scale: float,
) -> Analysis:
    """All blocks, answers, facts and soak figures of one gate.

    Times come out in campaign seconds: measured seconds times ``time_scale`` (1 on real hardware).
    Raises CannotMeasure for a block whose files do not belong together or cannot be read.
    """
    results: list[BlockResult] = []
    answers: list[Answer] = []
    samples: dict[int, Mapping[str, Any]] = {}
    long_runs: list[RawBlock] = []
    canaries: list[RawBlock] = []
    seen: dict[str, int] = {}
    copied: list[tuple[int, int]] = []
    for raw in blocks:
        try:
            _check_whole(raw)
            raw = replace(raw, requests=on_one_clock(raw.block, raw.requests))
            if raw.block["kind"] in {"soak", "canary"}:
                (canaries if raw.block["kind"] == "canary" else long_runs).append(raw)
                continue
            measured = measure_block(raw.requests, int(raw.block["cell"]["level"]))
            results.append(_block(contract, raw, measured.statistics, time_scale))
            samples[raw.n] = _samples(measured, time_scale)
            first = seen.setdefault(measured.fingerprint or str(raw.n), raw.n)
            copied += [(raw.n, first)] if first != raw.n else []
            if Lack.TOKEN_TIMES in (lacks_of(raw.block) or ()):
                samples[raw.n] = {**samples[raw.n], "itl_s": np.empty(0)}
            if raw.block["kind"] == "probe":
                answers.extend(_answers(raw))
        except UNUSABLE as error:
            raise _unusable(raw.n, error) from error
    soaks = [_soak(contract, gate, raw, canaries, results, answers, time_scale)
             for raw in long_runs]  # fmt: skip
    observed = list(_facts(facts))
    for one in soaks:
        observed.extend(one.observed)
    # More than one long run in one bundle: the judge sees every figure twice and says so.
    soak = soaks[0] if soaks else None
    return Analysis(
        blocks=tuple(sorted(with_same_prompts(results), key=lambda b: b.n)),
        answers=tuple(sorted(answers, key=lambda a: a.block)),
        observed=tuple(observed),
        windows=() if soak is None else soak.windows,
        events=() if soak is None else soak.events,
        expected_hosts=expected_hosts,
        time_scale=time_scale,
        samples=samples,
        copied=tuple(copied),
        soak_exclusions=() if soak is None else soak.exclusions,
    )


def _soak(
    contract: Contract, gate: int, raw: RawBlock, canaries: Sequence[RawBlock],
    results: Sequence[BlockResult], answers: Sequence[Answer], time_scale: float,
) -> Soak:  # fmt: skip
    """A long run with the canaries asked beside it and the reference arm's blocks."""
    terms = contract.gate(gate)
    try:
        if terms.soak is None:
            raise ValueError("the gate has no soak")
        parts = [Part(c.block, c.requests, tuple(_answers(c))) for c in canaries]
        return analyse_soak(
            contract, terms, terms.soak, raw.n, Part(raw.block, raw.requests), raw.engine, parts,
            results, answers, time_scale,
        )  # fmt: skip
    except UNUSABLE as error:
        raise _unusable(raw.n, error) from error


def _unusable(n: int, error: Exception) -> CannotMeasure:
    return CannotMeasure(
        f"block {n} is not usable: {type(error).__name__} {error}",
        where=f"blocks/{n}",
        remedy="evidence was changed or cut off; run the gate again",
    )


MAX_PAIR: Final = 10_000
"""Contracts allow far fewer pairs: a number beyond it is no pair's."""


def _counted(found: Any, most: int) -> int:
    """A number that counts from 0; raises ValueError for what no run of ours writes."""
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise ValueError(f"{found!r} is no number of a pair")
    return found


def _check_whole(raw: RawBlock) -> None:
    """Raises CannotMeasure unless the table has the rows that the block counted when it ended."""
    counted = raw.block["requests_recorded"]
    if counted != len(raw.requests):
        raise CannotMeasure(
            f"block {raw.n} recorded {counted} requests, its table has {len(raw.requests)}",
            where=f"blocks/{raw.n}/requests.parquet",
            remedy="evidence was removed or added; run the gate again",
        )


def _block(
    contract: Contract, raw: RawBlock, statistics: BlockStatistics, time_scale: float
) -> BlockResult:
    block = raw.block
    cell: Mapping[str, Any] = block["cell"]
    lacks = lacks_of(block)
    if lacks is not None:
        statistics = known_only(statistics, lacks)
    moved = value(block.get("moved"), "bytes")
    duration_s = value(block, "duration_s")
    store = STORE_PREFIX + contract.arms[str(block["arm"])].store
    counters = {name: grown(block, ENGINE, name) for name in ENGINE_COUNTERS}
    counters |= {f"store_{name}": grown(block, store, name) for name in STORE_COUNTERS}
    counters["energy_j"] = energy_j(block)
    return BlockResult(
        n=raw.n,
        session=int(block["session"]),
        pair=None if block["pair"] is None else _counted(block["pair"], MAX_PAIR),
        role=str(block["role"]),
        position=int(block["position"]),
        arm=str(block["arm"]),
        cell=Cell(**cell),
        kind=str(block["kind"]),
        statistics=in_campaign_time(statistics, time_scale),
        conditions=conditions(contract, block, raw.requests, statistics),
        counters=counters,
        started_at=str(block["started_at"]),
        restore_bytes_per_s=None if moved is None or not duration_s else moved / duration_s,
        prompts=prompts_digest(
            raw.requests,
            int(block["prompt_tokens_each"]) if block["kind"] == "multi_turn" else None,
        ),
    )


def in_campaign_time(statistics: BlockStatistics, time_scale: float) -> BlockStatistics:
    """Latencies times the scale, rates divided by it; counts and shares stay."""
    changed: dict[str, float] = {}
    for field in fields(statistics):
        number = getattr(statistics, field.name)
        if number is None:
            continue
        if field.name.endswith("_per_s"):
            changed[field.name] = number / time_scale
        elif field.name.endswith("_s"):
            changed[field.name] = number * time_scale
    return replace(statistics, **changed)  # type: ignore[arg-type]


def _samples(measured: BlockMeasured, time_scale: float) -> Mapping[str, Any]:
    """TTFT and token gaps of the good requests, campaign seconds, to be shown as distributions.

    Of very many gaps every k-th is kept: a picture needs no more, and a block has millions.
    """
    step = -(-len(measured.itl_s) // MOST_GAPS_SHOWN) or 1
    return {
        "ttft_s": measured.ttft_s * time_scale,
        "itl_s": measured.itl_s[::step] * time_scale,
    }


def _answers(raw: RawBlock) -> Iterator[Answer]:
    """The finished answers of a probe block; an unfinished one is an error, not an answer."""
    finished = raw.requests[raw.requests["outcome"] == Outcome.OK.value]
    for row in finished.to_dict("records"):
        tokens = [str(t) for t in _listed(row["tokens"])]
        yield Answer(
            block=raw.n,
            arm=str(raw.block["arm"]),
            prompt_digest=str(row["prompt_digest"]),
            tokens=tuple(tokens),
            logprobs=_numbers(row["token_logprobs"], len(tokens)),
            margins=_numbers(row["top2_margin"], len(tokens)),
        )


def _listed(cell: Any) -> list[Any]:
    return [] if cell is None or isinstance(cell, float) else list(cell)


def _numbers(cell: Any, length: int) -> tuple[float | None, ...]:
    found = [None if x is None or not np.isfinite(x) else float(x) for x in _listed(cell)]
    return tuple((found + [None] * length)[:length])


def _facts(facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Observed]:
    for host in sorted(facts):
        said = facts[host].get("host")
        if isinstance(said, Mapping):
            device = facts[host].get("device")
            yield from observe_host(host, said, device if isinstance(device, Mapping) else None)
