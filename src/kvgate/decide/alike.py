"""Do two arms differ in their store alone? A gain of another engine build is no appliance's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvgate.analyse.results import Configuration
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
    same. An arm compared with itself is alike.
    """
    if arms[0] == arms[1]:
        return None
    told = [dict(_of(contract, arm, seen)) for arm in arms]
    for arm, said in zip(arms, told, strict=True):
        if not any(name in said for name in _VERSIONS):
            return Reason("engine_not_told", {"arm": arm})
    for name in sorted(told[0].keys() & told[1].keys()):
        if told[0][name] != told[1][name]:
            return Reason(
                "arms_differ",
                {"what": name, "arm": arms[0], "value": told[0][name][:120],
                 "other": arms[1], "found": told[1][name][:120]},
            )  # fmt: skip
    return None


def _of(contract: Contract, arm: str, seen: Configuration) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that must be the same in every arm."""
    own = contract.arms[arm].engine_args
    for kind in ("engine", "tuning"):
        for place, said in seen.get(kind, {}).items():
            of_arm, _, name = place.partition(" ")
            if of_arm != arm or name in _STORES_OWN:
                continue
            yield name, _without(said, own) if kind == "tuning" else said


def _without(flags: str, own: tuple[str, ...]) -> str:
    left = _KV_TRANSFER.sub("", flags)
    for flag in own:
        left = left.replace(flag, "", 1)
    return " ".join(left.split())
