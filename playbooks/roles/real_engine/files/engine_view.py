"""Ask the running servers: health, JSON over HTTP, and what the kernel counts for them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from engine_settings import Fault
from supervised import Record, group_members, is_recorded_program_running

HTTP_TIMEOUT_S = 30.0
POLL_S = 0.2
LOG_TAIL_CHARACTERS = 300
# A proxy of the environment must never see traffic to the loopback.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def http_status(url: str, *, timeout_s: float = 5.0) -> int | None:
    """HTTP status of a GET; None when nobody answers."""
    try:
        with _DIRECT.open(url, timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return None


def http_json(method: str, url: str, body: object | None = None) -> dict[str, object]:
    """The JSON object that ``url`` answers with; Fault for any other answer or none."""
    data = b"" if method == "POST" else None
    if body is not None:
        data = json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the URL is our own, on the loopback
        url, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    try:
        with _DIRECT.open(request, timeout=HTTP_TIMEOUT_S) as answer:
            content = json.loads(answer.read() or b"{}")
    except (OSError, ValueError) as error:
        raise Fault(
            f"{method} failed: {error}", where=url, remedy="read the end of the server's log"
        ) from error
    if not isinstance(content, dict):
        raise Fault("the answer is no JSON object", where=url, remedy="check the server's version")
    return content


@dataclass(frozen=True, slots=True)
class StoreState:
    """What LMCache's ``/status`` says of its two tiers. ``pending_stores`` are chunks that wait to
    be written to the folder, ``running_stores`` writes under way, ``running_loads`` restores."""

    pending_stores: int
    running_stores: int
    running_loads: int
    dram_objects: int
    dram_bytes: int

    @property
    def is_busy(self) -> bool:
        return bool(self.pending_stores or self.running_stores or self.running_loads)


def store_state(store_url: str) -> StoreState:
    """Ask LMCache; Fault when it does not answer or its status lacks a field we judge by."""
    url = f"{store_url}/status"
    status = http_json("GET", url)
    try:
        manager = status["storage_manager"]
        writing, reading = manager["store_controller"], manager["prefetch_controller"]  # type: ignore[index]
        dram = manager["l1_manager"]  # type: ignore[index]
        return StoreState(
            pending_stores=int(writing["pending_keys_count"]),
            running_stores=int(writing["in_flight_task_count"]),
            running_loads=int(reading["in_flight_request_count"]),
            dram_objects=int(dram["total_object_count"]),
            dram_bytes=int(dram["memory_used_bytes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(
            f"LMCache's status lacks {error}", where=url, remedy="check LMCache's version"
        ) from error


def wait_for_health(
    url: str, *, deadline_s: float, is_running: Callable[[], bool], name: str, log: Path
) -> None:
    """Return when ``url`` answers 200; Fault when the server dies or ``deadline_s`` is over."""
    deadline = time.monotonic() + deadline_s
    while http_status(url, timeout_s=2.0) != 200:
        if not is_running():
            raise Fault(
                f"{name} ended while starting: {last_words(log)}",
                where=str(log),
                remedy="read the log",
            )
        if time.monotonic() >= deadline:
            raise Fault(
                f"{name} is not healthy after {deadline_s:.0f} s",
                where=str(log),
                remedy="read the log, or give more time by kvgate_real_engine_deadline_s",
            )
        time.sleep(POLL_S)


def last_words(log: Path) -> str:
    """The last line of a log that says something, cut to a readable length."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "no log"
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if "Error" in line]
    chosen = errors[-1:] or said[-1:] or ["no output"]
    return chosen[0][-LOG_TAIL_CHARACTERS:]


def io_counters(pid: int) -> dict[str, int] | None:
    """``/proc/<pid>/io``: ``read_bytes`` are bytes that this process made the device deliver,
    ``rchar`` what it read in whatever way. None when it may not be read or has ended."""
    try:
        text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return None
    pairs = (line.partition(": ") for line in text.splitlines())
    return {name: int(value) for name, _, value in pairs}


def state_or_none(store_url: str) -> dict[str, int] | None:
    """:class:`StoreState` as JSON; None when the store does not answer: it may have died."""
    try:
        return asdict(store_state(store_url))
    except Fault:
        return None


def describe(record: Record) -> dict[str, object]:
    """A recorded server as JSON: identity, whether it runs, its group and I/O counters."""
    running = is_recorded_program_running(record)
    members = group_members(record.program.pid) if running else []
    return {
        "pid": record.program.pid,
        "started_ticks": record.program.started_ticks,
        "supervisor_pid": record.supervisor.pid,
        "running": running,
        "group_pids": sorted(members),
        "io": io_counters(record.program.pid) if running else None,
        "command": list(record.command),
        "log": record.log,
    }
