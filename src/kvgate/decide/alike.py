"""Do two arms differ in their store alone? A gain of another engine build is no appliance's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.analyse.results import Configuration
from kvgate.cells import DEFAULT
from kvgate.contract import Contract
from kvgate.reason import Reason

_VERSIONS: Final = ("engine", "engine_version", "version", "version.version")
"""Where a role tells the engine's build; both arms must tell at least one."""

_STORES_OWN: Final = frozenset({"connector", "store_args"})
"""What belongs to the store behind an arm: the one thing in which arms may differ."""

_KV_TRANSFER: Final = re.compile(r"--kv-transfer-config[= ](?:(?! --).)*")


def arms_differ(contract: Contract, arms: tuple[str, str], seen: Configuration) -> Reason | None:
    """Why what was measured compares more than the stores; None where the arms are alike.

    Engine build, packages, model and flags must be equal, apart from the flags that the contract
    gives to an arm and the KV connector. An engine whose build nobody told is not known to be the
    same. An arm compared with itself is alike. Engines that share the host in another way have
    other flags: arms are compared where both were brought up in the same parallelism.
    """
    if arms[0] == arms[1]:
        return None
    ways = [_parallelisms(contract, arm, seen) for arm in arms]
    common = sorted(ways[0] & ways[1]) or [DEFAULT]
    found = (_differ(contract, arms, seen, parallelism) for parallelism in common)
    return next((reason for reason in found if reason is not None), None)


def _differ(
    contract: Contract, arms: tuple[str, str], seen: Configuration, parallelism: str
) -> Reason | None:
    told = [_told(contract, arm, seen, parallelism) for arm in arms]
    for arm, said in zip(arms, told, strict=True):
        if not any(name in said for name in _VERSIONS):
            return Reason("engine_not_told", {"arm": arm})
    for name in sorted(told[0].keys() & told[1].keys()):
        if told[0][name] != told[1][name]:
            return Reason(
                "arms_differ",
                {"what": name, "arm": arms[0], "value": " | ".join(told[0][name])[:120],
                 "other": arms[1], "found": " | ".join(told[1][name])[:120]},
            )  # fmt: skip
    return None


def _told(
    contract: Contract, arm: str, seen: Configuration, parallelism: str
) -> dict[str, tuple[str, ...]]:
    """Everything that an arm said under a name, in whichever strategy and at whichever distance: an
    engine that is another one in a single setup must not hide behind the others."""
    found: dict[str, set[str]] = {}
    for name, text in _of(contract, arm, seen, parallelism):
        found.setdefault(name, set()).add(text)
    return {name: tuple(sorted(texts)) for name, texts in found.items()}


def _parallelism(contract: Contract, of_arm: str) -> str:
    """That of an arm as evidence names it, "appliance/tp8/wan_10ms"."""
    parts = of_arm.split("/")[1:]
    return next((part for part in parts if part in contract.parallelism), DEFAULT)


def _parallelisms(contract: Contract, arm: str, seen: Configuration) -> set[str]:
    told = [place.partition(" ")[0] for k in ("engine", "tuning") for place in seen.get(k, ())]
    return {_parallelism(contract, of) for of in told if of.partition("/")[0] == arm}


def _of(
    contract: Contract, arm: str, seen: Configuration, parallelism: str
) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that must be the same in every arm."""
    own = contract.arms[arm].engine_args
    own += tuple(flag for s in contract.strategy.values() for flag in s.engine_args)
    for kind in ("engine", "tuning"):
        for place, said in seen.get(kind, {}).items():
            of_arm, _, name = place.partition(" ")
            if of_arm.partition("/")[0] != arm or name in _STORES_OWN:
                continue
            if _parallelism(contract, of_arm) != parallelism:
                continue
            yield name, _without(said, own) if kind == "tuning" else said


def _without(flags: str, own: tuple[str, ...]) -> str:
    left = _KV_TRANSFER.sub("", flags)
    for flag in own:
        left = left.replace(flag, "", 1)
    return " ".join(left.split())
