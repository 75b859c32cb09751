"""Who carries the load of a block: this machine's client, or several hosts (``load_hosts``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kvgate.conduct.calibration import Calibrations
from kvgate.errors import CannotMeasure
from kvgate.load.job import Job, Progress
from kvgate.load.run import LoadResult, run_load

Calibration = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load left behind; ``calibration`` is the local client's, ``hosts`` what each of
    several hosts did. ``lasted_s`` is the load alone, where connecting to hosts and fetching from
    them took time beside it."""

    result: LoadResult | None
    fault: str | None
    calibration: Calibration | None = None
    hosts: Mapping[str, Any] | None = None
    lasted_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The load's part of ``block.json``."""
        report = None if self.result is None else self.result.report
        return {
            "client": None if report is None else msgspec.to_builtins(report),
            "calibration": self.calibration,
            "load_state": "failed" if self.result is None else self.result.state,
            "fault": self.fault,
            **({} if self.hosts is None else {"load_hosts": dict(self.hosts)}),
        }


class Client(Protocol):
    """Carries out the job of a block."""

    def known(self, level: int, requests: int, engines: int = 1) -> bool:
        """Whether it was found to hold a block of this size already."""
        ...

    def calibrate(self, level: int, requests: int, engines: int = 1) -> Calibration:
        """What it holds, tried where that is not known."""
        ...

    def run(
        self,
        job: Job,
        *,
        calibration: Calibration,
        on_progress: Callable[[Progress], None],
        deadline_s: float,
    ) -> Loaded:
        """The records go where the job says. What went wrong is in the result; nothing is raised
        but UsageError and interrupts."""
        ...


class LocalClient:
    """The load client of this machine."""

    def __init__(self, calibrations: Calibrations) -> None:
        self._calibrations = calibrations

    def known(self, level: int, requests: int, engines: int = 1) -> bool:
        return self._calibrations.known(level)

    def calibrate(self, level: int, requests: int, engines: int = 1) -> Calibration:
        return self._calibrations.at(level)

    def run(
        self,
        job: Job,
        *,
        calibration: Calibration,
        on_progress: Callable[[Progress], None],
        deadline_s: float,
    ) -> Loaded:
        work = Path(job.records_path).parent
        try:
            result = run_load(job, work, on_progress=on_progress, deadline_s=deadline_s)
        except CannotMeasure as fault:
            return Loaded(None, str(fault), calibration)
        wrong = None if result.complete else f"the client ended as {result.state}"
        return Loaded(result, wrong, calibration)
