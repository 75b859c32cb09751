"""Brings the engines into an arm and out of it, through the inventory's role."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvgate.cells import Setup
from kvgate.contract import Contract
from kvgate.drive.playbooks import Playbooks, PlayResult
from kvgate.errors import CannotMeasure
from kvgate.inventory import Inventory

HTTP_TIMEOUT_S = 10.0
PLAIN = Setup()


@dataclass(frozen=True, slots=True)
class RunningArm:
    """An arm that is up: what the role says is running, its proof that all is cold (where it gives
    one), and the processes whose reads count as reads of the store."""

    arm: str
    store: str | None
    info: Mapping[str, Any]
    cold: Mapping[str, Any]
    store_pids: tuple[int, ...]


class Arms:
    """Starts and stops arms. Every play is handed to ``on_play``, which keeps it as evidence."""

    def __init__(
        self,
        playbooks: Playbooks,
        contract: Contract,
        inventory: Inventory,
        run_dir: Path,
        *,
        faults: Sequence[str],
        on_play: Callable[[PlayResult], None],
        starts_before: int = 0,
    ) -> None:
        """``starts_before``: starts in the part of the run before an interruption, so that a
        simulated engine does not draw its noise again."""
        self._playbooks = playbooks
        self._contract = contract
        self._inventory = inventory
        self._run_dir = run_dir
        self._faults = tuple(faults)
        self._on_play = on_play
        self._started = starts_before

    def start(self, arm: str, setup: Setup = PLAIN, *, priming: bool = False) -> RunningArm:
        """One play: stop what ran, start the arm in the setup, make it cold, tell what is running.

        Raises CannotMeasure with the role's message when it does not come up.
        """
        self._started += 1
        store = self._contract.arms[arm].store
        play = self._run("arm", self._variables(arm, setup, priming=priming))
        info = self._published(play, "kvgate_engine_info")
        pids = info.get("store_pids") or ()
        said = play.published.get(self._inventory.group("engines")[0], {})
        return RunningArm(
            arm,
            None if store == "none" else store,
            info,
            said.get("kvgate_cold_report") or {},
            tuple(int(pid) for pid in pids),
        )

    def stop(self, *, stores: bool) -> None:
        """Stop the engine, and the stores with what they hold when ``stores``."""
        self._run(
            "stop",
            {**self._common(), "kvgate_stop_stores": stores, "kvgate_store_purge": stores},
        )

    def inject(self, arm: str, kind: str) -> Mapping[str, Any]:
        """Inject a fault into the running arm; returns the role's proof, with ``proved``."""
        variables = {**self._variables(arm, PLAIN, priming=False), "kvgate_fault_kind": kind}
        play = self._run("fault", variables)
        return self._published(play, "kvgate_fault_proof")

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """The raw facts of every host of the inventory."""
        play = self._playbooks.run("facts", {}, hosts=self._inventory.all_hosts)
        self._on_play(play)
        return {
            host: play.published.get(host, {}).get("kvgate_host_facts", {})
            for host in self._inventory.all_hosts
        }

    def reset_engine_cache(self, setup: Setup = PLAIN) -> None:
        """Empty the prefix cache of every engine of the setup between two blocks of a session.

        Raises CannotMeasure where an engine refuses: a block would start warm.
        """
        instances = self._contract.instances(setup.parallelism)
        for base in self._inventory.engine_urls(instances):
            self._reset(f"{base}/reset_prefix_cache")

    def _reset(self, url: str) -> None:
        request = urllib.request.Request(url, method="POST")  # noqa: S310 - scheme is ours
        try:
            with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310
                answer.read()
        except (urllib.error.URLError, OSError) as error:
            raise CannotMeasure(
                f"the engine's prefix cache could not be reset: {error}",
                where=url,
                remedy="vLLM needs VLLM_SERVER_DEV_MODE=1; check that the engine lives",
            ) from error

    def _run(self, name: str, variables: Mapping[str, Any]) -> PlayResult:
        hosts = self._inventory.group("engines")
        play = self._playbooks.run(name, variables, hosts=hosts)
        self._on_play(play)
        return play

    def _published(self, play: PlayResult, key: str) -> Mapping[str, Any]:
        """What the role published on the first engine host; every host must have published."""
        for host in self._inventory.group("engines"):
            found = play.published.get(host, {}).get(key)
            if not isinstance(found, Mapping):
                raise CannotMeasure(
                    f"the role {self._inventory.engine_role} published no {key} on {host}",
                    where=f"playbooks/{play.playbook}.yml",
                    remedy="the role's info and fault tasks must set that fact",
                )
        first: Mapping[str, Any] = play.published[self._inventory.group("engines")[0]][key]
        return first

    def _common(self) -> dict[str, Any]:
        return {
            "kvgate_engine_role": self._inventory.engine_role,
            "kvgate_run_dir": str(self._run_dir),
            "kvgate_engine_port": self._inventory.engine_port,
            "kvgate_python": sys.executable,
            "kvgate_controller_pid": os.getpid(),
        }

    def _variables(self, arm: str, setup: Setup, *, priming: bool) -> dict[str, Any]:
        contract, inventory = self._contract, self._inventory
        terms = contract.arms[arm]
        parallelism = contract.parallelism.get(setup.parallelism)
        strategy = contract.strategy.get(setup.strategy)
        distance = contract.distance.get(setup.distance)
        engine_args = [*inventory.engine_args, *terms.engine_args]
        store_args = [*inventory.store_args, *terms.store_args]
        if parallelism is not None:
            engine_args += parallelism.engine_args
        if strategy is not None:
            engine_args += strategy.engine_args
            store_args += strategy.store_args
        if priming:
            engine_args += inventory.prime_args
        if inventory.rehearsal and inventory.time_scale > 1:
            simulated = ["--time-scale", f"{inventory.time_scale:g}"]
            for fault in self._faults:
                simulated += ["--fault", fault]
            engine_args += [*simulated, "--seed", str(self._started)]
            store_args += simulated
        variables = {
            **self._common(),
            "kvgate_arm_name": arm,
            "kvgate_store_port": inventory.store_ports.get(terms.store, 0),
            "kvgate_engine_ports": list(
                inventory.ports_of_engines(contract.instances(setup.parallelism))
            ),
            "kvgate_parallelism": setup.parallelism,
            "kvgate_strategy": setup.strategy,
            "kvgate_strategy_settings": {} if strategy is None else dict(strategy.settings),
            "kvgate_distance": setup.distance,
            "kvgate_delay_ms": 0.0 if distance is None else distance.delay_of(terms),
            # A distance that the contract defines must be proved, also one without a delay.
            "kvgate_measure_delay": distance is not None,
            "kvgate_store_is_local": terms.store_is_local,
        }
        # An empty list would hide the role's own defaults.
        if engine_args:
            variables["kvgate_engine_args"] = engine_args
        if store_args:
            variables["kvgate_store_args"] = store_args
        return variables


def play_log(play: PlayResult) -> dict[str, Any]:
    """A play as evidence: hosts, tasks, outcomes and durations; no output, so no secret."""
    return {
        "playbook": play.playbook,
        "hosts": list(play.hosts),
        "events": [
            {"host": e.host, "task": e.task, "status": e.status, "duration_s": e.duration_s}
            for e in play.events
        ],
    }
