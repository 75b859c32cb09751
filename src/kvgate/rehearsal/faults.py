"""Faults that the rehearsal can play, parsed from ``NAME[=VALUE][@ARM[+ARM]]``.

===================  =======  ==================  ==============================================
name                 default  default arms        VALUE means
===================  =======  ==================  ==============================================
slow-tier            1.24     appliance           factor on the duration of each restore
never-hits           1        appliance           1: the engine never asks the store
store-misses         1        appliance           share of acknowledged chunks that are lost
warm-baseline        0.3      baseline            share of a prompt served from the engine cache
wrong-answers        0.05     appliance           share of restored chunks with other content
truncated-streams    0.1      all three           share of streams that just end
error-events         0.1      appliance           share of streams with an in-band error event
engine-restart       20       appliance           restarts once after so many finished requests
engine-dies          20       appliance           exits for good after so many finished requests
noisy                0.25     baseline+appliance  sd of the log speed factor of an engine start
drift                0.005    appliance           share by which it slows per simulated minute
hang                 0.05     appliance           share of restores that never answer
slow-start           2        all three           real seconds before the engine listens
preempts             0.2      appliance           share of requests thrown out once and recomputed
long-prompts         1        appliance           tokens that the engine adds to each prompt
bytes-read           0.5      appliance           factor on the bytes that the store's drives read
uncounted-hits       0.5      appliance           share of its hits that the store does not count
other-build          1        appliance           number of the other build that the engine names
other-parallelism    1        appliance           1: the engine tells half its accelerators
no-delay             1        appliance           1: the store's distance is not carried out
===================  =======  ==================  ==============================================

Engine and store both accept every fault and play what is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvgate.errors import UsageError

ARMS: Final = ("recompute", "baseline", "appliance")

_LIKE_SHARE: Final = frozenset(
    {
        "never-hits",
        "store-misses",
        "warm-baseline",
        "wrong-answers",
        "truncated-streams",
        "error-events",
        "hang",
        "preempts",
        "uncounted-hits",
        "other-parallelism",
        "no-delay",
    }
)

#: name -> (default value, default arms, what it does, the verdict it should lead to)
KNOWN_FAULTS: Final[dict[str, tuple[float, tuple[str, ...], str, str]]] = {
    "slow-tier": (
        1.24,
        ("appliance",),
        "Restores take so many times as long, which leaves a TTFT drop of about 10 %.",
        "FAIL of the TTFT and throughput clauses, STOP-LOSS",
    ),
    "never-hits": (
        1.0,
        ("appliance",),
        "The engine never asks the store and silently recomputes; the store sees no lookups.",
        "INVALID: the tier was never exercised and the cause is not the appliance's",
    ),
    "store-misses": (
        1.0,
        ("appliance",),
        "The store loses what it acknowledged: lookups arrive and miss.",
        "FAIL: the appliance acknowledged and did not restore",
    ),
    "warm-baseline": (
        0.3,
        ("baseline",),
        "The engine serves part of each prompt from its own cache although it was reset.",
        "INVALID: the arm was not cold",
    ),
    "wrong-answers": (
        0.05,
        ("appliance",),
        "Restored chunks hold other content: other text, no logprobs, hits still counted.",
        "FAIL of the equivalence clause, no retest",
    ),
    "truncated-streams": (
        0.1,
        ARMS,
        "Streams end cleanly without finish reason, usage or [DONE].",
        "INVALID when all arms do it, FAIL when the appliance's alone does",
    ),
    "error-events": (
        0.1,
        ("appliance",),
        "Streams carry an in-band error event in a response that began with status 200.",
        "FAIL when the appliance's arm alone does it, INVALID when all do",
    ),
    "engine-restart": (
        20.0,
        ("appliance",),
        "The engine restarts once inside a block and comes back with a new process start time.",
        "INVALID: an engine restart in the window",
    ),
    "engine-dies": (
        20.0,
        ("appliance",),
        "The engine exits for good.",
        "INVALID: a dead server is an error, not a result",
    ),
    "noisy": (
        0.25,
        ("baseline", "appliance"),
        "Each engine start draws its speed with this standard deviation.",
        "INCONCLUSIVE",
    ),
    "drift": (
        0.005,
        ("appliance",),
        "Everything slows by this share per simulated minute.",
        "FAIL of the drift clause of G4",
    ),
    "hang": (
        0.05,
        ("appliance",),
        "A share of restores never answers.",
        "FAIL: a request that never ends in the appliance's arm alone",
    ),
    "slow-start": (
        2.0,
        ARMS,
        "The engine listens only after so many real seconds.",
        "PASS: a slow start is not a fault of what is measured",
    ),
    "preempts": (
        0.2,
        ("appliance",),
        "The engine runs out of KV memory: it throws requests out half-way and computes them anew.",
        "INVALID: a preemption storm",
    ),
    "long-prompts": (
        1.0,
        ("appliance",),
        "The engine adds tokens to the end of each prompt, as a template would.",
        "INVALID: the arms did not see prompts of the same length",
    ),
    "bytes-read": (
        0.5,
        ("appliance",),
        "The drives read less than is restored (a page cache answers), or more (above 1).",
        "INVALID: what was restored was not read from the store",
    ),
    "uncounted-hits": (
        0.5,
        ("appliance",),
        "The store does not count a share of its hits.",
        "INVALID: engine and store contradict each other",
    ),
    "other-build": (
        1.0,
        ("appliance",),
        "The engine says that it is another build.",
        "INVALID: the arms differ in more than the store",
    ),
    "other-parallelism": (
        1.0,
        ("appliance",),
        "The engine tells another tensor-parallel size than it was started with.",
        "INVALID: the arm was not brought up as the contract names it",
    ),
    "no-delay": (
        1.0,
        ("appliance",),
        "The store answers at once, however far away it is said to be.",
        "INVALID: the distance that was measured is not the contract's",
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One parsed fault: its name, its value (unit: see the module's table) and its arms."""

    name: str
    value: float
    arms: tuple[str, ...]

    def spec(self) -> str:
        """The text that parses back to this fault."""
        return f"{self.name}={self.value:g}@{'+'.join(self.arms)}"


@dataclass(frozen=True, slots=True)
class ActiveFaults:
    """What one process has to play; the defaults are a healthy machine.

    Shares are in [0, 1]; counts are 0 for never; ``noise_sd`` is None for the calibration's own.
    """

    slow_tier_factor: float = 1.0
    never_hits: bool = False
    miss_share: float = 0.0
    warm_share: float = 0.0
    corrupt_share: float = 0.0
    truncated_share: float = 0.0
    error_share: float = 0.0
    restart_after_requests: int = 0
    die_after_requests: int = 0
    noise_sd: float | None = None
    drift_per_minute: float = 0.0
    hang_share: float = 0.0
    slow_start_s: float = 0.0
    preempted_share: float = 0.0
    added_prompt_tokens: int = 0
    bytes_read_factor: float = 1.0
    uncounted_share: float = 0.0
    other_build: int = 0
    other_parallelism: bool = False
    no_delay: bool = False


def parse_fault(spec: str) -> Fault:
    """Read ``NAME[=VALUE][@ARM[+ARM]]``.

    Raises ``UsageError`` for an unknown name or arm, and for a value that is no number or, for a
    share, outside [0, 1].
    """
    head, _, arms_text = spec.partition("@")
    name, has_value, value_text = head.partition("=")
    known = KNOWN_FAULTS.get(name)
    if known is None:
        raise UsageError(
            f"unknown fault {name!r}", where="--fault", remedy="known: " + ", ".join(KNOWN_FAULTS)
        )
    value, arms = known[0], known[1]
    if has_value:
        try:
            value = float(value_text)
        except ValueError:
            value = float("nan")
        highest = 1.0 if name in _LIKE_SHARE else 1e9
        if not 0.0 <= value <= highest:
            raise UsageError(
                f"fault {name} has value {value_text!r}",
                where="--fault",
                remedy=f"give a number from 0 to {highest:g}",
            )
    if arms_text or "@" in spec:
        arms = tuple(arms_text.split("+"))
        wrong = [arm for arm in arms if arm not in ARMS]
        if wrong:
            raise UsageError(
                f"fault {name} names arm {wrong[0]!r}",
                where="--fault",
                remedy="arms: " + ", ".join(ARMS),
            )
    return Fault(name, value, arms)


def parse_faults(specs: Iterable[str]) -> tuple[Fault, ...]:
    """Parse several specs; raises ``UsageError`` at the first that is wrong."""
    return tuple(parse_fault(spec) for spec in specs)


def active_in(faults: Iterable[Fault], arm: str) -> ActiveFaults:
    """What a process of ``arm`` plays; of two faults with one name the later counts."""
    found = {fault.name: fault.value for fault in faults if arm in fault.arms}
    return ActiveFaults(
        slow_tier_factor=found.get("slow-tier", 1.0),
        never_hits=found.get("never-hits", 0.0) > 0.0,
        miss_share=found.get("store-misses", 0.0),
        warm_share=found.get("warm-baseline", 0.0),
        corrupt_share=found.get("wrong-answers", 0.0),
        truncated_share=found.get("truncated-streams", 0.0),
        error_share=found.get("error-events", 0.0),
        restart_after_requests=int(found.get("engine-restart", 0.0)),
        die_after_requests=int(found.get("engine-dies", 0.0)),
        noise_sd=found.get("noisy"),
        drift_per_minute=found.get("drift", 0.0),
        hang_share=found.get("hang", 0.0),
        slow_start_s=found.get("slow-start", 0.0),
        preempted_share=found.get("preempts", 0.0),
        added_prompt_tokens=int(found.get("long-prompts", 0.0)),
        bytes_read_factor=found.get("bytes-read", 1.0),
        uncounted_share=found.get("uncounted-hits", 0.0),
        other_build=int(found.get("other-build", 0.0)),
        other_parallelism=found.get("other-parallelism", 0.0) > 0.0,
        no_delay=found.get("no-delay", 0.0) > 0.0,
    )
