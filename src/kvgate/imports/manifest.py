"""The small file that says what each foreign result file is: arm, cell, pair, order.

::

    name = "vendor-run"                # how the report calls it
    gate = 3

    [[block]]
    file = "baseline-8.json"           # relative to the manifest
    format = "vllm-bench"              # see FORMATS
    part = 0                           # which run, where a file holds several
    arm = "baseline"
    workload = "cold_restore"
    level = 8
    pair = 0                           # blocks of one pair were measured one after the other
    order = 0                          # 0 first, 1 second
    parallelism = "tp8"                # optional, as strategy and distance are
    started_at = "2026-11-02T09:00:00+00:00"    # optional
    engine_before = "a.prom"           # optional: the engine's /metrics before and after
    engine_after = "b.prom"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from kvgate.cells import AXES, DEFAULT, LOCAL, Cell
from kvgate.contract import Contract
from kvgate.errors import UsageError
from kvgate.imports.clients import aiperf, guidellm, inference_perf
from kvgate.imports.imported import Imported, Source
from kvgate.imports.others import evalscope, lmcache_multi_round
from kvgate.imports.serving import sglang_bench, vllm_bench

Reader = Callable[[Source, int | None], Imported]


def _in_64_bits(reader: Reader) -> Reader:
    def read(source: Source, part: int | None) -> Imported:
        try:
            return reader(source, part)
        except OverflowError:
            raise source.fault("a time or a count in it is beyond 64 bits") from None

    return read


_READERS: Final[Mapping[str, Reader]] = {
    "vllm-bench": vllm_bench,
    "sglang-bench": sglang_bench,
    "aiperf": aiperf,
    "guidellm": guidellm,
    "inference-perf": inference_perf,
    "evalscope": evalscope,
    "lmcache-multi-round": lmcache_multi_round,
}
FORMATS: Final = {name: _in_64_bits(reader) for name, reader in _READERS.items()}
MAX_BLOCKS: Final = 2000

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class ForeignBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of the manifest; ``order`` is 0 or 1 inside its pair."""

    file: Text
    format: Text
    arm: Text
    workload: Text
    level: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    pair: Whole
    order: Annotated[int, msgspec.Meta(ge=0, le=1)]
    part: Whole | None = None
    started_at: Text | None = None
    engine_before: Text | None = None
    engine_after: Text | None = None
    engine: Text = "vllm"
    parallelism: Text = DEFAULT
    strategy: Text = DEFAULT
    distance: Text = LOCAL

    @property
    def cell(self) -> Cell:
        """What the block measured, in the contract's names."""
        return Cell(self.workload, self.level, self.parallelism, self.strategy, self.distance)


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole manifest."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    gate: Annotated[int, msgspec.Meta(ge=1, le=4)]
    block: Annotated[tuple[ForeignBlock, ...], msgspec.Meta(min_length=1, max_length=MAX_BLOCKS)]


def load_manifest(path: Path, contract: Contract) -> Manifest:
    """Read and check a manifest against the contract; raises UsageError with place and remedy."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise UsageError(
            f"the manifest cannot be read: {fault.strerror}",
            where=str(path),
            remedy="kvgate import MANIFEST; docs/import.md shows one",
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as fault:
        raise UsageError(f"not TOML: {fault}", where=str(path)) from None
    try:
        manifest = msgspec.convert(raw, Manifest)
    except msgspec.ValidationError as fault:
        raise UsageError(
            str(fault), where=str(path), remedy="docs/import.md lists the keys"
        ) from None
    _check(path, manifest, contract)
    return manifest


def _check(path: Path, manifest: Manifest, contract: Contract) -> None:
    if manifest.gate not in contract.gates or contract.gate(manifest.gate).pairs is None:
        paired = [g for g in contract.gates if contract.gate(g).pairs is not None]
        raise UsageError(
            f"gate {manifest.gate} of the contract {contract.id} compares no pairs",
            where=str(path),
            remedy=f"import for one of the gates {', '.join(map(str, paired)) or '(none)'}",
        )
    plan = contract.gate(manifest.gate).pairs
    arms = () if plan is None else plan.compare
    places: set[tuple[str, Cell, int]] = set()
    orders: set[tuple[Cell, int, int]] = set()
    for i, block in enumerate(manifest.block):
        where = f"{path}: block {i} ({block.file})"
        _known(where, "format", block.format, FORMATS)
        _known(where, "arm", block.arm, arms)
        _known(where, "workload", block.workload, contract.workloads)
        for axis, plain in zip(AXES, (DEFAULT, DEFAULT, LOCAL), strict=True):
            _known(where, axis, getattr(block, axis), (plain, *getattr(contract, axis)))
        place = (block.arm, block.cell, block.pair)
        order = (block.cell, block.pair, block.order)
        if place in places or order in orders:
            raise UsageError(
                f"pair {block.pair} has a second block of the same arm or order at "
                f"{block.cell.label}",
                where=where,
                remedy="each pair has one block an arm, with order 0 and 1",
            )
        places.add(place)
        orders.add(order)
        if (block.engine_before is None) != (block.engine_after is None):
            raise UsageError(
                "engine_before and engine_after belong together", where=where,
                remedy="give both pages or neither",
            )  # fmt: skip
        if block.started_at is not None and not _has_zone(block.started_at):
            raise UsageError(
                f"started_at is not a date with its time zone: {block.started_at!r}",
                where=where,
                remedy='write it as "2026-11-02T09:00:00+00:00"',
            )


def _known(where: str, what: str, found: str, known: object) -> None:
    names = sorted(str(k) for k in known) if isinstance(known, Mapping | tuple) else []
    if found not in names:
        raise UsageError(
            f"unknown {what} {found!r}", where=where, remedy=f"one of {', '.join(names)}"
        )


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
