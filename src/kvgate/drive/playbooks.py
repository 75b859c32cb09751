"""Runs one playbook and believes it only when every expected host reported.

ansible-runner calls a play with an unmatched host pattern, a play without statistics and a play
with ignored unreachable hosts "successful"; none of them is one here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner

from kvgate.drive.descendants import Process, below, end, only
from kvgate.errors import CannotMeasure, Interrupted, UsageError

PLAY_TIMEOUT_S = 1800
CANCEL_POLL_S = 1
DYING_POLLS, DYING_POLL_S = 10, 0.005
LISTING_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One finished task on one host; ``result`` keeps only what our roles publish."""

    host: str
    task: str
    status: str
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class PlayResult:
    """What a play did: a short event log for the evidence and the facts our roles published."""

    playbook: str
    hosts: tuple[str, ...]
    events: tuple[TaskEvent, ...]
    published: Mapping[str, Mapping[str, Any]]


class Playbooks:
    """Runs the playbooks of a checkout against one inventory."""

    def __init__(self, playbooks: Path, inventory: Path) -> None:
        self._playbooks = playbooks
        self._inventory = inventory
        self._stop = False
        # SSH's sockets are as good as the keys: nobody else may reach them, and they go with us.
        self._sockets = tempfile.mkdtemp(prefix="kvgate-ssh-")
        weakref.finalize(self, shutil.rmtree, self._sockets, ignore_errors=True)

    def stop(self) -> None:
        """Cancel the play that runs, and every later one until :meth:`allow`."""
        self._stop = True

    def allow(self) -> None:
        """Let plays run again: what was started must still be stopped."""
        self._stop = False

    def run(
        self,
        name: str,
        variables: Mapping[str, Any],
        *,
        hosts: Sequence[str],
        timeout_s: float = PLAY_TIMEOUT_S,
    ) -> PlayResult:
        """Run ``playbooks/<name>.yml``; every host of ``hosts`` must report, and none may fail.

        Raises CannotMeasure naming host, task and message; Interrupted when cancelled.
        """
        if self._stop:
            raise Interrupted(f"the play {name} was stopped before it began")
        collector = _Collector()
        left_over: list[Process] = []
        killed_by: list[int] = []

        def cancelled() -> bool:
            # ansible-runner reaps the play itself and keeps no signal: it is looked at before.
            killed_by.extend(signal_that_ended(collector.pid))
            # What the play runs must be known before ansible-runner ends their parent.
            if self._stop and not left_over and collector.pid is not None:
                left_over.extend(below(collector.pid))
            return self._stop

        try:
            with _private_dir() as private:
                runner = ansible_runner.run(
                    private_data_dir=str(private),
                    playbook=str(self._playbooks / f"{name}.yml"),
                    inventory=str(self._inventory),
                    extravars=dict(variables),
                    envvars=_environment(self._playbooks)
                    | {"ANSIBLE_SSH_CONTROL_PATH_DIR": self._sockets},
                    event_handler=collector.handle,
                    cancel_callback=cancelled,
                    quiet=True,
                    settings={
                        "suppress_ansible_output": True,
                        "idle_timeout": int(timeout_s),
                        "pexpect_timeout": CANCEL_POLL_S,
                    },
                    timeout=int(timeout_s),
                )
                stdout_tail = _tail(runner)
        except BaseException as error:
            # A signal that unwinds us must not leave the play running behind our back.
            if collector.pid is not None:
                end((*below(collector.pid), *only(collector.pid)))
            # ansible-runner wraps what is raised while it asks us whether to cancel.
            if isinstance(error.__cause__, Interrupted):
                raise error.__cause__ from None
            raise
        end(tuple(left_over))
        if self._stop or runner.status == "canceled":
            raise Interrupted(f"the play {name} was stopped")
        where = f"playbooks/{name}.yml"
        if runner.status == "timeout":
            raise CannotMeasure(
                f"the play did not end within {timeout_s:g} s",
                where=where,
                remedy="check that the hosts answer and that no task waits for input",
            )
        if runner.rc is None:
            raise killed(killed_by, where=where)
        collector.raise_for_faults(where)
        check_stats(collector.stats, expected=hosts, where=where, hint=stdout_tail)
        if runner.status != "successful":
            raise CannotMeasure(
                f"the play ended as {runner.status}: {stdout_tail}",
                where=where,
                remedy="run ansible-playbook by hand to see why",
            )
        return PlayResult(name, tuple(hosts), tuple(collector.events), collector.published)


def killed(by: Sequence[int], *, where: str) -> CannotMeasure:
    """The fault that a play was ended by a signal from outside; ``by`` holds its number if known.

    ansible-runner has no exit code then, and what the play printed last has nothing to do with it.
    """
    word = f"{signal.Signals(by[0]).name} (signal {by[0]})" if by else "a signal"
    return CannotMeasure(
        f"ansible-playbook was killed by {word} before the play ended",
        where=where,
        remedy="look for an out-of-memory kill in the kernel's log, or ask who ended it; run again",
    )


def signal_that_ended(pid: int | None) -> tuple[int, ...]:
    """The number of the signal that ended our child ``pid``, which stays to be reaped; empty where
    it lives, ended by itself, or is no child of ours."""
    with contextlib.suppress(ChildProcessError):
        # Its terminal closes a moment before it can be waited for, and only now are we asked.
        for _ in range(DYING_POLLS if pid is not None else 0):
            ended = os.waitid(os.P_PID, pid or 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                return (ended.si_status,) if by_signal else ()
            time.sleep(DYING_POLL_S)
    return ()


def check_stats(
    stats: Mapping[str, Any] | None, *, expected: Sequence[str], where: str, hint: str = ""
) -> None:
    """The play's final statistics against the hosts that had to report.

    Raises CannotMeasure when statistics are missing or a host is absent, failed or unreachable.
    """
    if not expected:
        raise CannotMeasure("no host to run on", where=where, remedy="check the inventory's groups")
    if stats is None:
        raise CannotMeasure(
            f"the play ended without statistics{': ' + hint if hint else ''}",
            where=where,
            remedy="run ansible-playbook by hand to see why",
        )
    for kind, word in (("dark", "unreachable"), ("failures", "failed")):
        bad = sorted(host for host, count in (stats.get(kind) or {}).items() if count)
        if bad:
            raise CannotMeasure(f"{word}: {', '.join(bad)}", where=where, remedy=_REMEDY[word])
    ignored = sorted(host for host, count in (stats.get("ignored") or {}).items() if count)
    if ignored:
        raise CannotMeasure(
            f"errors were ignored on {', '.join(ignored)}",
            where=where,
            remedy="remove ignore_errors from the playbook",
        )
    reported = {
        host
        for kind in ("ok", "changed")
        for host, count in (stats.get(kind) or {}).items()
        if count
    }
    missing = sorted(set(expected) - reported)
    if missing:
        reached = f"{len(expected) - len(missing)} of {len(expected)} hosts"
        raise CannotMeasure(
            f"no report from {', '.join(missing)}: the play reached {reached}",
            where=where,
            remedy="check host patterns and --limit; every host of the inventory must report",
        )


_REMEDY = {
    "unreachable": "check the network and the SSH keys of the host",
    "failed": "see the message of the failed task in ansible/ of the evidence",
}


class _Collector:
    """Keeps what matters of the event stream; it only appends, so it never slows a play."""

    def __init__(self) -> None:
        self.events: list[TaskEvent] = []
        self.published: dict[str, dict[str, Any]] = {}
        self.stats: Mapping[str, Any] | None = None
        self.pid: int | None = None
        self._faults: list[tuple[str, str, str, str]] = []

    def handle(self, event: Mapping[str, Any]) -> bool:
        kind = str(event.get("event", ""))
        # Every event of Ansible's own names the process that runs the playbook.
        if self.pid is None and isinstance(event.get("pid"), int):
            self.pid = event["pid"]
        data: Mapping[str, Any] = event.get("event_data") or {}
        host, task = str(data.get("host", "")), str(data.get("task", ""))
        if kind == "playbook_on_stats":
            self.stats = data
        elif kind.startswith("runner_on_") and kind != "runner_on_start":
            status = kind.removeprefix("runner_on_")
            self.events.append(TaskEvent(host, task, status, data.get("duration")))
            result: Mapping[str, Any] = data.get("res") or {}
            if status == "ok":
                for key, value in (result.get("ansible_facts") or {}).items():
                    if key.startswith("kvgate_"):
                        self.published.setdefault(host, {})[key] = value
            elif status in {"failed", "unreachable"} and not data.get("ignore_errors"):
                self._faults.append((status, host, task, _message(result)))
        # A handler that returns None makes ansible-runner drop the play's statistics.
        return True

    def raise_for_faults(self, where: str) -> None:
        if not self._faults:
            return
        status, host, task, message = self._faults[0]
        if status == "unreachable":
            raise CannotMeasure(
                f"host {host} is unreachable: {message}", where=where, remedy=_REMEDY[status]
            )
        remedy = "" if " -- " in message else "correct the cause on that host and run again"
        raise CannotMeasure(f"host {host}, {task}: {message}", where=where, remedy=remedy)


def _message(result: Mapping[str, Any]) -> str:
    """The most telling line of a failed task, without the noise of a shell."""
    # A loop says only that it is over; its items say why.
    items = result.get("results")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            return _message({k: v for k, v in item.items() if k != "results"})
    for key in ("stderr", "msg", "module_stderr", "stdout", "reason"):
        value = result.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip().splitlines()[-1][:500]
    return "failed without a message"


def _tail(runner: Any) -> str:
    try:
        with runner.stdout as stream:
            lines = [line.strip() for line in stream.read().splitlines() if line.strip()]
    except (OSError, AttributeError, ValueError):
        return ""
    errors = [line for line in lines if "ERROR" in line or "error" in line.lower()]
    return str((errors or lines or [""])[-1])[:300]


def _environment(playbooks: Path) -> dict[str, str]:
    """Ansible's settings, said once; SSH notices a silently cut link within 15 s."""
    return {
        "ANSIBLE_ROLES_PATH": str(playbooks / "roles"),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
        "ANSIBLE_SSH_ARGS": (
            "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=3 "
            "-o ServerAliveCountMax=2 -o ConnectTimeout=10"
        ),
        # A locale that the machine does not have stops Ansible before it reads anything.
        "LC_ALL": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }


@contextmanager
def _private_dir() -> Iterator[Path]:
    """ansible-runner's scratch folder; raw artifacts may hold secrets, so they never stay."""
    path = Path(tempfile.mkdtemp(prefix="kvgate-play-"))
    # ansible-runner installs no handler of its own, but its pexpect child must not outlive us.
    previous = signal.getsignal(signal.SIGINT)
    try:
        yield path
    finally:
        signal.signal(signal.SIGINT, previous)
        shutil.rmtree(path, ignore_errors=True)


def list_inventory(path: Path) -> Mapping[str, Any]:
    """What ``ansible-inventory --list`` says of ``path``; raises UsageError with its message."""
    if not path.exists():
        raise UsageError(
            "the inventory does not exist",
            where=str(path),
            remedy="name one with --inventory DIR; the shipped ones are in inventories/",
        )
    command = [
        str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(path), "--list",
    ]  # fmt: skip
    env = os.environ | _environment(path)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LISTING_TIMEOUT_S,
            check=False,
            env=env,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"ansible-inventory gave no answer in {LISTING_TIMEOUT_S} s",
            where=str(path),
            remedy="look for a pipe, a password prompt or a slow script among its sources",
        ) from error
    except OSError as error:
        raise CannotMeasure(
            f"ansible-inventory cannot be started: {error.strerror}",
            where=command[0],
            remedy="install the distribution's requirements into this environment",
        ) from error
    if done.returncode != 0:
        place, message = why_unreadable(done.stderr)
        raise UsageError(
            f"Ansible cannot read it: {message}",
            where=place or str(path),
            remedy="correct that file",
        )
    try:
        listing = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"ansible-inventory printed no JSON: {str(error)[:100]}",
            where=str(path),
            remedy="run it by hand with --list to see what it says",
        ) from error
    if not isinstance(listing, Mapping):
        raise UsageError(
            "Ansible lists no groups", where=str(path), remedy="inventories/rehearsal shows how"
        )
    return listing


_ORIGIN = re.compile(r"^Origin: (/\S+:\d+:\d+)\s*$", re.MULTILINE)
_PARSING = re.compile(r"^(YAML parsing failed: .+)$", re.MULTILINE)


def why_unreadable(stderr: str) -> tuple[str, str]:
    """(file:line:column or "", message) of what ansible-inventory printed."""
    origin, parsing = _ORIGIN.search(stderr), _PARSING.search(stderr)
    if parsing is not None:
        return (origin.group(1) if origin else ""), parsing.group(1).strip()[:400]
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    error = next((line for line in lines if "ERROR" in line), lines[0] if lines else "no message")
    return (origin.group(1) if origin else ""), error.removeprefix("[ERROR]: ")[:400]
