"""Playbooks through the real ansible-runner, on this machine alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kvgate.drive.arms import play_log
from kvgate.drive.playbooks import Playbooks, _Collector, signal_that_ended
from kvgate.errors import CannotMeasure, Interrupted

CANARY = "canary-7d1f"
INVENTORY = """
all:
  children:
    engines:
      hosts: {one: {}, two: {}}
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "playbooks").mkdir()
    return tmp_path


def playbooks(lab: Path, text: str) -> Playbooks:
    (lab / "playbooks" / "try.yml").write_text(text)
    return Playbooks(lab / "playbooks", lab / "inventory")


def test_a_failing_task_is_one_line_with_host_task_and_message(lab: Path) -> None:
    plays = playbooks(lab, """
- hosts: engines
  gather_facts: false
  tasks:
    - name: Count the accelerators
      ansible.builtin.fail: {msg: "7 of 8 accelerators"}
      when: inventory_hostname == "two"
""")  # fmt: skip
    with pytest.raises(CannotMeasure) as caught:
        plays.run("try", {}, hosts=("one", "two"))
    line = str(caught.value)
    assert "host two, Count the accelerators: 7 of 8 accelerators" in line
    assert line.startswith("playbooks/try.yml: ")
    assert "\n" not in line


def test_a_play_whose_pattern_matches_no_host_is_a_fault(lab: Path) -> None:
    plays = playbooks(lab, """
- hosts: engine
  gather_facts: false
  tasks: [{name: Look, ansible.builtin.ping: {}}]
""")  # fmt: skip
    with pytest.raises(CannotMeasure, match="no report from one, two: the play reached 0 of 2"):
        plays.run("try", {}, hosts=("one", "two"))


def test_a_secret_of_a_loop_never_reaches_the_evidence(lab: Path) -> None:
    plays = playbooks(lab, """
- hosts: engines
  gather_facts: false
  tasks:
    - name: Use every token
      ansible.builtin.command: {argv: [echo, "{{ item }}"]}
      changed_when: true
      loop: "{{ tokens }}"
    - name: Publish
      ansible.builtin.set_fact: {kvgate_answer: 42, other: "{{ tokens[0] }}"}
""")  # fmt: skip
    result = plays.run("try", {"tokens": [CANARY]}, hosts=("one", "two"))
    log = json.dumps(play_log(result))
    assert CANARY not in log
    assert CANARY not in repr(result)
    assert result.published == {"one": {"kvgate_answer": 42}, "two": {"kvgate_answer": 42}}
    assert [e["task"] for e in play_log(result)["events"]].count("Publish") == 2


@pytest.fixture
def ended(lab: Path) -> Iterator[Path]:
    """A file for a process id; whatever it names does not outlive the test."""
    path = lab / "pid"
    yield path
    if path.exists():
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGKILL)


SLOW = """
- hosts: one
  gather_facts: false
  tasks:
    - name: Wait for a very long time
      ansible.builtin.command:
        argv:
          - sh
          - -c
          - echo $$ > {{ pid_file }}.new && mv {{ pid_file }}.new {{ pid_file }} && exec sleep 600
      changed_when: false
"""


@contextlib.contextmanager
def once_it_runs(pid_file: Path, act: Callable[[], None]) -> Iterator[None]:
    """Calls ``act`` from a thread as soon as the slow task has written its process id."""
    given_up = threading.Event()

    def watch() -> None:
        while not pid_file.exists() and not given_up.wait(0.05):
            pass
        if pid_file.exists():
            act()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        given_up.set()
        watcher.join()


def assert_ends(pid: int) -> None:
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_slow_play_is_cancelled_with_what_it_started(lab: Path, ended: Path) -> None:
    plays = playbooks(lab, SLOW)
    with once_it_runs(ended, plays.stop), pytest.raises(Interrupted, match="the play try was"):
        plays.run("try", {"pid_file": str(ended)}, hosts=("one",))
    assert_ends(int(ended.read_text()))


def test_a_signal_that_unwinds_a_play_leaves_nothing_running(lab: Path, ended: Path) -> None:
    plays = playbooks(lab, SLOW)

    def unwind(_number: int, _frame: object) -> None:
        raise Interrupted("stopped by a signal")

    def send() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, unwind)
    try:
        with once_it_runs(ended, send), pytest.raises(Interrupted, match="stopped by a signal"):
            plays.run("try", {"pid_file": str(ended)}, hosts=("one",))
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert_ends(int(ended.read_text()))


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_after_a_stop_nothing_runs_until_it_is_allowed_again(lab: Path, ended: Path) -> None:
    plays = playbooks(lab, SLOW)
    plays.stop()
    with pytest.raises(Interrupted):
        plays.run("try", {"pid_file": str(ended)}, hosts=("one",))
    assert not ended.exists()
    plays.allow()
    look = "- hosts: engines\n  gather_facts: false\n  tasks: [{name: Look, ping: {}}]\n"
    (lab / "playbooks" / "try.yml").write_text(look)
    assert plays.run("try", {}, hosts=("one", "two")).hosts == ("one", "two")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_signal_that_ended_a_child_is_known_while_it_is_not_reaped(
    number: signal.Signals,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert signal_that_ended(child.pid) == ()
        child.send_signal(number)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert signal_that_ended(child.pid) == (number.value,)
        # It was looked at, not reaped; afterwards nobody can tell.
        assert child.wait() == -number.value
        assert signal_that_ended(child.pid) == ()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_play_that_somebody_killed_says_so_and_names_no_other_signal(
    lab: Path, ended: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = playbooks(lab, SLOW)
    pids: list[int] = []
    honest = _Collector.handle

    def handle(self: _Collector, event: Mapping[str, Any]) -> bool:
        if isinstance(event.get("pid"), int):
            pids.append(event["pid"])
        return honest(self, event)

    monkeypatch.setattr(_Collector, "handle", handle)

    def kill() -> None:
        os.kill(pids[0], number)

    with once_it_runs(ended, kill), pytest.raises(CannotMeasure) as caught:
        plays.run("try", {"pid_file": str(ended)}, hosts=("one",))
    line = str(caught.value)
    assert line.startswith("playbooks/try.yml: ansible-playbook was killed by ")
    # ansible-runner may reap the play before we look at it: then the number is lost, not guessed.
    said = line.removeprefix("playbooks/try.yml: ansible-playbook was killed by ")
    known = f"{number.name} (signal {number.value}) before"
    assert said.startswith((known, "a signal before"))
    assert "\n" not in line


def test_a_signal_while_ansible_runner_asks_us_stays_that_signal(
    lab: Path, ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = playbooks(lab, SLOW)

    def interrupted(_pid: int | None) -> tuple[int, ...]:
        if not ended.exists():
            return ()
        raise Interrupted("stopped by a signal")

    monkeypatch.setattr("kvgate.drive.playbooks.signal_that_ended", interrupted)
    with pytest.raises(Interrupted, match="stopped by a signal"):
        plays.run("try", {"pid_file": str(ended)}, hosts=("one",))
    assert_ends(int(ended.read_text()))
