"""Whether engines served our requests alone, and whether their hosts tell of all accelerators: each
broken by a cause of its own through real processes, as `docs/validity.md` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kvgate.conduct import block as conduct_block
from kvgate.contract_tables import Parallelism
from kvgate.observe import polling
from kvgate.observe.throttling import read_cpu_throttling
from kvgate.verdict import About

from .stage import CONTRACT, Stage, ask, limits, stage
from .test_each_knob_breaks_its_condition import WORDS, changed_job


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("healthy")) as made:
        made.prime(0)
        yield made


def test_engines_that_counted_other_tokens_than_our_clients_did_not_serve_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Parallelism(text=WORDS, instances=2)
    both = CONTRACT.model_copy(update={"parallelism": {"default": two}})
    with stage(tmp_path, contract=both, workload="miss") as made:
        one, other = made.bench.urls(made.cell)
        # Two ports that lead to one engine: its requests are counted twice.
        monkeypatch.setattr(conduct_block.Bench, "urls", lambda *_: (one, one))
        twice = made.measure().told(both)
        # Half of what the load host has on record was served by nobody that we look at.
        monkeypatch.setattr(conduct_block.Bench, "urls", lambda *_: (one,))
        changed_job(monkeypatch, lambda job: msgspec.structs.replace(job, urls=(one, other)))
        half = made.measure(pool=1, pair=1).told()
    assert twice == {"engine_served_ours": (False, About.ENVIRONMENT)}
    assert half == {"engine_served_ours": (False, About.INSTRUMENT)}


def test_a_strangers_requests_are_not_ours(healthy: Stage) -> None:
    def stranger() -> None:
        asked = {"model": CONTRACT.model.name, "prompt": "", "max_tokens": 64, "stream": False}
        prompt = list(range(1000, 1000 + 2048))
        ask(f"{healthy.place.engine_url}/v1/completions", asked | {"prompt": prompt})

    found = healthy.measure(during=stranger).told()
    # What a stranger has computed did not come from the store either.
    assert set(found) - {"declared_source"} == {"engine_served_ours"}
    assert found["engine_served_ours"] == (False, About.ENVIRONMENT)


def test_an_engine_host_without_its_accelerators_is_not_known_to_be_unthrottled(
    healthy: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "cpu0/thermal_throttle/core_throttle_count"
    counter.parent.mkdir(parents=True)
    counter.write_text("0")
    still = partial(read_cpu_throttling, cpus=tmp_path, cgroup=tmp_path)
    monkeypatch.setattr(polling, "read_cpu_throttling", still)
    measured = healthy.measure()
    there = measured.block["host"]["throttling"]["accelerators_told"]
    for wanted, broken in (
        (there, {}),
        (there + 1, {"no_throttling": (None, About.ENVIRONMENT)}),
    ):
        asked = limits(throttled_share_at_most=1, accelerators_per_engine_host_at_least=wanted)
        assert measured.told(asked) == broken
