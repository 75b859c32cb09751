"""What can be measured and how it is compared: the metrics and the forms of a clause.

Every metric is defined once, with its unit, so that a contract cannot compare seconds with
milliseconds. A comparing form turns two arms into a *benefit*: a log ratio that is larger when the
appliance is better. Thresholds are turned into the same scale, so one statistical rule serves all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Source(StrEnum):
    """Where a metric's values come from."""

    BLOCK = "block"  # one number from the requests of one block
    FACT = "fact"  # one value of one host, collected by Ansible
    ANSWERS = "answers"  # comparison of probe answers with the recompute arm's
    SOAK = "soak"  # one value of a long run


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity with its unit ("1" is a fraction or a count) and how it is computed."""

    name: str
    unit: str
    source: Source
    formula: str


def _metrics(*rows: tuple[str, str, Source, str]) -> Mapping[str, Metric]:
    return {name: Metric(name, unit, source, formula) for name, unit, source, formula in rows}


METRICS: Final = _metrics(
    (
        "ttft",
        "s",
        Source.BLOCK,
        "first token of any kind minus request sent; quantile over requests",
    ),
    (
        "itl",
        "s",
        Source.BLOCK,
        "gap between neighbouring tokens with stamps of their own; quantile",
    ),
    (
        "throughput",
        "tok/s",
        Source.BLOCK,
        "output tokens between the level-th completion and the last issue, over that time",
    ),
    (
        "restore_rate",
        "B/s",
        Source.BLOCK,
        "bytes the store read during the block over its duration",
    ),
    ("failed_requests", "1", Source.BLOCK, "requests that did not succeed over requests sent"),
    ("wrong_answers", "1", Source.ANSWERS, "answers that differ beyond the tolerance over answers"),
    ("device_model", "text", Source.FACT, "model name that the appliance reports"),
    ("device_serial", "text", Source.FACT, "serial number that the appliance reports"),
    ("device_firmware", "text", Source.FACT, "firmware version that the appliance reports"),
    ("device_capacity", "B", Source.FACT, "capacity that the appliance reports"),
    ("device_link_rate", "bit/s", Source.FACT, "link rate that the appliance reports"),
    ("cpu_count", "1", Source.FACT, "processors the host may use"),
    ("memory", "B", Source.FACT, "MemTotal of /proc/meminfo"),
    ("disk_free", "B", Source.FACT, "bytes free to us where the evidence or the store lives"),
    ("open_files_limit", "1", Source.FACT, "hard limit of open files"),
    ("python_version", "text", Source.FACT, "major.minor of the interpreter Ansible uses"),
    ("kernel_errors_24h", "1", Source.FACT, "MCE, AER and I/O errors in the kernel log of 24 h"),
    ("link_rate", "bit/s", Source.FACT, "negotiated rate of the RoCE port (sysfs speed)"),
    ("link_mtu", "B", Source.FACT, "MTU of the RoCE port"),
    (
        "link_flaps",
        "1",
        Source.FACT,
        "carrier_changes of the RoCE port since boot, beyond the first up",
    ),
    ("rocev2_gid", "text", Source.FACT, "index of a routable IPv4 RoCE v2 GID"),
    ("pfc_priority", "text", Source.FACT, "priorities with PFC enabled"),
    ("nvme_count", "1", Source.FACT, "NVMe controllers present"),
    ("nvme_critical_warning", "1", Source.FACT, "sum of the SMART critical_warning fields"),
    ("gpu_count", "1", Source.FACT, "accelerators that the vendor's tool lists"),
    ("clock_offset", "s", Source.FACT, "absolute offset that chronyc tracking reports"),
    ("model_load_time", "s", Source.FACT, "start of the engine to its first healthy answer"),
    (
        "soak_error_share",
        "1",
        Source.SOAK,
        "worst share, over sliding windows, of failed requests or of time without a good one",
    ),
    (
        "soak_restored_share",
        "1",
        Source.SOAK,
        "lowest share, over windows, of prompt tokens that came from where the workload says",
    ),
    (
        "soak_ttft_drift",
        "1",
        Source.SOAK,
        "rise of window TTFT p50: larger of last against first stretch and of Theil-Sen",
    ),
    (
        "soak_throughput_drift",
        "1",
        Source.SOAK,
        "fall of window throughput: larger of last against first stretch and of Theil-Sen",
    ),
    (
        "soak_worst_window",
        "1",
        Source.SOAK,
        "by how much the worst window lies above the median, in TTFT p50 or time per token",
    ),
    (
        "soak_memory_slope",
        "1",
        Source.SOAK,
        "growth of the engine's resident memory: larger of last against first and of Theil-Sen",
    ),
    ("soak_restarts", "1", Source.SOAK, "engine or store restarts that no injected fault explains"),
    ("soak_coverage", "1", Source.SOAK, "share of the planned observations that were made"),
    ("soak_duration", "s", Source.SOAK, "length of the observed run, campaign time"),
    ("soak_wrong_answers", "1", Source.SOAK, "canary answers that differ from the recomputed ones"),
    ("fault_proved", "1", Source.SOAK, "injected faults that are proved to have taken effect"),
    ("fault_recovery_time", "s", Source.SOAK, "longest time from an injected fault to normal TTFT"),
)

OF_THE_INSTRUMENT: Final = frozenset({"soak_coverage", "soak_duration", "fault_proved"})
"""Metrics about our own measurement: outside their limit the clause is INVALID, never a FAIL."""

LESS_IS_BETTER: Final = frozenset({
    "ttft", "itl", "failed_requests", "wrong_answers", "kernel_errors_24h", "link_flaps",
    "nvme_critical_warning", "clock_offset", "model_load_time", "soak_error_share",
    "soak_ttft_drift", "soak_throughput_drift", "soak_worst_window", "soak_memory_slope",
    "soak_restarts", "soak_wrong_answers", "fault_recovery_time",
})  # fmt: skip
"""Metrics of which less is better; of every other number more is, and texts are neither."""

BLOCK_STATISTICS: Final[Mapping[str, tuple[str, ...]]] = {
    "ttft": ("p50", "p99"),
    "itl": ("p50", "p99"),
    "throughput": ("steady",),
    "restore_rate": ("mean",),
}


class Effect(StrEnum):
    """How a comparing clause words its threshold; the contract's keys carry these names."""

    DROP = "drop_at_least"  # the metric falls by at least this fraction
    GAIN = "gain_at_least"  # the metric rises by at least this fraction
    RISE = "rise_at_most"  # the metric rises by at most this fraction
    SAME = "equal_within"  # one arm against itself: no effect beyond this fraction


@dataclass(frozen=True, slots=True)
class Benefit:
    """A threshold on the scale of log ratios where larger is better for the appliance.

    ``sign`` turns log(test / reference) into the benefit; PASS needs the lower bound above
    ``pass_bound`` and FAIL the upper bound below ``threshold``.
    """

    sign: int
    threshold: float
    pass_bound: float


def benefit(effect: Effect, threshold: float, indifference: float) -> Benefit:
    """The clause's threshold as log ratio.

    ``threshold`` and ``indifference`` are fractions: a drop of 0.25 with indifference 0.03 passes
    nobody at a true 0.22 or less but with the consumer's risk.
    """
    if effect is Effect.DROP:
        return Benefit(-1, -math.log1p(-threshold), -math.log1p(-(threshold - indifference)))
    if effect is Effect.GAIN:
        return Benefit(1, math.log1p(threshold), math.log1p(threshold - indifference))
    if effect is Effect.RISE:
        return Benefit(-1, -math.log1p(threshold), -math.log1p(threshold + indifference))
    raise ValueError(f"{effect} is two-sided and has no benefit scale")


def effect_of(effect: Effect, benefit_log: float) -> float:
    """A benefit turned back into the fraction that the clause speaks of."""
    if effect is Effect.DROP:
        return -math.expm1(-benefit_log)
    if effect is Effect.RISE:
        return math.expm1(-benefit_log)
    return math.expm1(benefit_log)
