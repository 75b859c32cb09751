"""The load client tried against a server that knows the truth, before a level is measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.analyse.calibration import holds
from kvgate.campaign import utc_text
from kvgate.contract_tables import Validity
from kvgate.errors import CannotMeasure
from kvgate.load.calibrate import ErrorBudget, check_client

TRIES: Final = 2
"""One bad moment of a busy host is granted; both attempts are in the evidence."""

Check = Callable[[int, Path], ErrorBudget]


class Calibrations:
    """What the client was found to hold, by level, for the blocks of one gate run.

    A level that was held is not tried again in the run; one that was not is tried again before
    its next block, so that a busy moment does not cost the whole run.
    """

    def __init__(self, limits: Validity, work_dir: Path, check: Check = check_client) -> None:
        self._limits = limits
        self._work_dir = work_dir
        self._check = check
        self._held: dict[int, Mapping[str, Any]] = {}

    def known(self, level: int) -> bool:
        """Whether the level was held already."""
        return level in self._held

    def at(self, level: int) -> Mapping[str, Any]:
        """``{"level", "at", "attempts": [error budget]}``, the last attempt being the one that
        counts. An attempt that could not be made holds ``level`` and ``error`` alone."""
        if level in self._held:
            return self._held[level]
        attempts: list[Mapping[str, Any]] = []
        found: Mapping[str, Any] = {}
        for _ in range(TRIES):
            attempts.append(self._try(level))
            found = {"level": level, "at": utc_text(datetime.now(UTC)), "attempts": attempts}
            if holds(self._limits, found, level):
                self._held[level] = found
                break
        return found

    def _try(self, level: int) -> Mapping[str, Any]:
        folder = self._work_dir / f"calibration-{level}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            budget = self._check(level, folder)
        except CannotMeasure as fault:
            return {"level": level, "error": str(fault)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        plain: dict[str, Any] = msgspec.to_builtins(budget)
        return plain
