"""Starts and stops the rehearsal's processes by recorded pid; prints one JSON line.

``start``: the arm's store if its recorded process is not alive (it survives engine restarts), then
the engine in place of a recorded one. ``stop``: the engine, with ``--stores`` the stores too.
``cold``: reset the engine's prefix cache. ``fault``: restart the store under load. ``info``:
version, models and the store's device.

A run directory keeps one ``<name>.json`` (pid and start time in clock ticks) and ``<name>.log`` for
each of ``engine``, ``store-appliance`` and ``store-baseline``. A process is only ever signalled
while its start time still is the recorded one, so that a reused pid is never hit.

Exit codes: 0 done, 1 could not be done, 2 asked wrongly. A failure prints ``{"ok": false,
"error": "one line"}``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kvgate.errors import CannotMeasure, KvgateError, UsageError
from kvgate.reason import Reason
from kvgate.rehearsal.faults import ARMS
from kvgate.rehearsal.process import start_ticks

HOST: Final = "127.0.0.1"
_KILL_AFTER_S: Final = 3.0
_LOG_TAIL_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is written down about a process when it is started."""

    pid: int
    start_ticks: int
    port: int
    argv: list[str]

    def alive(self) -> bool:
        """The very process that was recorded still runs."""
        return start_ticks(self.pid) == self.start_ticks


class RunDirectory:
    """Pid records and logs of one run directory."""

    def __init__(self, path: Path) -> None:
        if not path.is_absolute():
            raise UsageError("not an absolute path", where=str(path), remedy="give a full path")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotMeasure(
                f"cannot make the run directory: {error.strerror}", where=str(path)
            ) from error
        self._path = path

    def log(self, name: str) -> Path:
        """Where ``name`` writes its output."""
        return self._path / f"{name}.log"

    def kept(self, name: str) -> Path:
        """Where the store ``name`` keeps what it holds over a restart."""
        return self._path / f"{name}.kept"

    def recorded(self, name: str) -> Recorded | None:
        """The record of ``name``; None when there is none or it cannot be read."""
        try:
            return Recorded(**json.loads((self._path / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def record(self, name: str, process: Recorded) -> None:
        """Write the record of ``name``, in one step."""
        text = json.dumps(
            {
                "pid": process.pid,
                "start_ticks": process.start_ticks,
                "port": process.port,
                "argv": process.argv,
            }
        )
        draft = self._path / f"{name}.json.new"
        draft.write_text(text)
        draft.replace(self._path / f"{name}.json")

    def forget(self, name: str) -> None:
        """Remove the record of ``name``."""
        (self._path / f"{name}.json").unlink(missing_ok=True)

    def tail(self, name: str) -> str:
        """The last lines of the log of ``name`` as one line."""
        try:
            lines = self.log(name).read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " | ".join(lines[-_LOG_TAIL_LINES:])

    def stop(self, name: str) -> bool:
        """End ``name`` by TERM, then KILL; True when something was ended. Idempotent.

        Raises ``CannotMeasure`` when the process survives both.
        """
        process = self.recorded(name)
        if process is None or not process.alive():
            self.forget(name)
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                break
            deadline_s = time.monotonic() + _KILL_AFTER_S
            while process.alive() and time.monotonic() < deadline_s:
                time.sleep(0.01)
            if not process.alive():
                break
        if process.alive():
            raise CannotMeasure(f"{name} does not end", where=f"pid {process.pid}")
        self.forget(name)
        return True

    def start(self, name: str, port: int, argv: list[str]) -> Recorded:
        """Start ``argv`` detached, with its output in the log, and record it."""
        with self.log(name).open("wb") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        ticks = start_ticks(child.pid)
        process = Recorded(child.pid, ticks if ticks is not None else -1, port, argv)
        self.record(name, process)
        return process


def fetch(url: str, *, method: str = "GET", timeout_s: float = 5.0) -> tuple[str, str]:
    """Body and ``x-kvgate-pid`` of an answer; raises ``OSError`` or ``ValueError``."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 - loopback http only
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        return answer.read().decode(), answer.headers.get("x-kvgate-pid") or ""


def wait_healthy(run: RunDirectory, name: str, process: Recorded, timeout_s: float) -> None:
    """Wait until this very process answers /health.

    Raises ``CannotMeasure`` with the tail of its log when it ends or stays silent.
    """
    url = f"http://{HOST}:{process.port}/health"
    deadline_s = time.monotonic() + timeout_s
    while True:
        # The pid in the answer tells our server from another one on the same port.
        try:
            if fetch(url, timeout_s=0.3)[1] == str(process.pid):
                return
        except (OSError, ValueError):
            pass
        if not process.alive():
            run.forget(name)
            raise CannotMeasure(
                f"{name} ended while starting: {run.tail(name) or 'it printed nothing'}",
                where=str(run.log(name)),
            )
        if time.monotonic() > deadline_s:
            run.stop(name)
            raise CannotMeasure(
                f"{name} did not answer /health within {timeout_s:g} s: {run.tail(name)}",
                where=url,
            )
        time.sleep(0.02)


def _described(run: RunDirectory, name: str, process: Recorded, reused: bool) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "url": f"http://{HOST}:{process.port}",
        "log": str(run.log(name)),
        "reused": reused,
    }


def start(
    run: RunDirectory,
    arm: str,
    engine_port: int,
    engine_args: list[str],
    store_port: int,
    store_args: list[str],
    exit_with: int | None,
    timeout_s: float,
) -> dict[str, Any]:
    """Bring up one arm; raises ``CannotMeasure`` when a process does not come up."""
    began_s = time.monotonic()
    tail = ["--exit-with", str(exit_with)] if exit_with else []
    engine_argv = [
        *(sys.executable, "-m", "kvgate.rehearsal.engine"),
        *("--host", HOST, "--port", str(engine_port), "--arm", arm),
    ]
    run.stop("engine")
    store: Recorded | None = None
    store_name = f"store-{arm}"
    reused = False
    if store_port and arm != "recompute":
        argv = [
            *(sys.executable, "-m", "kvgate.rehearsal.store"),
            *("--host", HOST, "--port", str(store_port), "--name", arm, *store_args, *tail),
            *("--keep", str(run.kept(store_name))),
        ]
        store = run.recorded(store_name)
        # Other arguments mean another store: what it held says nothing about this one.
        reused = store is not None and store.alive() and store.argv == argv
        if store is None or not reused:
            run.stop(store_name)
            run.kept(store_name).unlink(missing_ok=True)
            store = run.start(store_name, store_port, argv)
        engine_argv += ["--store", f"http://{HOST}:{store_port}"]
    engine = run.start("engine", engine_port, [*engine_argv, *engine_args, *tail])
    try:
        if store is not None:
            wait_healthy(run, store_name, store, timeout_s)
        wait_healthy(run, "engine", engine, timeout_s)
    except CannotMeasure:
        run.stop("engine")
        raise
    result: dict[str, Any] = {"ok": True, "arm": arm, "simulated": True}
    result["engine"] = _described(run, "engine", engine, reused=False)
    if store is not None:
        result["store"] = _described(run, store_name, store, reused)
    result["wait_s"] = round(time.monotonic() - began_s, 3)
    # Asked here already, since each further task of a play costs half a second.
    result["info"] = info(engine_port, store_port if store is not None else 0)
    return result


def stop(run: RunDirectory, *, stores: bool) -> dict[str, Any]:
    """End the engine and, when asked, the stores."""
    names = ["engine"]
    if stores:
        names += [f"store-{arm}" for arm in ARMS]
    stopped = [name for name in names if run.stop(name)]
    for name in names:
        run.kept(name).unlink(missing_ok=True)
    return {"ok": True, "stopped": stopped}


def inject(run: RunDirectory, kind: str, store_name: str, engine_port: int) -> dict[str, Any]:
    """Play a fault of the soak and prove it: other process ids, or tokens that were dropped.

    ``store-restart`` ends the store of the arm and starts it again with what it was started with;
    it holds then what it held before. Until it answers, prompts are recomputed.
    """
    if kind == "engine-cache-reset":
        dropped = cold(engine_port)
        told = Reason("tokens_dropped", {"n": dropped.get("dropped_tokens", "?")})
        return {"ok": True, "kind": kind, "proved": True, **_said(told)}
    if kind != "store-restart":
        raise UsageError(f"no fault {kind!r}", remedy="store-restart or engine-cache-reset")
    name = f"store-{store_name}"
    old = run.recorded(name)
    if old is None or not old.alive():
        raise CannotMeasure(f"{name} does not run", remedy="start the arm first")
    run.stop(name)
    gone = not old.alive()
    new = run.start(name, old.port, old.argv)
    wait_healthy(run, name, new, 30.0)
    return {
        "ok": True,
        "kind": kind,
        "proved": gone and new.pid != old.pid,
        **_said(Reason("process_replaced", {"name": name, "old": old.pid, "new": new.pid})),
    }


def _said(cause: Reason) -> dict[str, Any]:
    """An event's proof as text, and as what each language says it from."""
    return {"detail": cause.text(), "cause": asdict(cause)}


def cold(engine_port: int) -> dict[str, Any]:
    """Drop the engine's own caches, the DRAM tier included; the store keeps what it holds."""
    url = f"http://{HOST}:{engine_port}/reset_prefix_cache?reset_external=true"
    body, _ = fetch(url, method="POST")
    return {"ok": True, **json.loads(body)}


def info(engine_port: int, store_port: int) -> dict[str, Any]:
    """What engine and store say about themselves; ``device`` is None without a store."""
    base = f"http://{HOST}:{engine_port}"
    device = None
    if store_port:
        device = json.loads(fetch(f"http://{HOST}:{store_port}/v1/device")[0])
    models = json.loads(fetch(f"{base}/v1/models")[0])["data"]
    return {
        "ok": True,
        "simulated": True,
        "version": json.loads(fetch(f"{base}/version")[0]),
        "models": models,
        "device": device,
    }


def _arguments(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list):
        raise UsageError("not a JSON list of arguments", where=text, remedy='write ["--x", "y"]')
    return [str(item) for item in value]


def _run(options: argparse.Namespace) -> dict[str, Any]:
    if options.command == "start":
        return start(
            RunDirectory(Path(options.run_dir)),
            options.arm,
            options.engine_port,
            _arguments(options.engine_args),
            options.store_port,
            _arguments(options.store_args),
            options.exit_with or None,
            options.timeout_s,
        )
    if options.command == "stop":
        return stop(RunDirectory(Path(options.run_dir)), stores=options.stores)
    if options.command == "fault":
        run = RunDirectory(Path(options.run_dir))
        return inject(run, options.kind, options.store_name, options.engine_port)
    try:
        if options.command == "cold":
            return cold(options.engine_port)
        return info(options.engine_port, options.store_port)
    except urllib.error.URLError as error:
        raise CannotMeasure(
            f"no answer: {error.reason}", where=f"{HOST}:{options.engine_port}"
        ) from error


def main(argv: list[str] | None = None) -> int:
    """Do one command; prints its JSON and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvgate.rehearsal.launch")
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start")
    starting.add_argument("--arm", choices=ARMS, required=True)
    starting.add_argument("--run-dir", required=True)
    starting.add_argument("--engine-port", type=int, required=True)
    starting.add_argument("--engine-args", default="[]", metavar="JSON")
    starting.add_argument("--store-port", type=int, default=0)
    starting.add_argument("--store-args", default="[]", metavar="JSON")
    starting.add_argument("--exit-with", type=int, default=0, metavar="PID")
    starting.add_argument("--timeout-s", type=float, default=30.0)
    stopping = commands.add_parser("stop")
    stopping.add_argument("--run-dir", required=True)
    stopping.add_argument("--stores", action="store_true")
    injecting = commands.add_parser("fault")
    injecting.add_argument("--kind", required=True)
    injecting.add_argument("--run-dir", required=True)
    injecting.add_argument("--store-name", choices=ARMS, required=True)
    injecting.add_argument("--engine-port", type=int, required=True)
    for name in ("cold", "info"):
        asking = commands.add_parser(name)
        asking.add_argument("--engine-port", type=int, required=True)
        asking.add_argument("--store-port", type=int, default=0)
    options = parser.parse_args(argv)
    try:
        result = _run(options)
    except KvgateError as error:
        print(json.dumps({"ok": False, "error": str(error)}))
        return 2 if isinstance(error, UsageError) else 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
