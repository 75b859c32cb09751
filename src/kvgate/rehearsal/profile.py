"""Calibration files: what the simulated machine costs, in real-world seconds and bytes.

A file holds scenarios; ``NAME[:SCENARIO]`` or ``PATH[:SCENARIO]`` selects one. ``published`` rows
are the vendor's claims that a scenario is fitted to, ``assumptions`` says what was not published.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final, Literal

import msgspec

from kvgate.errors import UsageError

SHIPPED: Final = Path(__file__).parent / "calibration"


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class EngineProfile(_Record, frozen=True):
    """What one engine step costs and how much the engine holds.

    A step lasts ``decode_base_s + decode_per_sequence_s * sequences + decode_per_load_s * loads in
    flight + prefill tokens / prefill_tokens_per_s``. Tokens are prompt tokens on the wire, except
    in ``prefill_real_tokens_per_s``.
    """

    prefill_real_tokens_per_s: float
    decode_base_s: float
    decode_per_sequence_s: float
    decode_per_load_s: float
    step_budget_tokens: int
    max_running: int
    gpu_cache_tokens: int
    dram_tokens: int = 0
    dram_gb_per_s: float = 50.0


class StoreProfile(_Record, frozen=True):
    """What one store costs: GB/s are 1e9 bytes per second.

    ``bandwidth_gb_per_s`` lists (loads at the store, aggregate GB/s), linear in between. At most
    ``parallel_loads`` are served at once and share it. ``load_overhead_s`` occupies the store for
    each load, ``latency_s`` only delays its answer.
    """

    model: str
    serial: str
    firmware: str
    capacity_bytes: int
    link_gbit_per_s: float
    latency_s: float
    load_overhead_s: float
    parallel_loads: int
    write_gb_per_s: float
    bandwidth_gb_per_s: list[tuple[float, float]]


class Published(_Record, frozen=True):
    """One figure of the vendor, in the unit its metric ends with; gain is a ratio - 1."""

    source: str
    arm: Literal["recompute", "baseline", "appliance"]
    level: int
    metric: Literal["ttft_p50_s", "output_tokens_per_s", "gain", "read_gb_per_s"]
    value: float


class Scenario(_Record, frozen=True):
    """One machine under one workload. ``prompt_tokens``/``output_tokens``: what it is fitted to."""

    title: str
    model: str
    max_model_len: int
    prompt_tokens: int
    output_tokens: int
    real_tokens_per_token: float
    kv_bytes_per_real_token: float
    pair_noise_sd: float
    engine: EngineProfile
    store: dict[str, StoreProfile]
    chunk_tokens: int = 256
    published: list[Published] = []

    @property
    def chunk_bytes(self) -> int:
        """KV bytes of one chunk."""
        per_token = self.real_tokens_per_token * self.kv_bytes_per_real_token
        return round(self.chunk_tokens * per_token)

    @property
    def prefill_s_per_token(self) -> float:
        """Real-world seconds to compute one prompt token of the wire."""
        return self.real_tokens_per_token / self.engine.prefill_real_tokens_per_s


class Calibration(_Record, frozen=True):
    """A calibration file."""

    name: str
    about: str
    default_scenario: str
    assumptions: dict[str, str]
    scenario: dict[str, Scenario]


def shipped_names() -> list[str]:
    """Names of the calibrations that come with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_calibration(name_or_file: str) -> Calibration:
    """Read a shipped calibration by name, or a file; raises ``UsageError`` with file and key."""
    shipped = SHIPPED / f"{name_or_file}.toml"
    path = shipped if shipped.is_file() else Path(name_or_file)
    if not path.is_file():
        raise UsageError(
            f"no calibration {name_or_file!r}",
            where="--calibration",
            remedy="give a file or one of " + ", ".join(shipped_names()),
        )
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        calibration = msgspec.convert(raw, Calibration)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(
            f"not a calibration: {error}", where=str(path), remedy="correct the file"
        ) from error
    return calibration


def load_scenario(selector: str) -> Scenario:
    """``NAME_OR_FILE[:SCENARIO]`` -> the scenario; raises ``UsageError``."""
    name, colon, wanted = selector.rpartition(":")
    if not colon:
        name, wanted = selector, ""
    calibration = load_calibration(name)
    key = wanted or calibration.default_scenario
    scenario = calibration.scenario.get(key)
    if scenario is None:
        raise UsageError(
            f"calibration {name} has no scenario {key!r}",
            where="--calibration",
            remedy="scenarios: " + ", ".join(calibration.scenario),
        )
    return scenario


def bandwidth_at(points: list[tuple[float, float]], loads: float) -> float:
    """Aggregate bytes per second with ``loads`` at the store: linear inside, flat outside."""
    low = points[0]
    if loads <= low[0]:
        return low[1] * 1e9
    for high in points[1:]:
        if loads <= high[0]:
            share = (loads - low[0]) / (high[0] - low[0])
            return (low[1] + share * (high[1] - low[1])) * 1e9
        low = high
    return low[1] * 1e9
