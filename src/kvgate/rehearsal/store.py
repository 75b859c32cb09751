"""The simulated KV store of one arm, as a process of its own.

Interface, JSON over HTTP (keys are hex, one per chunk of the prefix):

- ``POST /v1/lookup {"keys": [...]}`` -> ``{"held": n}``: how many leading chunks are held
- ``POST /v1/load {"keys": [...], "slowdown": 1.0}`` -> ``{"contents": [...], "end_s": t}`` when the
  simulated transfer has passed; ``end_s`` is its exact end on the host's monotonic clock
- ``POST /v1/store {"keys": [...], "contents": [...], "slowdown": 1.0}`` -> ``{"stored": n}`` when
  acknowledged; only then are the chunks held
- ``POST /v1/settings {"delay_ms": "600", "acknowledge": "write_back"}``: how long the way to the
  store takes beyond what it is, in simulated ms there and back, and whether a write is acknowledged
  when it is written (``write_through``) or at once; ``GET`` tells them
- ``GET /v1/ping`` -> an answer after that way; ``GET /health``, ``/v1/device``, ``/metrics``
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal

import msgspec

from kvgate.rehearsal.bandwidth import Load, LoadQueue, WriteQueue
from kvgate.rehearsal.contents import corrupted, share_of
from kvgate.rehearsal.faults import ActiveFaults, active_in, parse_faults
from kvgate.rehearsal.process import Alarm, process_metrics, run, serve, to_its_end
from kvgate.rehearsal.profile import Scenario, StoreProfile, load_scenario
from kvgate.rehearsal.wire import HttpConnection, Request

STORE_NAMES: Final = ("appliance", "baseline")


class LookupCall(msgspec.Struct, frozen=True):
    """Body of ``/v1/lookup``."""

    keys: list[str]


class LoadCall(msgspec.Struct, frozen=True):
    """Body of ``/v1/load``."""

    keys: list[str]
    slowdown: float = 1.0


class StoreCall(msgspec.Struct, frozen=True):
    """Body of ``/v1/store``."""

    keys: list[str]
    contents: list[str]
    slowdown: float = 1.0


class SettingsCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``/v1/settings``; what is left out is the default again."""

    delay_ms: str = "0"
    acknowledge: Literal["write_through", "write_back"] = "write_through"


class Store:
    """State and HTTP answers of one store."""

    def __init__(
        self, name: str, scenario: Scenario, time_scale: float, faults: ActiveFaults
    ) -> None:
        self._name = name
        self._scenario = scenario
        self._profile: StoreProfile = scenario.store[name]
        self._scale = time_scale
        self._faults = faults
        self._zero_s = time.monotonic()
        self._chunks: OrderedDict[str, str] = OrderedDict()
        self._loads = LoadQueue(self._profile)
        self._writes = WriteQueue(self._profile.write_gb_per_s * 1e9)
        self._answers: dict[Load, tuple[HttpConnection, list[str]]] = {}
        self._alarm = Alarm(self._transfers_due)
        self._load_count = 0
        self._lookup_tokens = 0
        self._hit_tokens = 0
        self._bytes_read = 0
        self._bytes_written = 0
        self._stored_tokens = 0
        self._evicted_chunks = 0
        self._pending_bytes = 0
        self._errors = 0
        self._settings = SettingsCall()
        self._delay_s = 0.0

    def keep(self, path: Path) -> None:
        """Write what is held, as a drive would still have it after a restart."""
        path.write_bytes(msgspec.json.encode(list(self._chunks.items())))

    def recall(self, path: Path) -> None:
        """Hold again what :meth:`keep` wrote; nothing where it wrote nothing."""
        if path.exists():
            self._chunks.update(msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str]]))
            self._stored_tokens = len(self._chunks) * self._scenario.chunk_tokens

    def handle(self, connection: HttpConnection, request: Request) -> None:
        """Answer one request."""
        route = (request.method, request.path)
        try:
            if route == ("POST", "/v1/lookup"):
                self._lookup(connection, msgspec.json.decode(request.body, type=LookupCall))
            elif route == ("POST", "/v1/load"):
                self._load(connection, msgspec.json.decode(request.body, type=LoadCall))
            elif route == ("POST", "/v1/store"):
                self._store(connection, msgspec.json.decode(request.body, type=StoreCall))
            elif route == ("POST", "/v1/settings"):
                self._set(connection, msgspec.json.decode(request.body, type=SettingsCall))
            elif route == ("GET", "/v1/settings"):
                connection.send_json(200, msgspec.to_builtins(self._settings))
            elif route == ("GET", "/v1/ping"):
                self._after_the_way(connection, {"status": "ok", "simulated": True})
            elif route == ("GET", "/metrics"):
                connection.send(200, b"text/plain; version=0.0.4", self._metrics())
            elif route == ("GET", "/v1/device"):
                connection.send_json(200, self._device())
            elif route == ("GET", "/health"):
                connection.send_json(200, {"status": "ok", "simulated": True})
            else:
                connection.send_json(404, {"error": f"no {request.method} {request.path}"})
        except msgspec.MsgspecError as error:
            self._errors += 1
            connection.send_json(400, {"error": str(error)})

    def _now_s(self) -> float:
        """Simulated seconds since the store started."""
        return (time.monotonic() - self._zero_s) * self._scale

    def _real_s(self, simulated_s: float) -> float:
        return self._zero_s + simulated_s / self._scale

    def _set(self, connection: HttpConnection, settings: SettingsCall) -> None:
        try:
            delay_ms = float(settings.delay_ms)
        except ValueError:
            delay_ms = -1.0
        if not 0 <= delay_ms < 1e7:
            connection.send_json(400, {"error": f"delay_ms {settings.delay_ms!r} is no delay"})
            return
        self._settings = settings
        self._delay_s = 0.0 if self._faults.no_delay else delay_ms / 1e3
        connection.send_json(200, msgspec.to_builtins(settings))

    def _after_the_way(self, connection: HttpConnection, answer: dict[str, object]) -> None:
        if not self._delay_s:
            connection.send_json(200, answer)
            return

        def arrived() -> None:
            if not connection.closed:
                connection.send_json(200, answer)

        asyncio.get_running_loop().call_later(self._delay_s / self._scale, arrived)

    def _lookup(self, connection: HttpConnection, call: LookupCall) -> None:
        chunk_tokens = self._scenario.chunk_tokens
        held = 0
        for key in call.keys:
            if key not in self._chunks:
                break
            self._chunks.move_to_end(key)
            held += 1
        self._lookup_tokens += len(call.keys) * chunk_tokens
        counted = held * chunk_tokens * (1.0 - self._faults.uncounted_share)
        self._hit_tokens += round(counted)
        self._after_the_way(connection, {"held": held})

    def _load(self, connection: HttpConnection, call: LoadCall) -> None:
        missing = [key for key in call.keys if key not in self._chunks]
        if missing or not call.keys:
            self._errors += 1
            connection.send_json(409, {"error": f"{len(missing)} chunks are not held"})
            return
        self._load_count += 1
        if self._faults.hang_share and self._hangs(call.keys[-1]):
            return
        contents = []
        for key in call.keys:
            content = self._chunks[key]
            if share_of(bytes.fromhex(key)) < self._faults.corrupt_share:
                content = corrupted(bytes.fromhex(content)).hex()
            contents.append(content)
        now_s = self._now_s()
        self._settle(now_s)
        drift = 1.0 + self._faults.drift_per_minute * now_s / 60.0
        slowdown = call.slowdown * drift * self._faults.slow_tier_factor
        load = Load(len(call.keys) * self._scenario.chunk_bytes, slowdown)
        self._answers[load] = (connection, contents)
        connection.on_lost = lambda: self._client_gone(load)
        self._loads.submit(load)
        self._arm()

    def _hangs(self, key: str) -> bool:
        # The count is mixed in: the same prompt may hang today and answer tomorrow.
        share = (share_of(bytes.fromhex(key)) + self._load_count * 0.618033988749895) % 1.0
        return share < self._faults.hang_share

    def _client_gone(self, load: Load) -> None:
        if self._answers.pop(load, None) is not None:
            self._settle(self._now_s())
            self._loads.cancel(load)
            self._arm()

    def _transfers_due(self) -> None:
        self._settle(self._now_s())
        self._arm()

    def _arm(self) -> None:
        end_s = self._loads.next_end_s()
        if end_s is not None:
            self._alarm.set(self._real_s(end_s))

    def _settle(self, now_s: float) -> None:
        for load, end_s in self._loads.advance(now_s):
            answer_s = self._real_s(end_s + self._profile.latency_s + self._delay_s)
            self._bytes_read += round(load.total_bytes * self._faults.bytes_read_factor)
            asyncio.get_running_loop().call_soon(self._answer_load, load, answer_s)

    def _answer_load(self, load: Load, answer_s: float) -> None:
        wait_s = answer_s - time.monotonic()
        if wait_s > 0.0005:
            asyncio.get_running_loop().call_later(wait_s, self._answer_load, load, answer_s)
            return
        answer = self._answers.pop(load, None)
        if answer is not None:
            connection, contents = answer
            connection.send_json(200, {"contents": contents, "end_s": answer_s})

    def _store(self, connection: HttpConnection, call: StoreCall) -> None:
        if len(call.keys) != len(call.contents):
            self._errors += 1
            connection.send_json(400, {"error": "as many contents as keys are needed"})
            return
        size = len(call.keys) * self._scenario.chunk_bytes
        self._pending_bytes += size
        end_s = self._writes.submit(self._now_s(), size, call.slowdown)
        wait_s = max(0.0, self._real_s(end_s) - time.monotonic())
        loop = asyncio.get_running_loop()
        if self._settings.acknowledge == "write_back":
            self._acknowledge(connection, call)
            loop.call_later(wait_s, self._written, size)
            return

        def written() -> None:
            self._written(size)
            self._acknowledge(connection, call)

        loop.call_later(wait_s, written)

    def _written(self, size: int) -> None:
        self._pending_bytes -= size
        self._bytes_written += size

    def _acknowledge(self, connection: HttpConnection, call: StoreCall) -> None:
        self._stored_tokens += len(call.keys) * self._scenario.chunk_tokens
        for key, content in zip(call.keys, call.contents, strict=True):
            if share_of(bytes.fromhex(key)) < self._faults.miss_share:
                continue
            self._chunks[key] = content
            self._chunks.move_to_end(key)
        while self._used_bytes() > self._profile.capacity_bytes:
            self._chunks.popitem(last=False)
            self._evicted_chunks += 1
        if not connection.closed:
            connection.send_json(200, {"stored": len(call.keys)})

    def _used_bytes(self) -> int:
        return len(self._chunks) * self._scenario.chunk_bytes

    def _device(self) -> dict[str, object]:
        profile = self._profile
        return {
            "simulated": True,
            "name": self._name,
            "model": profile.model,
            "serial": profile.serial,
            "firmware": profile.firmware,
            "capacity_bytes": profile.capacity_bytes,
            "used_bytes": self._used_bytes(),
            "link_gbit_per_s": profile.link_gbit_per_s,
            "chunk_tokens": self._scenario.chunk_tokens,
            "chunk_bytes": self._scenario.chunk_bytes,
            "time_scale": self._scale,
        }

    def _metrics(self) -> bytes:
        self._settle(self._now_s())
        counters = {
            "lookup_tokens_total": self._lookup_tokens,
            "hit_tokens_total": self._hit_tokens,
            "loads_total": self._load_count,
            "bytes_read_total": self._bytes_read,
            "bytes_written_total": self._bytes_written,
            "stored_tokens_total": self._stored_tokens,
            "evicted_chunks_total": self._evicted_chunks,
            "errors_total": self._errors,
            "transfer_simulated_seconds_total": round(self._loads.transfer_s, 6),
        }
        gauges = {
            "chunks": len(self._chunks),
            "loads_in_flight": len(self._loads),
            "pending_bytes": self._pending_bytes,
            "used_bytes": self._used_bytes(),
            "capacity_bytes": self._profile.capacity_bytes,
        }
        lines = []
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                lines.append(f"# TYPE kvstore_{name} {kind}")
                lines.append(f'kvstore_{name}{{store="{self._name}"}} {value}')
        lines += process_metrics()
        return ("\n".join(lines) + "\n").encode()


def main(argv: list[str] | None = None) -> int:
    """Run a store until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvgate.rehearsal.store")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", choices=STORE_NAMES, required=True)
    parser.add_argument("--calibration", default="healthy", help="NAME_OR_FILE[:SCENARIO]")
    parser.add_argument("--time-scale", type=float, default=100.0)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE][@ARM[+ARM]]")
    parser.add_argument("--exit-with", type=int, metavar="PID")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="holds its chunks over a restart")
    options = parser.parse_args(argv)
    scenario = load_scenario(options.calibration)
    faults = active_in(parse_faults(options.fault), options.name)

    async def body() -> None:
        store = Store(options.name, scenario, options.time_scale, faults)
        if options.keep is not None:
            store.recall(options.keep)
        await serve(store, options.host, options.port, options.exit_with)
        if options.keep is not None:
            store.keep(options.keep)

    return to_its_end(body())


if __name__ == "__main__":
    sys.exit(run(main))
