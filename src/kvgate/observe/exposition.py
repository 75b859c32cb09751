"""Samples of one metrics page, and the few safe ways to read a number out of them.

A series that is not there is ``None``, never 0. ``name`` and ``name_total`` are one counter;
``name_created`` is a time and no counter. Aliases are alternatives, never summands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

MAX_LINE_CHARACTERS: Final = 65_536
"""The parser takes seconds for one longer line of labels."""
_BEYOND: Final = 2.0**63
"""No count of tokens or bytes and no time comes near it: such a number is a lie."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str) -> tuple[Sample, ...]:
    """The samples of a page in Prometheus' text format, time stamps left out.

    Raises ValueError where a line cannot be read: half a page is no page.
    """
    longest = max((len(line) for line in text.split("\n")), default=0)
    if longest > MAX_LINE_CHARACTERS:
        raise ValueError(f"not Prometheus text: a line of {longest} characters")
    try:
        return tuple(
            Sample(sample.name, dict(sample.labels), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not Prometheus text: {error}") from error


def series(samples: Sequence[Sample], name: str, **labels: str) -> list[Sample]:
    """The samples of counter or gauge ``name`` that carry ``labels``.

    ``name`` stands without ``_total``; where a page has both spellings, only ``name_total`` is
    taken. Of tensor- and pipeline-parallel ranks, which all report the same work, only the first
    is taken.
    """
    for spelling in (f"{name}_total", name):
        found = [sample for sample in samples if sample.name == spelling]
        if found:
            chosen = [s for s in found if all(s.labels.get(k) == v for k, v in labels.items())]
            return _one_rank(chosen)
    return []


def _one_rank(samples: list[Sample]) -> list[Sample]:
    for label in ("tp_rank", "pp_rank"):
        ranks = {s.labels[label] for s in samples if label in s.labels}
        if ranks:
            first = min(ranks, key=lambda rank: (len(rank), rank))
            samples = [s for s in samples if s.labels.get(label, first) == first]
    return samples


def total(samples: Sequence[Sample]) -> float | None:
    """The sum over engines, models and data-parallel ranks; None without samples, with a value
    that is no count, or where two samples have the same labels (one of them is a lie)."""
    if not samples or not all(_counts(sample.value) for sample in samples):
        return None
    if len({tuple(sorted(sample.labels.items())) for sample in samples}) != len(samples):
        return None
    return exact(sum(sample.value for sample in samples))


def latest(samples: Sequence[Sample]) -> float | None:
    """The largest value: of several processes' start times, the one that tells a restart."""
    if not samples or not all(_counts(sample.value) for sample in samples):
        return None
    return max(sample.value for sample in samples)


def _counts(value: float) -> bool:
    return 0 <= value < _BEYOND  # NaN is neither


def exact(value: float) -> float:
    """``value`` as an integer where it is one, so that token counts stay exact in JSON."""
    return int(value) if math.isfinite(value) and value == int(value) else value
