"""The simulated LLM engine: vLLM's endpoints and counter names in front of the scheduler.

``GET /health /version /v1/models /metrics``, ``POST /v1/completions /v1/chat/completions /tokenize
/reset_prefix_cache[?reset_external=true]``. A request with the header ``x-kvgate-priming: 1`` is
computed and stored ``--prime-speedup`` times faster, with ``--priming`` every request is, since
priming is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import time
import uuid
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kvgate import __version__
from kvgate.errors import UsageError
from kvgate.rehearsal.contents import tokenize
from kvgate.rehearsal.faults import ARMS, ActiveFaults, active_in, parse_faults
from kvgate.rehearsal.process import Alarm, process_metrics, run, serve, to_its_end
from kvgate.rehearsal.profile import Scenario, load_scenario
from kvgate.rehearsal.protocol import (
    AnswerSink,
    Message,
    RefusedError,
    chat_text,
    error_body,
    prompt_tokens_of,
    read_generation,
)
from kvgate.rehearsal.scheduler import Pace, Scheduler, Sequence
from kvgate.rehearsal.tiers import StoreLink
from kvgate.rehearsal.wire import HttpConnection, Request

_RESTARTED: Final = "KVGATE_REHEARSAL_RESTARTED"
EXIT_DIED: Final = 70
FITTED_TENSOR_PARALLEL: Final = 8
"""Accelerators of the engine that the calibrations describe."""


class TokenizeBody(msgspec.Struct, frozen=True):
    """Body of /tokenize."""

    prompt: str | list[int | str] | None = None
    messages: list[Message] | None = None
    model: str | None = None


class Engine:
    """HTTP routes, metrics and faults of one engine."""

    def __init__(
        self,
        arm: str,
        scenario: Scenario,
        pace: Pace,
        store: StoreLink | None,
        faults: ActiveFaults,
        seed: int,
        *,
        priming: bool = False,
        tensor_parallel: int = FITTED_TENSOR_PARALLEL,
    ) -> None:
        self._arm = arm
        self._tensor_parallel = tensor_parallel
        if faults.other_parallelism:
            self._tensor_parallel = max(1, tensor_parallel // 2)
        self._priming = priming
        self._scenario = scenario
        self._store = store
        self._faults = faults
        self._chance = random.Random(f"{seed}/{arm}/streams")
        self._pace = pace
        self._alarm = Alarm(self._step_due)
        self._scheduler = Scheduler(
            scenario,
            pace,
            None if faults.never_hits else store,
            faults.warm_share,
            self._alarm.set,
        )
        self._done = 0

    def _step_due(self) -> None:
        self._scheduler.step_due()

    def handle(self, connection: HttpConnection, request: Request) -> None:
        """Answer one request."""
        route = (request.method, request.path)
        try:
            if route == ("POST", "/v1/completions"):
                self._generate(connection, request, chat=False)
            elif route == ("POST", "/v1/chat/completions"):
                self._generate(connection, request, chat=True)
            elif route == ("GET", "/metrics"):
                connection.send(200, b"text/plain; version=0.0.4; charset=utf-8", self._metrics())
            elif route == ("GET", "/health"):
                connection.send(200, b"text/plain", b"")
            elif route == ("GET", "/version"):
                connection.send_json(200, self._version())
            elif route == ("GET", "/server_info"):
                sizes = {"tensor_parallel_size": self._tensor_parallel}
                connection.send_json(200, {"simulated": True, "parallel_config": sizes})
            elif route == ("GET", "/v1/models"):
                connection.send_json(200, self._models())
            elif route == ("POST", "/tokenize"):
                connection.send_json(200, self._tokenize(request.body))
            elif route == ("POST", "/reset_prefix_cache"):
                dropped = self._scheduler.reset_caches(dram="reset_external=true" in request.query)
                connection.send_json(200, {"reset": True, "dropped_tokens": dropped})
            else:
                connection.send_json(404, error_body(404, f"no {request.method} {request.path}"))
        except RefusedError as refused:
            connection.send_json(refused.status, error_body(refused.status, str(refused)))

    def _generate(self, connection: HttpConnection, request: Request, *, chat: bool) -> None:
        scenario, faults = self._scenario, self._faults
        asked = read_generation(
            request.body, chat=chat, model=scenario.model, max_model_len=scenario.max_model_len
        )
        if len(asked.tokens) + asked.output_limit > scenario.engine.gpu_cache_tokens:
            raise RefusedError(400, "the request does not fit the GPU cache")
        request_id = request.headers.get(b"x-request-id", b"").decode("latin-1") or uuid.uuid4().hex
        priming = self._priming or request.headers.get(b"x-kvgate-priming") == b"1"
        cut_after = error_after = None
        if not priming:
            if self._chance.random() < self._faults.truncated_share:
                cut_after = max(1, asked.output_limit // 2)
            if self._chance.random() < self._faults.error_share:
                error_after = min(2, asked.output_limit - 1)
            # A copy: what is asked for stays what was asked for.
            asked = replace(asked, tokens=asked.tokens + asked.tokens[: faults.added_prompt_tokens])
        sink = AnswerSink(connection, asked, request_id, scenario.model, cut_after, error_after)
        often = 0.0 if priming else self._faults.preempted_share
        preempted = often > 0.0 and self._chance.random() < often
        sequence = Sequence(
            tokens=asked.tokens,
            output_limit=asked.output_limit,
            ignore_eos=asked.ignore_eos,
            priming=priming,
            variation=asked.variation,
            sink=sink,
            salt=asked.cache_salt,
            preempt_at=max(1, asked.output_limit // 2) if preempted else None,
        )
        sink.sequence = sequence
        if not priming:
            sink.on_done = self._request_done
        connection.on_lost = lambda: self._scheduler.drop(sequence)
        sink.begin()
        self._scheduler.submit(sequence)

    def _request_done(self) -> None:
        self._done += 1
        loop = asyncio.get_running_loop()
        if self._done == self._faults.die_after_requests:
            loop.call_soon(self._die)
        elif self._done == self._faults.restart_after_requests and _RESTARTED not in os.environ:
            loop.call_soon(self._restart)

    def _die(self) -> None:
        print("simulated death of the engine", file=sys.stderr, flush=True)
        os._exit(EXIT_DIED)

    def _restart(self) -> None:
        print("simulated restart of the engine", file=sys.stderr, flush=True)
        os.environ[_RESTARTED] = "1"
        # Sockets are close-on-exec, so the clients see their connections break.
        os.execv(  # noqa: S606 - our own program again, no shell
            sys.executable, [sys.executable, "-m", "kvgate.rehearsal.engine", *sys.argv[1:]]
        )

    def _version(self) -> dict[str, object]:
        build = self._faults.other_build
        return {
            "version": f"simulated-{__version__}" + (f"+{build}" if build else ""),
            "simulated": True,
            "arm": self._arm,
            "time_scale": self._pace.time_scale,
            "scenario": self._scenario.title,
            "prompt_tokens": self._scenario.prompt_tokens,
            "output_tokens": self._scenario.output_tokens,
            "real_tokens_per_token": self._scenario.real_tokens_per_token,
        }

    def _models(self) -> dict[str, object]:
        model = {
            "id": self._scenario.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "kvgate-rehearsal",
            "root": self._scenario.model,
            "max_model_len": self._scenario.max_model_len,
        }
        return {"object": "list", "data": [model]}

    def _tokenize(self, body: bytes) -> dict[str, object]:
        try:
            asked = msgspec.json.decode(body, type=TokenizeBody)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RefusedError(400, f"body: {error}") from error
        if asked.messages is not None:
            tokens = tokenize(chat_text(asked.messages))
        else:
            tokens = prompt_tokens_of(asked.prompt if asked.prompt is not None else "")
        return {
            "count": len(tokens),
            "max_model_len": self._scenario.max_model_len,
            "tokens": tokens,
        }

    def _metrics(self) -> bytes:
        count = self._scheduler.counters
        label = f'engine="0",model_name="{self._scenario.model}"'
        lines: list[str] = []

        def family(name: str, kind: str, rows: dict[str, float]) -> None:
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(f"{name}{{{label}{extra}}} {value}" for extra, value in rows.items())

        family("vllm:num_requests_running", "gauge", {"": self._scheduler.running})
        family("vllm:num_requests_waiting", "gauge", {"": self._scheduler.waiting})
        family("vllm:kv_cache_usage_perc", "gauge", {"": self._scheduler.cache_usage})
        for name, value in (
            ("vllm:prompt_tokens_total", count.prompt_tokens),
            ("vllm:generation_tokens_total", count.generation_tokens),
            ("vllm:prefix_cache_queries_total", count.prefix_queries),
            ("vllm:prefix_cache_hits_total", count.prefix_hits),
            ("vllm:external_prefix_cache_queries_total", count.external_queries),
            ("vllm:external_prefix_cache_hits_total", count.external_hits),
            # It admits only what fits its cache, so that nothing is preempted but by a fault.
            ("vllm:num_preemptions_total", count.preemptions),
            ("kvgate_rehearsal_dram_hit_tokens_total", count.dram_tokens),
            ("kvgate_rehearsal_store_fallbacks_total", count.store_fallbacks),
            ("kvgate_rehearsal_steps_total", count.steps),
        ):
            family(name, "counter", {"": value})
        family(
            "vllm:prompt_tokens_by_source_total",
            "counter",
            {
                ',source="local_compute"': count.computed_tokens,
                ',source="local_cache_hit"': count.local_hit_tokens,
                ',source="external_kv_transfer"': count.external_tokens,
            },
        )
        family(
            "vllm:request_success_total",
            "counter",
            {f',finished_reason="{reason}"': value for reason, value in count.finished.items()},
        )
        unacknowledged = self._store.unacknowledged_chunks if self._store is not None else 0
        family("kvgate_rehearsal_unacknowledged_chunks", "gauge", {"": unacknowledged})
        family("kvgate_rehearsal_gpu_cache_tokens", "gauge", {"": self._scheduler.gpu.tokens})
        lines.extend(process_metrics())
        return ("\n".join(lines) + "\n").encode()


def on_part(scenario: Scenario, accelerators: int) -> Scenario:
    """The scenario on a part of the host: prefill and GPU cache shrink with it, the decode step,
    which reads the weights, is taken to stay."""
    share = accelerators / FITTED_TENSOR_PARALLEL
    engine = scenario.engine
    return msgspec.structs.replace(
        scenario,
        engine=msgspec.structs.replace(
            engine,
            prefill_real_tokens_per_s=engine.prefill_real_tokens_per_s * share,
            gpu_cache_tokens=round(engine.gpu_cache_tokens * share),
        ),
    )


def speed_factor(seed: int, arm: str, sd: float) -> float:
    """This engine start's factor on every duration: log-normal, fixed by seed and arm."""
    return math.exp(random.Random(f"{seed}/{arm}/speed").gauss(0.0, sd))


def main(argv: list[str] | None = None) -> int:
    """Run an engine until it is told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvgate.rehearsal.engine")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--store", metavar="URL", help="absent for recompute")
    parser.add_argument("--calibration", default="healthy", help="NAME_OR_FILE[:SCENARIO]")
    parser.add_argument("--time-scale", type=float, default=100.0)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE][@ARM[+ARM]]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallel-size", type=int, default=FITTED_TENSOR_PARALLEL)
    parser.add_argument("--prime-speedup", type=float, default=1.0)
    parser.add_argument("--priming", action="store_true", help="every request primes, no faults")
    parser.add_argument("--exit-with", type=int, metavar="PID")
    options = parser.parse_args(argv)
    if options.tensor_parallel_size < 1:
        raise UsageError(
            f"{options.tensor_parallel_size} accelerators",
            where="--tensor-parallel-size",
            remedy="give at least 1",
        )
    scenario = on_part(load_scenario(options.calibration), options.tensor_parallel_size)
    specs = parse_faults(options.fault)
    faults = active_in(() if options.priming else specs, options.arm)
    for flag, value in (
        ("--time-scale", options.time_scale),
        ("--prime-speedup", options.prime_speedup),
    ):
        if not value > 0:
            raise UsageError(f"{value:g} is not above 0", where=flag, remedy="give a factor")
    sd = scenario.pair_noise_sd if faults.noise_sd is None else faults.noise_sd

    async def body() -> None:
        if faults.slow_start_s:
            await asyncio.sleep(faults.slow_start_s)
        store = None
        if options.store:
            url = urlsplit(options.store)
            store = StoreLink(url.hostname or "127.0.0.1", url.port or 80)
        pace = Pace(
            time_scale=options.time_scale,
            slowdown=speed_factor(options.seed, options.arm, sd),
            drift_per_minute=faults.drift_per_minute,
            prime_speedup=options.prime_speedup,
            zero_s=time.monotonic(),
        )
        engine = Engine(
            options.arm, scenario, pace, store, faults, options.seed, priming=options.priming,
            tensor_parallel=options.tensor_parallel_size,
        )  # fmt: skip
        await serve(engine, options.host, options.port, options.exit_with)

    return to_its_end(body())


if __name__ == "__main__":
    sys.exit(run(main))
