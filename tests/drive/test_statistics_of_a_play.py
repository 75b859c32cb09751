"""A play is believed only when every expected host reported, and none failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvgate.drive.playbooks import _Collector, _environment, check_stats
from kvgate.errors import CannotMeasure

GOOD: dict[str, Any] = {
    "ok": {"one": 3, "two": 3}, "changed": {"one": 1}, "dark": {}, "failures": {}, "ignored": {},
    "skipped": {"two": 1}, "rescued": {},
}  # fmt: skip


def said(stats: dict[str, Any] | None, expected: tuple[str, ...] = ("one", "two")) -> str:
    with pytest.raises(CannotMeasure) as caught:
        check_stats(stats, expected=expected, where="playbooks/arm.yml", hint="a hint")
    line = str(caught.value)
    assert line.startswith("playbooks/arm.yml: ")
    assert "\n" not in line and " -- " in line
    return line


def test_a_play_with_a_report_of_every_host_is_believed() -> None:
    check_stats(GOOD, expected=("one", "two"), where="w")
    check_stats(GOOD | {"ok": {"one": 1, "two": 1, "more": 1}}, expected=("one",), where="w")


def test_an_unreachable_host_stops_even_if_the_others_went_on() -> None:
    # any_errors_fatal is ignored by Ansible where a host is unreachable.
    assert "unreachable: two" in said(GOOD | {"ok": {"one": 9}, "dark": {"two": 1}})


def test_a_limit_or_pattern_that_matches_nothing_is_a_fault() -> None:
    nothing: dict[str, Any] = {key: {} for key in GOOD}
    line = said(nothing)
    assert "no report from one, two" in line
    assert "0 of 2 hosts" in line
    assert "no report from two: the play reached 1 of 2 hosts" in said(GOOD | {"ok": {"one": 3}})


def test_a_play_without_statistics_is_a_fault_with_the_hint() -> None:
    assert "without statistics: a hint" in said(None)


def test_statistics_that_are_empty_or_zero_are_no_report() -> None:
    assert "no report" in said({})
    assert "no report" in said(dict.fromkeys(GOOD))
    assert "no report from two" in said(GOOD | {"ok": {"one": 1, "two": 0}, "changed": {}})


def test_a_failed_host_is_named() -> None:
    assert "failed: one" in said(GOOD | {"failures": {"one": 1, "two": 0}})


def test_ignored_errors_are_not_ignored() -> None:
    assert "errors were ignored on two" in said(GOOD | {"ignored": {"one": 0, "two": 1}})


def test_no_host_to_run_on_is_a_fault() -> None:
    assert "no host to run on" in said(GOOD, expected=())


def test_a_skipped_host_did_not_report() -> None:
    stats = GOOD | {"ok": {"one": 3}, "changed": {}, "skipped": {"two": 5}}
    assert "no report from two" in said(stats)


# --- the event handler ---------------------------------------------------------------------------


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": "one", "task": "t"} | data}


EVENTS: list[dict[str, Any]] = [
    {}, {"event": "playbook_on_start"}, {"event": "verbose", "event_data": None},
    event("runner_on_start"), event("runner_on_ok", res={"ansible_facts": {"kvgate_x": 1}}),
    event("runner_on_ok", res=None), event("runner_on_failed", res={"msg": "no"}),
    event("runner_on_unreachable", res={}), event("runner_on_skipped"),
    event("playbook_on_stats", ok={"one": 1}),
]  # fmt: skip


def test_the_handler_always_lets_the_runner_go_on() -> None:
    # None or False would make ansible-runner drop events, a raise would end the play midway.
    collector = _Collector()
    assert [collector.handle(e) for e in EVENTS] == [True] * len(EVENTS)


def test_the_handler_only_appends_and_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: object, **_more: object) -> None:
        raise AssertionError("the handler must neither write nor wait")

    collector = _Collector()
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", forbidden)
        patched.setattr("builtins.print", forbidden)
        patched.setattr("time.sleep", forbidden)
        patched.setattr("subprocess.Popen", forbidden)
        for number in range(1000):
            collector.handle(event("runner_on_ok", host=f"h{number}", res={}))
    assert len(collector.events) == 1000


def test_only_facts_under_our_own_name_are_kept() -> None:
    collector = _Collector()
    collector.handle(event("runner_on_ok", res={
        "ansible_facts": {"kvgate_x": 1, "password": "canary"}, "stdout": "canary",
    }))  # fmt: skip
    assert collector.published == {"one": {"kvgate_x": 1}}
    assert "canary" not in repr(collector.events)


def test_a_task_that_failed_publishes_nothing() -> None:
    collector = _Collector()
    collector.handle(event("runner_on_failed", res={"ansible_facts": {"kvgate_x": 1}}))
    assert collector.published == {}


def test_the_first_fault_is_told_with_host_task_and_message() -> None:
    collector = _Collector()
    collector.handle(event("runner_on_failed", res={"msg": "first\nthe last line"}))
    collector.handle(event("runner_on_unreachable", host="two", res={"msg": "gone"}))
    with pytest.raises(CannotMeasure, match="host one, t: the last line"):
        collector.raise_for_faults("w")
    other = _Collector()
    other.handle(event("runner_on_unreachable", host="two", res={"msg": "timed out"}))
    with pytest.raises(CannotMeasure, match="host two is unreachable: timed out"):
        other.raise_for_faults("w")


def test_a_loop_that_failed_says_what_its_item_said() -> None:
    collector = _Collector()
    items = [{"msg": "fine"}, {"unreachable": True, "msg": "Connection timed out"}]
    collector.handle(event("runner_on_unreachable", host="two", res={
        "msg": "All items completed", "results": items,
    }))  # fmt: skip
    with pytest.raises(CannotMeasure, match="host two is unreachable: Connection timed out"):
        collector.raise_for_faults("w")


def test_ansible_runs_under_a_locale_that_every_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX.ISO-8859-1")
    assert _environment(tmp_path)["LC_ALL"] == "C.UTF-8"
