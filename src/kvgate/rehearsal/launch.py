"""Starts and stops the rehearsal's processes by recorded pid; prints one JSON line.

``start``: the arm's store if its recorded process is not alive (it survives engine restarts), then
the engines in place of recorded ones, then the setup (see :mod:`kvgate.rehearsal.setup`).
``stop``: the engines, with ``--stores`` the stores too. ``cold``: reset the engines' prefix caches.
``fault``: restart the store under load. ``info``: version, models and the store's device.

The processes are ``engine``, ``engine-2`` and so on, ``store-appliance`` and ``store-baseline``.

Exit codes: 0 done, 1 could not be done, 2 asked wrongly. A failure prints ``{"ok": false,
"error": "one line"}``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvgate.errors import CannotMeasure, KvgateError, UsageError
from kvgate.reason import Reason
from kvgate.rehearsal.faults import ARMS
from kvgate.rehearsal.running import HOST, Recorded, RunDirectory, fetch, wait_healthy
from kvgate.rehearsal.setup import Wanted, arrange, parallelism, wanted_from


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
    engine_ports: list[int],
    engine_args: list[str],
    store_port: int,
    store_args: list[str],
    exit_with: int | None,
    timeout_s: float,
    wanted: Wanted,
) -> dict[str, Any]:
    """Bring up one arm in a setup; raises ``CannotMeasure`` when a process does not come up."""
    began_s = time.monotonic()
    tail = ["--exit-with", str(exit_with)] if exit_with else []
    for name in list(run.names("engine")):
        run.stop(name)
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
        engine_args = ["--store", f"http://{HOST}:{store_port}", *engine_args]
    engines: dict[str, Recorded] = {}
    setup: dict[str, Any] = {}
    try:
        for number, port in enumerate(engine_ports, start=1):
            name = "engine" if number == 1 else f"engine-{number}"
            argv = [
                *(sys.executable, "-m", "kvgate.rehearsal.engine"),
                *("--host", HOST, "--port", str(port), "--arm", arm),
            ]
            engines[name] = run.start(name, port, [*argv, *engine_args, *tail])
        if store is not None:
            wait_healthy(run, store_name, store, timeout_s)
            setup = arrange(store_port, wanted)
        for name, engine in engines.items():
            wait_healthy(run, name, engine, timeout_s)
    except CannotMeasure:
        for name in engines:
            run.stop(name)
        raise
    result: dict[str, Any] = {"ok": True, "arm": arm, "simulated": True}
    result["engine"] = _described(run, "engine", engines["engine"], reused=False)
    if store is not None:
        result["store"] = _described(run, store_name, store, reused)
    result["wait_s"] = round(time.monotonic() - began_s, 3)
    # Asked here already, since each further task of a play costs half a second.
    result["info"] = info(engine_ports[0], store_port if store is not None else 0)
    result["info"]["setup"] = {**setup, "engines": parallelism(engine_ports)}
    return result


def stop(run: RunDirectory, *, stores: bool) -> dict[str, Any]:
    """End the engines and, when asked, the stores."""
    names = list(run.names("engine"))
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
        dropped = cold([engine_port])
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


def cold(engine_ports: list[int]) -> dict[str, Any]:
    """Drop the engines' own caches, DRAM tiers included; the store keeps what it holds. What the
    last engine tells."""
    said: dict[str, Any] = {}
    for port in engine_ports:
        url = f"http://{HOST}:{port}/reset_prefix_cache?reset_external=true"
        said = json.loads(fetch(url, method="POST")[0])
    return {"ok": True, **said}


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
            [options.engine_port, *options.more_engine_ports],
            _arguments(options.engine_args),
            options.store_port,
            _arguments(options.store_args),
            options.exit_with or None,
            options.timeout_s,
            wanted_from(options.setup),
        )
    if options.command == "stop":
        return stop(RunDirectory(Path(options.run_dir)), stores=options.stores)
    if options.command == "fault":
        run = RunDirectory(Path(options.run_dir))
        return inject(run, options.kind, options.store_name, options.engine_port)
    try:
        if options.command == "cold":
            return cold([options.engine_port, *options.more_engine_ports])
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
    starting.add_argument("--setup", default="{}", metavar="JSON")
    stopping = commands.add_parser("stop")
    stopping.add_argument("--run-dir", required=True)
    stopping.add_argument("--stores", action="store_true")
    injecting = commands.add_parser("fault")
    injecting.add_argument("--kind", required=True)
    injecting.add_argument("--run-dir", required=True)
    injecting.add_argument("--store-name", choices=ARMS, required=True)
    injecting.add_argument("--engine-port", type=int, required=True)
    asking_cold, asking_info = commands.add_parser("cold"), commands.add_parser("info")
    for asking in (asking_cold, asking_info):
        asking.add_argument("--engine-port", type=int, required=True)
        asking.add_argument("--store-port", type=int, default=0)
    for several in (starting, asking_cold):
        several.add_argument("--more-engine-ports", type=int, nargs="*", default=[])
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
