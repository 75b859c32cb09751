from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .conftest import module

supervised = module("supervised")
SLEEP = "import time; time.sleep(600)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
DEAF = (
    f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); {SLEEP}"
)


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Starter:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: list[Any] = []

    def __call__(self, code: str, *, controller_pid: int = 0) -> Any:
        number = len(self.records)
        record = supervised.start_supervised(
            name="program",
            command=[sys.executable, "-c", code],
            environment=dict(os.environ),
            record=self.folder / f"{number}.process.json",
            log=self.folder / f"{number}.log",
            controller_pid=controller_pid,
        )
        self.records.append(record)
        return record


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for record in starter.records:
        supervised.end_recorded(record, term_s=0.1)


def test_a_recorded_program_ends_with_its_children_and_its_supervisor(start: Starter) -> None:
    record = start(WITH_CHILD)
    assert until(lambda: len(supervised.group_members(record.program.pid)) == 2)
    assert supervised.end_recorded(record) == "terminated"
    assert supervised.group_members(record.program.pid) == []
    assert not supervised.is_running(record.supervisor)


def test_a_program_that_ignores_term_is_killed(start: Starter, tmp_path: Path) -> None:
    record = start(DEAF)
    assert until(lambda: (tmp_path / "0.log").read_text().startswith("1"))
    assert supervised.end_recorded(record, term_s=0.3) == "killed"
    assert supervised.group_members(record.program.pid) == []


def test_a_process_that_only_shares_the_pid_is_left_alone(start: Starter) -> None:
    record = start(SLEEP)
    ours = record.program
    reused = replace(record, program=supervised.Identity(ours.pid, ours.started_ticks - 1))
    reused = replace(reused, supervisor=supervised.Identity(record.supervisor.pid, 1))
    assert supervised.end_group(reused.program, term_s=0.2) == "gone"
    assert supervised.is_running(ours)


def test_a_record_of_an_earlier_boot_ends_nobody(start: Starter) -> None:
    record = start(SLEEP)
    assert supervised.end_recorded(replace(record, boot_id="another")) == "gone"
    assert supervised.is_running(record.program)


def test_a_program_ends_when_its_controller_is_gone(start: Starter) -> None:
    controller = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        record = start(WITH_CHILD, controller_pid=controller.pid)
        assert supervised.is_running(record.program)
    finally:
        controller.kill()
        controller.wait()
    assert until(lambda: not supervised.group_members(record.program.pid))
    assert until(lambda: not supervised.is_running(record.supervisor))


def test_a_controller_that_is_not_running_is_refused(start: Starter) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ValueError, match="is not running"):
        start(SLEEP, controller_pid=gone.pid)


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot start"):
        supervised.start_supervised(
            name="nothing",
            command=[str(tmp_path / "nothing")],
            environment=dict(os.environ),
            record=tmp_path / "record.json",
            log=tmp_path / "log",
            controller_pid=0,
        )


def test_a_damaged_record_is_an_error_and_no_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert supervised.read_record(path) is None
    path.write_text('{"name": "half')
    with pytest.raises(ValueError, match="damaged"):
        supervised.read_record(path)
