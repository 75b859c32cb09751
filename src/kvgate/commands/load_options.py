"""What the options of ``kvgate load`` mean together."""

from __future__ import annotations

from kvgate.commands.load_cold import Watched
from kvgate.commands.load_run import ColdPlan
from kvgate.errors import UsageError
from kvgate.load.job import (
    Arrival,
    Closed,
    Constant,
    Poisson,
    RampConcurrency,
    RampRate,
    Replay,
)
from kvgate.load.workloads import Workload


class Arrivals:
    """The options that say when requests are wanted."""

    def __init__(
        self,
        concurrency: int | None,
        rate: float | None,
        poisson: bool,
        ramp_from: float | None,
        ramp_s: float,
        speed: float,
        bound: int,
        seed: str,
        *,
        replay: bool,
    ) -> None:
        self._concurrency = concurrency
        self._rate = rate
        self._poisson = poisson
        self._ramp_from = ramp_from
        self._ramp_s = ramp_s
        self._speed = speed
        self._bound = bound
        self._seed = seed
        self._replay = replay

    def arrival(self) -> Arrival:
        """Raises UsageError where the options do not say one thing."""
        if self._replay and self._concurrency is None and self._rate is None:
            if self._speed <= 0:
                raise UsageError("--speed must be above 0")
            return Replay(self._speed, self._bound)
        if (self._concurrency is None) == (self._rate is None):
            raise UsageError("give either --concurrency or --rate")
        if self._ramp_from is not None and (self._ramp_from < 0 or self._ramp_s <= 0):
            raise UsageError("--ramp-from must not be negative, --ramp-seconds above 0")
        if self._concurrency is not None:
            if self._ramp_from is None:
                return Closed(self._concurrency)
            return RampConcurrency(max(1, round(self._ramp_from)), self._concurrency, self._ramp_s)
        assert self._rate is not None
        return self.of_rate(self._rate)

    def of_rate(self, rate: float) -> Arrival:
        """Arrivals at this rate; raises UsageError for none."""
        if rate <= 0:
            raise UsageError("--rate must be above 0")
        if self._ramp_from is not None:
            seed = self._seed if self._poisson else None
            return RampRate(self._ramp_from, rate, self._ramp_s, seed, self._bound)
        if self._poisson:
            return Poisson(rate, self._seed, self._bound)
        return Constant(rate, self._bound)

    def searched(self) -> Arrival:
        """A search brings its own loads; any other option beside it is a mistake."""
        if self._concurrency is not None or self._rate is not None or self._ramp_from is not None:
            raise UsageError("--search turns up the load itself: leave out the load's own options")
        return Closed(1)


def metrics_of(url: str) -> str:
    """The metrics page that engines have beside their endpoints."""
    base = url if "//" in url else f"http://{url}"
    return base.rstrip("/").removesuffix("/v1") + "/metrics"


def cold_plan(
    workload: Workload,
    make_cold: str | None,
    store_metrics: str | None,
    store_kind: str,
    kv_bytes_per_token: int | None,
    settle_s: float,
) -> ColdPlan | None:
    """How a cold restore is prepared. Raises UsageError where that is not said, or said in vain."""
    if workload is not Workload.COLD_RESTORE:
        if make_cold is not None:
            raise UsageError("--make-cold belongs to --workload cold-restore")
        return None
    if make_cold is None:
        raise UsageError(
            "a cold restore needs a way to make the engine cold",
            remedy="give --make-cold /reset_prefix_cache, /flush_cache, a URL or a command",
        )
    store = None if store_metrics is None else Watched(store_metrics, store_kind)
    return ColdPlan(make_cold, store, kv_bytes_per_token, settle_s)


def headers_of(given: list[str]) -> dict[str, str]:
    """Header and environment variable of each option. Raises UsageError."""
    headers: dict[str, str] = {}
    for text in given:
        name, equals, variable = text.partition("=")
        if not name or not equals or not variable:
            raise UsageError(f"--header {text!r} is not NAME=VARIABLE")
        headers[name] = variable
    return headers
