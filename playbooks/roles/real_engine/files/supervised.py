"""Start a program that ends with its controller, and end only what was recorded.

A server of the engine outlives the play that started it, so it cannot be a child of Ansible. It is
the child of a supervisor (this file as a program), which leads a session of its own, writes the
child's identity to a record, and ends the child's process group when the controller is gone.
``PR_SET_PDEATHSIG`` would not do: the play that starts the server ends long before the controller.

An identity is a pid with its start time in clock ticks and the boot it belongs to: a pid alone may
have been given to somebody else's process. Linux only (``/proc``).

    python supervised.py --record FILE --log FILE --controller PID:TICKS -- PROGRAM ARGUMENT...
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

POLL_S = 0.1
TERM_GRACE_S = 10.0
KILL_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """One process that cannot be mistaken for another: pid, start in clock ticks since boot."""

    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the supervisor wrote about the program it started."""

    name: str
    program: Identity
    supervisor: Identity
    boot_id: str
    command: tuple[str, ...]
    log: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/<pid>/stat`` from the third (state) on, or None: no such process.

    The second field, the name in brackets, may itself hold spaces and brackets: cut after the last.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def started_ticks(pid: int) -> int | None:
    """Start of a living process in clock ticks since boot; None: gone, or a zombie."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def identify(pid: int) -> Identity | None:
    ticks = started_ticks(pid)
    return None if ticks is None else Identity(pid, ticks)


def is_running(identity: Identity) -> bool:
    return started_ticks(identity.pid) == identity.started_ticks


def group_members(group: int) -> list[int]:
    """Living processes of one process group (zombies do not count: they hold nothing)."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat_fields(int(entry.name))
            if fields is not None and fields[0] not in "ZX" and int(fields[2]) == group:
                members.append(int(entry.name))
    return members


def end_group(leader: Identity, *, term_s: float, kill_s: float = KILL_GRACE_S) -> str:
    """End a process group that ``leader`` founded. Returns ``gone``, ``terminated``, ``killed`` or
    ``stuck`` (a process that even SIGKILL does not end, for instance one waiting on a dead disk).

    The kernel gives no pid away while a group bears its number; so when a process with the leader's
    pid but another start time lives, our whole group has ended and nothing is signalled.
    """
    ticks = started_ticks(leader.pid)
    if ticks is not None and ticks != leader.started_ticks:
        return "gone"
    if not group_members(leader.pid):
        return "gone"
    for number, limit_s, outcome in (
        (signal.SIGTERM, term_s, "terminated"),
        (signal.SIGKILL, kill_s, "killed"),
    ):
        try:
            os.killpg(leader.pid, number)
        except ProcessLookupError:
            return outcome
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not group_members(leader.pid):
                return outcome
            time.sleep(POLL_S)
    return "stuck"


def write_record(path: Path, record: Record) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read_record(path: Path) -> Record | None:
    """The record at ``path``; None where there is none. Raises ValueError when it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Record(
            name=str(content["name"]),
            program=Identity(**content["program"]),
            supervisor=Identity(**content["supervisor"]),
            boot_id=str(content["boot_id"]),
            command=tuple(content["command"]),
            log=str(content["log"]),
        )
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged process record") from error


def is_recorded_program_running(record: Record) -> bool:
    return record.boot_id == boot_id() and is_running(record.program)


def end_recorded(record: Record, *, term_s: float = TERM_GRACE_S) -> str:
    """End a recorded program with its group, then its supervisor; outcome as :func:`end_group`."""
    if record.boot_id != boot_id():
        return "gone"
    outcome = end_group(record.program, term_s=term_s)
    deadline = time.monotonic() + KILL_GRACE_S
    while is_running(record.supervisor) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    end_group(record.supervisor, term_s=1.0)
    return outcome


def start_supervised(
    *,
    name: str,
    command: list[str],
    environment: dict[str, str],
    record: Path,
    log: Path,
    controller_pid: int,
    deadline_s: float = 10.0,
) -> Record:
    """Start ``command`` under a supervisor and return its record.

    ``controller_pid`` 0: it ends with nobody. Raises ValueError when the controller is not running,
    OSError when the program cannot be started, TimeoutError when no record appears.
    """
    watched = "0:0"
    if controller_pid:
        controller = identify(controller_pid)
        if controller is None:
            raise ValueError(f"controller process {controller_pid} is not running")
        watched = f"{controller.pid}:{controller.started_ticks}"
    record.unlink(missing_ok=True)
    supervisor = subprocess.Popen(
        [
            *(sys.executable, str(Path(__file__).resolve()), "--name", name),
            *("--record", str(record), "--log", str(log), "--controller", watched),
            *("--", *command),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        written = read_record(record)
        if written is not None:
            return written
        if supervisor.poll() is not None:
            raise OSError(f"cannot start {command[0]}: see {log}")
        time.sleep(0.02)
    supervisor.terminate()
    raise TimeoutError(f"no record of {name} after {deadline_s:.0f} s")


def supervise(
    name: str, command: list[str], record: Path, log: Path, controller: Identity | None
) -> int:
    """Run ``command`` in a group of its own until it ends, we are told to stop, or nobody is left
    who wants it. Returns the program's exit status."""
    stop_asked = False

    def ask_stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stop_asked
        stop_asked = True

    signal.signal(signal.SIGTERM, ask_stop)
    signal.signal(signal.SIGINT, ask_stop)
    with log.open("ab") as output:
        try:
            program = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
    leader = identify(program.pid)
    own = identify(os.getpid())
    if leader is None or own is None:
        return program.wait()
    write_record(record, Record(name, leader, own, boot_id(), tuple(command), str(log)))
    while program.poll() is None:
        deserted = controller is not None and not is_running(controller)
        if stop_asked or deserted:
            end_group(leader, term_s=TERM_GRACE_S)
            break
        time.sleep(POLL_S)
    # A server's own children may have outlived it.
    end_group(leader, term_s=1.0)
    return program.wait()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run a program that ends with its controller.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--controller", required=True, help="PID:TICKS, or 0:0 for nobody")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(argv)
    pid, _, ticks = given.controller.partition(":")
    controller = Identity(int(pid), int(ticks)) if int(pid) else None
    return supervise(given.name, given.command, given.record, given.log, controller)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
