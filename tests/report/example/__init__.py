"""Judged gates made by hand for the tests of the report. No number here is a measurement."""

from .blocks import NO_TELEMETRY, block_statistics, conditions
from .main_gate import gate3
from .others import gate1, gate2, gate4, uncounted
from .parts import contract

__all__ = [
    "NO_TELEMETRY", "block_statistics", "conditions", "contract", "gate1", "gate2", "gate3",
    "gate4", "uncounted",
]  # fmt: skip
