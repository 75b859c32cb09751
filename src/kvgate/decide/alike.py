"""Do two arms differ in their store alone? A gain of another engine build is no appliance's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kvgate.analyse.results import Configuration
from kvgate.cells import DEFAULT
from kvgate.contract import Contract
from kvgate.reason import Reason

_VERSIONS: Final = ("engine", "engine_version", "version", "version.version")
"""Where a role tells the engine's build; both arms must tell at least one."""

_STORES_OWN: Final = frozenset({"connector", "store_args"})
"""What belongs to the store behind an arm: the one thing in which arms may differ."""

Told = Mapping[str, tuple[str, ...]]
"""What an arm said, by name: every text that was ever told."""

_KV_TRANSFER: Final = re.compile(r"--kv-transfer-config[= ](?:(?! --).)*")


def arms_differ(contract: Contract, arms: tuple[str, str], seen: Configuration) -> Reason | None:
    """Why what was measured compares more than the stores; None where the arms are alike.

    Engine build, packages, model and flags must be equal, apart from the flags that the contract
    gives to an arm and the KV connector. An engine whose build nobody told is not known to be the
    same. An arm compared with itself is alike. Engines that share the host in another way have
    other flags: arms are compared where both were brought up in the same parallelism, and again
    setup by setup.
    """
    if arms[0] == arms[1]:
        return None
    ways = [_parallelisms(contract, arm, seen) for arm in arms]
    for parallelism in sorted(ways[0] & ways[1]) or [DEFAULT]:

        def in_way(setup: str, wanted: str = parallelism) -> bool:
            return _parallelism(contract, setup) == wanted

        told = [_told(contract, arm, seen, in_way, strategies=True) for arm in arms]
        for arm, said in zip(arms, told, strict=True):
            if not any(name in said for name in _VERSIONS):
                return Reason("engine_not_told", {"arm": arm})
        if (reason := _differ(arms, told)) is not None:
            return reason
    # In one setup both arms have the strategy's flags: one that lacks them is another engine.
    for setup in sorted(_setups(arms[0], seen) & _setups(arms[1], seen)):
        told = [_told(contract, a, seen, setup.__eq__, strategies=False) for a in arms]
        if (reason := _differ(arms, told)) is not None:
            return reason
    return None


def _differ(arms: tuple[str, str], told: Sequence[Told]) -> Reason | None:
    for name in sorted(told[0].keys() & told[1].keys()):
        if told[0][name] != told[1][name]:
            return Reason(
                "arms_differ",
                {"what": name, "arm": arms[0], "value": " | ".join(told[0][name])[:120],
                 "other": arms[1], "found": " | ".join(told[1][name])[:120]},
            )  # fmt: skip
    return None


def _told(
    contract: Contract,
    arm: str,
    seen: Configuration,
    among: Callable[[str], bool],
    *,
    strategies: bool,
) -> Told:
    """Everything that an arm said under a name in these setups: an engine that is another one in a
    single setup must not hide behind the others. Arms may not be measured in the same strategies:
    ``strategies``: the flags of all are left out."""
    own = contract.arms[arm].engine_args
    if strategies:
        own += tuple(flag for s in contract.strategy.values() for flag in s.engine_args)
    found: dict[str, set[str]] = {}
    for kind in ("engine", "tuning"):
        for place, said in seen.get(kind, {}).items():
            of_arm, _, name = place.partition(" ")
            named, _, setup = of_arm.partition("/")
            if named == arm and among(setup) and name not in _STORES_OWN:
                text = _without(said, own) if kind == "tuning" else said
                found.setdefault(name, set()).add(text)
    return {name: tuple(sorted(texts)) for name, texts in found.items()}


def _setups(arm: str, seen: Configuration) -> set[str]:
    """The setups in which an arm said something, by their labels: "tp8/wan_10ms"."""
    told = [place.partition(" ")[0] for k in ("engine", "tuning") for place in seen.get(k, ())]
    return {of.partition("/")[2] for of in told if of.partition("/")[0] == arm}


def _parallelism(contract: Contract, setup: str) -> str:
    """That of a setup by its label."""
    return next((part for part in setup.split("/") if part in contract.parallelism), DEFAULT)


def _parallelisms(contract: Contract, arm: str, seen: Configuration) -> set[str]:
    return {_parallelism(contract, setup) for setup in _setups(arm, seen)}


def _without(flags: str, own: tuple[str, ...]) -> str:
    left = _KV_TRANSFER.sub("", flags)
    for flag in own:
        left = left.replace(flag, "", 1)
    return " ".join(left.split())
