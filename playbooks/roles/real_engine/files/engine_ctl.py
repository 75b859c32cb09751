"""Bring the real engine into an arm, make it cold, describe it, stop it. One JSON object on stdout.

    python engine_ctl.py start --arm appliance --run-dir DIR --home DIR --engine-port N ...
    python engine_ctl.py stop|cold|info --run-dir DIR

Arms: ``recompute`` is vLLM without a connector; ``appliance`` is the same vLLM with the LMCache
connector, and an LMCache server whose second tier is a folder. Everything listens on 127.0.0.1 and
needs no root. Exit 0; 2 asked wrongly; 11 cannot measure: one line on stderr with place and remedy,
and ``{"ok": false, "error": ...}`` on stdout. Only the standard library is
used: it also runs on a host where kvgate is not installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from engine_settings import Fault, Settings, arguments_of, check_arguments
from engine_view import (
    StoreState,
    describe,
    http_json,
    http_status,
    state_or_none,
    store_state,
    wait_for_health,
)
from page_cache import PAGE_BYTES, Drop, drop
from supervised import (
    Record,
    end_recorded,
    is_recorded_program_running,
    read_record,
    start_supervised,
)

ENGINE, STORE = "vllm", "lmcache"
SETTINGS_FILE = "real-engine.json"
STORE_MARK = ".kvgate-store"
# Engines whose KV memory LMCache can reach, as its /status lists them: without and with a GPU.
REGISTERED = ("registered_non_cuda_instance_ids", "registered_gpu_ids")
EXIT_USAGE, EXIT_CANNOT_MEASURE = 2, 11


def record_path(run_dir: Path, name: str) -> Path:
    return run_dir / f"{name}.process.json"


def recorded(run_dir: Path, name: str) -> Record | None:
    try:
        return read_record(record_path(run_dir, name))
    except ValueError as error:
        raise Fault(
            str(error), remedy=f"see with ps whether {name} still runs, end it, delete the file"
        ) from error


def stop(run_dir: Path) -> dict[str, object]:
    """End what is recorded in ``run_dir``: the engine first, since it waits for a lost store."""
    ended: dict[str, object] = {}
    for name in (ENGINE, STORE):
        record = recorded(run_dir, name)
        if record is None:
            continue
        outcome = end_recorded(record)
        ended[name] = {"pid": record.program.pid, "outcome": outcome}
        if outcome == "stuck":
            raise Fault(
                f"{name} (pid {record.program.pid}) does not end, not even by SIGKILL",
                where=record.log,
                remedy="look at its state in /proc: a process in state D waits for a device",
            )
        record_path(run_dir, name).unlink(missing_ok=True)
    if STORE in ended and (run_dir / SETTINGS_FILE).is_file():
        load(run_dir).shm_file.unlink(missing_ok=True)
    return {"action": "stop", "stopped": ended}


def purge(settings: Settings) -> int:
    """Delete the store's files; returns how many bytes. Only a folder that bears our mark."""
    folder = settings.store_dir
    if not (folder / STORE_MARK).is_file():
        return 0
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder)
    return size


def start(settings: Settings, controller_pid: int) -> dict[str, object]:
    """Bring the engine into ``settings.arm``: stop ours, start the store, then the engine."""
    run_dir = settings.run_dir
    check_arguments(settings)
    run_dir.mkdir(parents=True, exist_ok=True)
    stopped = stop(run_dir)["stopped"]
    settings.check_ports()
    for folder in (run_dir / "home", run_dir / "logs"):
        folder.mkdir(exist_ok=True)
    # Before the servers: an interrupted start must be found by stop.
    _write(run_dir / SETTINGS_FILE, settings.as_json())
    seconds: dict[str, float] = {}
    try:
        if settings.has_store:
            # First the store: an engine that finds none registers with nobody and recomputes
            # silently. It starts with an empty DRAM tier; the folder keeps what it holds.
            settings.store_dir.mkdir(parents=True, exist_ok=True)
            (settings.store_dir / STORE_MARK).touch()
            command = settings.store_command()
            seconds[STORE] = _bring_up(
                settings, STORE, command, f"{settings.store_url}/healthcheck", controller_pid
            )
        command = settings.engine_command()
        seconds[ENGINE] = _bring_up(
            settings, ENGINE, command, f"{settings.engine_url}/health", controller_pid
        )
        if settings.has_store:
            _check_connected(settings)
    except BaseException:
        stop(run_dir)
        raise
    return {
        "stopped_before": stopped,
        "start_s": {name: round(value, 3) for name, value in seconds.items()},
        **info(run_dir),
        "action": "start",
    }


def _bring_up(
    settings: Settings, name: str, command: list[str], health_url: str, controller_pid: int
) -> float:
    """Start one server and wait until it is healthy. Returns the seconds it took."""
    began = time.monotonic()
    log = settings.run_dir / "logs" / f"{name}-{time.time_ns()}.log"
    try:
        record = start_supervised(
            name=name,
            command=command,
            environment=settings.environment(),
            record=record_path(settings.run_dir, name),
            log=log,
            controller_pid=controller_pid,
        )
    except ValueError as error:
        raise Fault(str(error), remedy="give the pid of the process that runs the gate") from error
    except (OSError, TimeoutError) as error:
        raise Fault(str(error), where=str(log), remedy="run make real-engine again") from error
    wait_for_health(
        health_url,
        deadline_s=settings.deadline_s,
        is_running=lambda: is_recorded_program_running(record),
        name=name,
        log=log,
    )
    return time.monotonic() - began


def _check_connected(settings: Settings) -> None:
    """An engine may serve without its connector and say so in one log line only; the store knows
    how many engines have registered their KV memory with it."""
    status = http_json("GET", f"{settings.store_url}/status")
    if not any(status.get(key) for key in REGISTERED):
        raise Fault(
            "vLLM is healthy but has not registered with LMCache: it would recompute silently",
            where=str(settings.run_dir / "logs"),
            remedy="read the engine's log for 'degraded' or 'not registered'",
        )


def load(run_dir: Path) -> Settings:
    path = run_dir / SETTINGS_FILE
    try:
        return Settings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise Fault(
            "no engine was started here", where=str(run_dir), remedy="run the start tasks first"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise Fault("damaged settings", where=str(path), remedy="start the engine anew") from error


def _must_run(settings: Settings) -> None:
    for name in settings.servers:
        record = recorded(settings.run_dir, name)
        if record is None or not is_recorded_program_running(record):
            raise Fault(
                f"{name} has died or was stopped",
                where=record.log if record else str(settings.run_dir),
                remedy="read the end of its log; start the arm again",
            )


def cold(run_dir: Path) -> dict[str, object]:
    """Empty the engine's prefix cache, the store's DRAM and the page cache of the store's files,
    each with its proof. Raises Fault when one of them does not become empty."""
    settings = load(run_dir)
    _must_run(settings)
    began = time.monotonic()
    idle_after_s = _wait_until_stored(settings) if settings.has_store else None
    # The engine refuses while a block is held, for instance by a store that is still running.
    deadline = time.monotonic() + settings.cold_deadline_s
    while http_json("POST", f"{settings.engine_url}/reset_prefix_cache").get("success") is not True:
        if time.monotonic() >= deadline:
            raise Fault(
                "the engine's prefix cache was not reset: blocks are still held",
                where=settings.engine_url,
                remedy="wait until all requests have ended and the store is idle",
            )
        time.sleep(0.2)
    store: dict[str, object] | None = None
    if settings.has_store:
        http_json("POST", f"{settings.store_url}/cache/clear", {"tier": "l1"})
        state = store_state(settings.store_url)
        if state.dram_objects or state.dram_bytes:
            raise Fault(
                f"LMCache still holds {state.dram_objects} objects in DRAM after its clearing",
                where=settings.store_url,
                remedy="wait until no request is running; objects in use are not cleared",
            )
        dropped = drop(settings.store_dir, deadline_s=settings.cold_deadline_s)
        if not dropped.is_cold:
            raise Fault(
                f"{dropped.after.resident_pages} of {dropped.after.pages} pages of the store "
                "stay in the page cache",
                where=str(settings.store_dir),
                remedy="end whatever else reads the store, and wait until LMCache has written it",
            )
        store = store_report(dropped, state)
    return {
        "action": "cold",
        "arm": settings.arm,
        "engine_reset": True,
        "store_idle_after_s": idle_after_s,
        "store": store,
        "took_s": round(time.monotonic() - began, 3),
    }


def _wait_until_stored(settings: Settings) -> float:
    """Return after how many seconds LMCache had written all it was given; Fault at the deadline."""
    began = time.monotonic()
    while (state := store_state(settings.store_url)).is_busy:
        if time.monotonic() - began >= settings.cold_deadline_s:
            raise Fault(
                f"LMCache has not finished writing: {state.pending_stores} chunks wait, "
                f"{state.running_stores} tasks run",
                where=settings.store_url,
                remedy="see whether the disk is full or slow",
            )
        time.sleep(0.1)
    return round(time.monotonic() - began, 3)


def store_report(dropped: Drop, state: StoreState) -> dict[str, object]:
    return {
        "dram_objects_after": state.dram_objects,
        "dram_bytes_after": state.dram_bytes,
        "files": dropped.after.files,
        "bytes": dropped.after.bytes,
        "page_bytes": PAGE_BYTES,
        "pages": dropped.after.pages,
        "resident_pages_before": dropped.before.resident_pages,
        "resident_pages_after": dropped.after.resident_pages,
    }


def info(run_dir: Path) -> dict[str, object]:
    settings = load(run_dir)
    servers: dict[str, object] = {}
    for name in settings.servers:
        record = recorded(run_dir, name)
        servers[name] = None if record is None else describe(record)
    stored = recorded(run_dir, STORE) if settings.has_store else None
    return {
        "action": "info",
        "simulated": False,
        "arm": settings.arm,
        "servers": servers,
        "engine_url": settings.engine_url,
        "engine_metrics_url": f"{settings.engine_url}/metrics",
        "store_url": settings.store_url if settings.has_store else None,
        "store_metrics_url": f"{settings.store_url}/metrics" if settings.has_store else None,
        # Whose reads count as reads of the tier.
        "store_pids": [] if stored is None else [stored.program.pid],
        "store_dir": str(settings.store_dir) if settings.has_store else None,
        "engine_health": http_status(f"{settings.engine_url}/health"),
        "store": state_or_none(settings.store_url) if settings.has_store else None,
        **settings.identity(),
    }


def _write(path: Path, content: object) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(description="Start, stop, cool or describe the real engine.")
    actions = root.add_subparsers(dest="action", required=True)
    for action in ("start", "stop", "cold", "info"):
        one = actions.add_parser(action)
        one.add_argument("--run-dir", type=Path, required=True)
        if action == "stop":
            one.add_argument("--purge", action="store_true", help="delete the store's files too")
        if action == "start":
            arguments_of(one)
    return root


def act(given: argparse.Namespace) -> dict[str, object]:
    run_dir: Path = given.run_dir.resolve()
    if given.action == "start":
        return start(Settings.from_arguments(given, run_dir), given.controller_pid)
    if given.action == "stop":
        report = stop(run_dir)
        if given.purge and (run_dir / SETTINGS_FILE).is_file():
            report["purged_bytes"] = purge(load(run_dir))
        return report
    return cold(run_dir) if given.action == "cold" else info(run_dir)


def main(argv: list[str]) -> int:
    try:
        report = act(parser().parse_args(argv))
    except Fault as fault:
        print(json.dumps({"ok": False, "error": str(fault)}, sort_keys=True))
        print(f"engine_ctl: {fault}", file=sys.stderr)
        return EXIT_USAGE if fault.is_usage else EXIT_CANNOT_MEASURE
    print(json.dumps({"ok": True, **report}, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
