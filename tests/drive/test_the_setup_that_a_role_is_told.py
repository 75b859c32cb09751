"""What the role of an arm is told of the distance: a store on the engine host is never delayed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from kvgate.cells import Setup
from kvgate.contract import load_contract
from kvgate.contract_tables import Distance, Text
from kvgate.drive.arms import Arms
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.inventory import Inventory

ROOT = Path(__file__).parents[2]
QUICK = load_contract(ROOT / "tests/outcomes/quick.toml")
FAR = Distance(text=Text(en="far", zh="远"), delay_ms=10.0, within_ms=2.0)


class Told:
    """In place of the playbooks: keeps what they would have been given."""

    def __init__(self) -> None:
        self.variables: Mapping[str, Any] = {}

    def run(self, name: str, variables: Mapping[str, Any], **_: Any) -> PlayResult:
        self.variables = variables
        return PlayResult(name, ("engine-1",), (), {"engine-1": {"kvgate_engine_info": {}}})


class OneHost:
    """As much of an inventory as a start asks for."""

    engine_role, engine_port, rehearsal = "vllm", 8000, False
    engine_args: tuple[str, ...] = ()
    store_args: tuple[str, ...] = ()
    store_ports: Mapping[str, int] = {}

    def group(self, name: str) -> tuple[str, ...]:
        return ("engine-1",)

    def ports_of_engines(self, instances: int) -> tuple[int, ...]:
        return (8000,) * instances


@pytest.mark.parametrize("distance, delays", [("far", (0.0, 10.0)), ("local", (0.0, 0.0))])
def test_a_distance_delays_no_store_on_the_engine_host_and_is_measured_there_too(
    distance: str, delays: tuple[float, float]
) -> None:
    here = QUICK.arms["baseline"].model_copy(update={"store_is_local": True})
    near = FAR.model_copy(update={"delay_ms": 0.0})
    terms = QUICK.model_copy(
        update={
            "arms": {**QUICK.arms, "baseline": here}, "distance": {"far": FAR, "local": near},
        }
    )  # fmt: skip
    told = Told()
    arms = Arms(
        cast(Playbooks, told), terms, cast(Inventory, OneHost()), Path(), faults=(),
        on_play=lambda play: None,
    )  # fmt: skip
    for arm, delay, local in zip(("baseline", "appliance"), delays, (True, False), strict=True):
        arms.start(arm, Setup(distance=distance))
        given = told.variables
        assert (given["kvgate_delay_ms"], given["kvgate_store_is_local"]) == (delay, local)
        assert given["kvgate_measure_delay"] is True
