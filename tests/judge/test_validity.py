"""Each validity condition: a block in which it alone is broken, and one in which it is unknown."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

from kvgate.analyse.block import block_statistics
from kvgate.analyse.validity import conditions
from kvgate.plan import Cell
from kvgate.record import Outcome
from kvgate.verdict import About, Condition

from .builders import contract

LEVEL, COUNT = 8, 48
PROMPT, OUTPUT = 2048, 64
TOKENS = COUNT * PROMPT
BYTES = TOKENS * contract().model.kv_bytes_per_token
FILL = {"used_bytes": 5, "capacity_bytes": 10}
Block = dict[str, Any]


def requests() -> pd.DataFrame:
    """A good block's table: ``LEVEL`` streams, one request after the other."""
    rows = []
    for i in range(COUNT):
        sent = 1_000_000_000 * (1 + i // LEVEL)
        stamps = [sent + 100_000_000 + 1_000_000 * k for k in range(OUTPUT)]
        rows.append(
            {
                "request_id": f"b3-{i}", "load_host": "h", "prompt_digest": f"p{i}",
                "intended_ns": sent, "scheduled_ns": sent, "connected_ns": sent, "sent_ns": sent,
                "first_byte_ns": stamps[0], "first_token_ns": stamps[0],
                "first_text_ns": stamps[0], "last_token_ns": stamps[-1], "end_ns": stamps[-1],
                "token_ns": stamps, "coalesced": [], "prompt_tokens": PROMPT,
                "output_tokens": OUTPUT, "cached_tokens": 0, "finish_reason": "length",
                "outcome": "ok", "error": None, "client_lag_ns": 1000, "answer_digest": "d",
                "tokens": None, "token_logprobs": None, "top2_margin": None,
            }
        )  # fmt: skip
    frame = pd.DataFrame(rows)
    whole = [c for c in frame.columns if c.endswith("_ns") and c != "token_ns"]
    return frame.astype(dict.fromkeys([*whole, "prompt_tokens", "output_tokens"], "Int64"))


def target(**delta: float) -> dict[str, Any]:
    return {
        "before": {"stored_tokens": TOKENS, "errors": 0, **FILL},
        "after": {"stored_tokens": TOKENS, "errors": 0},
        "increase": {"restarts": 0, "delta": {"late_s": 0.0, "errors": 0, **delta}},
    }


def good() -> Block:
    """A cold restore in the appliance arm that keeps every condition."""
    return {
        "n": 3, "arm": "appliance", "role": "test", "kind": "cold_restore",
        "cell": {"workload": "cold_restore", "level": LEVEL},
        "requests_planned": COUNT, "requests_recorded": COUNT,
        "prompt_tokens_each": PROMPT, "output_tokens_each": OUTPUT,
        "prompts": {"pool": "p", "first": 0, "count": COUNT},
        "primed_tokens": TOKENS, "duration_s": BYTES / 6e9,
        "client": {
            "state": "done", "loop_stall_max_ns": 1_000_000, "cpu_s": 0.2, "wall_s": 1.0,
            "mean_in_flight": 7.9, "clock_offset_start_ns": 5, "clock_offset_end_ns": 9,
            "started_ns": 999_900_000, "ended_ns": int(requests()["end_ns"].max()) + 100_000,
        },
        "calibration": {
            "level": LEVEL,
            "attempts": [{
                "level": LEVEL, "requests": 16, "failed": 0, "ttft_error_p99_ms": 1.0,
                "first_token_lag_p99_ms": 0.1, "held": 7.9, "cpu_share": 0.1,
            }],
        },
        "observation": {
            "coverage_share": 1.0,
            "coverage": {"engine": 1.0, "host": 1.0, "store-appliance": 1.0},
            "clock_steps": [],
            "targets": {
                "engine": target(
                    prompt_tokens=TOKENS, prompt_tokens_computed=0, prompt_tokens_engine_cache=0,
                    prompt_tokens_external=TOKENS, preemptions=0, generation_tokens=COUNT * OUTPUT,
                ),
                "store-appliance": target(lookup_tokens=TOKENS, bytes_read=BYTES),
                "store-baseline": target(lookup_tokens=0, bytes_read=0),
            },
        },
        "moved": {"bytes": BYTES},
    }  # fmt: skip


def checked(block: Block, table: pd.DataFrame | None = None) -> tuple[Condition, ...]:
    frame = requests() if table is None else table
    return conditions(contract(), block, frame, block_statistics(frame, LEVEL))


def broken(block: Block, table: pd.DataFrame | None = None) -> dict[str, Condition]:
    return {c.name: c for c in checked(block, table) if c.ok is not True}


def edited(*path: str, to: Any) -> Block:
    """The good block with one value changed; ``...`` removes it."""
    block = copy.deepcopy(good())
    place = block
    for key in path[:-1]:
        place = place[key]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return block


ENGINE = ("observation", "targets", "engine")
GROWN = (*ENGINE, "increase", "delta")
MINE = ("observation", "targets", "store-appliance")
OTHER = ("observation", "targets", "store-baseline")
LIMITS = contract().validity

# name of the condition, where the value lies, a value that breaks it
VALUES: list[tuple[str, tuple[str, ...], Any]] = [
    ("client_ran", ("client", "state"), "interrupted"),
    ("client_stall", ("client", "loop_stall_max_ns"), 10 * LIMITS.client_stall_s_at_most * 1e9),
    ("client_cpu", ("client", "cpu_s"), 1.0),
    ("in_flight", ("client", "mean_in_flight"), LEVEL * LIMITS.in_flight_share_at_least - 0.1),
    ("clock_step", ("client", "clock_offset_end_ns"), -2_000_000_000),
    ("clock_step", ("observation", "clock_steps"), [{"step_ns": 30_000_000_000}]),
    ("telemetry_coverage", ("observation", "coverage", "engine"), 0.9),
    ("telemetry_coverage", ("observation", "coverage", "host"), 0.9),
    ("store_telemetry", ("observation", "coverage", "store-appliance"), 0.9),
    ("store_alive", (*MINE, "increase", "restarts"), 1),
    ("store_errors", (*MINE, "increase", "delta", "errors"), 1),
    ("engine_alive", (*ENGINE, "increase", "restarts"), 1),
    ("preemptions", (*GROWN, "preemptions"), LIMITS.preemptions_at_most + 1),
    ("engine_cache_cold", (*GROWN, "prompt_tokens_engine_cache"), TOKENS // 50),
    ("declared_source", (*GROWN, "prompt_tokens_external"), TOKENS * 0.94),
    ("bytes_read", ("moved", "bytes"), BYTES * 0.89),
    ("bytes_not_too_many", ("moved", "bytes"), BYTES * 1.11),
    ("store_rate_possible", ("duration_s",), BYTES / 13e9),
    ("untouched_baseline", (*OTHER, "increase", "delta", "bytes_read"), 1),
    ("simulator_on_time", (*GROWN, "late_s"), 60.0),
]  # fmt: skip
VALUES_THAT_MAY_BE_MISSING = [("clock_step", ("client", "clock_step_max_ns"), 2_000_000_000)]
NUMBERS = [v for v in VALUES if v[0] != "client_ran"]  # its value is a word


def test_a_good_block_keeps_every_condition() -> None:
    assert broken(good()) == {}
    names = [c.name for c in checked(good())]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name, path, value",
    [*VALUES, *VALUES_THAT_MAY_BE_MISSING],
    ids=[f"{v[0]}-{v[1][-1]}" for v in (*VALUES, *VALUES_THAT_MAY_BE_MISSING)],
)
def test_a_value_beyond_its_limit_breaks_its_condition_alone(
    name: str, path: tuple[str, ...], value: Any
) -> None:
    found = broken(edited(*path, to=value))
    assert list(found) == [name]
    assert found[name].ok is False
    assert found[name].remedy and found[name].limit is not None


@pytest.mark.parametrize(
    "name, path", [v[:2] for v in NUMBERS], ids=[f"{v[0]}-{v[1][-1]}" for v in NUMBERS]
)
@pytest.mark.parametrize("absent", [None, ..., float("nan"), "0"], ids=str)
def test_a_value_that_is_missing_breaks_its_condition(
    name: str, path: tuple[str, ...], absent: Any
) -> None:
    found = broken(edited(*path, to=absent))
    assert found[name].ok is None
    assert found[name].value is None


@pytest.mark.parametrize("absent", [None, ...], ids=str)
def test_a_client_that_says_nothing_did_not_run(absent: Any) -> None:
    assert broken(edited("client", "state", to=absent))["client_ran"].ok is None


def tables() -> Iterator[tuple[str, Callable[[pd.DataFrame], pd.DataFrame]]]:
    def set_(column: str, value: Any, row: int = 0) -> Callable[[pd.DataFrame], pd.DataFrame]:
        def change(frame: pd.DataFrame) -> pd.DataFrame:
            frame.loc[row, column] = value
            return frame

        return change

    def again(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([frame, frame.iloc[:1].assign(prompt_digest="other")], ignore_index=True)

    yield "requests_recorded", again
    yield "prompts_unique", set_("prompt_digest", "p1")
    yield "responses_possible", set_("first_token_ns", 5)
    yield "requests_finished", set_("outcome", Outcome.TRUNCATED.value)
    yield "prompt_tokens_as_planned", set_("prompt_tokens", PROMPT - 1)
    yield "output_tokens_as_planned", set_("output_tokens", OUTPUT - 1)


@pytest.mark.parametrize("name, change", list(tables()), ids=[name for name, _ in tables()])
def test_one_request_breaks_its_condition_alone(
    name: str, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    assert list(broken(good(), change(requests()))) == [name]


def test_a_fault_of_the_load_host_is_the_instruments() -> None:
    frame = requests()
    frame.loc[0, "outcome"] = Outcome.CLIENT_FAULT.value
    found = broken(good(), frame)
    assert set(found) == {"client_faults", "requests_finished"}
    assert found["client_faults"].about is About.INSTRUMENT


def test_fewer_requests_than_planned_break_the_count() -> None:
    assert list(broken(good(), requests().iloc[:-1])) == ["requests_recorded", "prompts_unique"]


def test_a_block_without_requests_keeps_no_condition_about_requests() -> None:
    found = broken(good(), requests().iloc[:0])
    assert {
        "requests_recorded", "prompts_unique", "responses_possible", "requests_finished",
        "prompt_tokens_as_planned", "output_tokens_as_planned",
    } <= set(found)  # fmt: skip


@pytest.mark.parametrize("part", ["client", "observation", "moved", "calibration"])
def test_a_part_that_is_missing_breaks_what_it_would_prove(part: str) -> None:
    absent: tuple[Any, ...] = (None, {}, ...)
    for to in absent:
        found = broken(edited(part, to=to))
        assert found
        assert all(c.ok is None for c in found.values())


def test_a_snapshot_that_is_missing_breaks_the_engines_life() -> None:
    for side in ("before", "after"):
        assert broken(edited(*ENGINE, side, to=None))["engine_alive"].ok is None


def test_a_store_that_falls_silent_alone_is_not_the_instruments_fault() -> None:
    silent = edited("observation", "coverage", "store-appliance", to=0.5)
    assert broken(silent)["store_telemetry"].about is About.APPLIANCE
    silent["role"] = "reference"
    assert broken(silent)["store_telemetry"].about is About.ENVIRONMENT
    silent["observation"]["coverage"]["engine"] = 0.5
    assert broken(silent)["store_telemetry"].about is About.INSTRUMENT


def test_engine_and_store_that_contradict_each_other_are_not_believed() -> None:
    block = edited(*MINE, "increase", "delta", "hit_tokens", to=TOKENS // 3)
    assert list(broken(block)) == ["counters_agree"]
    assert "the store found" in str(broken(block)["counters_agree"].value)


def test_a_store_without_a_counter_of_errors_is_not_asked_for_one() -> None:
    block = edited(*MINE, "before", to={"stored_tokens": TOKENS, **FILL})
    del block["observation"]["targets"]["store-appliance"]["increase"]["delta"]["errors"]
    assert broken(block) == {}


def test_a_simulated_part_breaks_a_block_of_a_real_contract() -> None:
    terms = contract()
    validity = terms.validity.model_copy(update={"simulator_late_s_at_most": None})
    real = terms.model_copy(update={"validity": validity})
    frame = requests()
    statistics = block_statistics(frame, LEVEL)

    def broken_in(block: Block) -> list[str]:
        return [c.name for c in conditions(real, block, frame, statistics) if c.ok is not True]

    assert broken_in(good()) == []
    for name in ("engine", "store-appliance", "store-baseline"):
        block = edited("observation", "targets", name, "after", to={"late_s": 0.0, "errors": 0})
        assert broken_in(block) == ["nothing_simulated"]


def test_a_store_of_local_devices_may_be_faster_than_the_appliances_link() -> None:
    """Its own limit is the arm's; the other arm keeps that of the link."""
    block = edited("duration_s", to=BYTES / 20e9)
    frame = requests()
    terms = contract()

    def possible(**own: float) -> Condition:
        arms = dict(terms.arms)
        for arm, limit in own.items():
            changed = {"store_bytes_per_s_at_most": limit}
            arms[arm] = arms[arm].model_copy(update=changed)
        given = conditions(
            terms.model_copy(update={"arms": arms}), block, frame, block_statistics(frame, LEVEL)
        )
        return next(c for c in given if c.name == "store_rate_possible")

    assert possible(baseline=28e9).ok is False
    assert (possible(appliance=28e9).ok, possible(appliance=28e9).limit) == (True, 28e9)
    assert possible(appliance=19e9).ok is False


# --- other workloads and arms ------------------------------------------------------------------


def elsewhere(arm: str, kind: str, source: str, tokens: float = TOKENS) -> Block:
    block = good() | {"arm": arm, "kind": kind, "moved": {"bytes": 0}}
    delta = block["observation"]["targets"]["engine"]["increase"]["delta"]
    delta |= {"prompt_tokens_external": 0, source: tokens}
    store = block["observation"]["targets"]["store-appliance"]["increase"]["delta"]
    store["bytes_read"] = 0
    return block


@pytest.mark.parametrize("arm, kind, source", [
    ("recompute", "cold_restore", "prompt_tokens_computed"),
    ("recompute", "probe", "prompt_tokens_computed"),
    ("appliance", "miss", "prompt_tokens_computed"),
    ("appliance", "warm", "prompt_tokens_engine_cache"),
])  # fmt: skip
def test_each_workload_has_its_own_declared_source(arm: str, kind: str, source: str) -> None:
    assert broken(elsewhere(arm, kind, source)) == {}
    assert "declared_source" in broken(elsewhere(arm, kind, source, tokens=0))


def test_a_warm_prompt_reuses_whole_chunks_and_never_its_last_token() -> None:
    chunk = contract().model.chunk_tokens
    whole = COUNT * ((PROMPT - 1) // chunk) * chunk
    assert broken(elsewhere("appliance", "warm", "prompt_tokens_engine_cache", whole)) == {}
    short = elsewhere("appliance", "warm", "prompt_tokens_engine_cache", whole - COUNT * chunk)
    assert list(broken(short)) == ["declared_source"]


def test_the_recompute_arm_must_touch_no_store() -> None:
    block = elsewhere("recompute", "cold_restore", "prompt_tokens_computed")
    block["observation"]["targets"]["store-appliance"]["increase"]["delta"]["bytes_read"] = 1
    assert list(broken(block)) == ["untouched_appliance"]


@pytest.mark.parametrize("silent", [..., {"before": None, "after": None, "increase": None}])
def test_where_stores_stay_up_silence_does_not_prove_that_a_store_was_left_alone(
    silent: Any,
) -> None:
    block = edited(*OTHER, to=silent)
    assert broken(block) == {}
    assert list(broken(block | {"stores_stay_up": True})) == ["untouched_baseline"]
    assert broken(block | {"stores_stay_up": True})["untouched_baseline"].ok is None
    assert broken(good() | {"stores_stay_up": True}) == {}


@pytest.mark.parametrize("counter", ["loads", "hit_tokens", "lookups"])
def test_a_store_that_counts_no_bytes_is_seen_to_be_touched_by_what_it_counts(
    counter: str,
) -> None:
    block = edited(*OTHER, "increase", "delta", to={counter: 0})
    assert broken(block) == {}
    block = edited(*OTHER, "increase", "delta", to={counter: 3})
    assert list(broken(block)) == ["untouched_baseline"]


def test_no_condition_looks_at_latency() -> None:
    slow = requests()
    for column in ("first_byte_ns", "first_token_ns", "first_text_ns", "last_token_ns", "end_ns"):
        slow[column] += 3_000_000_000_000
    slow["token_ns"] = [[s + 3_000_000_000_000 for s in stamps] for stamps in slow["token_ns"]]
    # Its client says that it ran as long.
    late = edited("client", "ended_ns", to=good()["client"]["ended_ns"] + 3_000_000_000_000)
    assert checked(late, slow) == checked(good())


def test_a_cell_is_named_as_the_report_names_it() -> None:
    assert Cell("cold_restore", 16).label == "cold_restore@16"
