"""Cold restore from the command line: prime, settle, make cold; and the proof, where there is one.

A store that is not watched acknowledges nothing, and an engine without metrics proves nothing: both
are said, never assumed.
"""

from __future__ import annotations

import http.client
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.requests import parse_url
from kvgate.observe.adapters import adapter_for
from kvgate.observe.counters import Counters, increase
from kvgate.observe.scrape import scrape

LOOK_S: Final = 2.0
POLL_S: Final = 0.2
COMMAND_S: Final = 1800.0
READY_S: Final = 1800.0
STORED_SHARE: Final = 0.9
"""Stores keep whole chunks only, so never quite all."""
CACHED_SHARE: Final = 0.01
"""The last token of a prompt is always recomputed, and some versions count it otherwise."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A metrics page and how to read it. Raises UsageError for a kind that nobody knows."""

    url: str
    kind: str

    def __post_init__(self) -> None:
        adapter_for(self.kind)

    def look(self) -> Counters | None:
        """The counters now; ``None`` where the page cannot be had."""
        found = scrape(self.url, LOOK_S)
        return None if found.samples is None else adapter_for(self.kind).read(found.samples)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a run's prompt tokens came from, by the engine's own counters; ``None``: not told."""

    prompt_tokens: float | None
    engine_cache_tokens: float | None
    external_tokens: float | None
    restarts: int

    @property
    def engine_cache_share(self) -> float | None:
        """Share from the engine's own prefix cache."""
        return _share(self.engine_cache_tokens, self.prompt_tokens)

    @property
    def external_share(self) -> float | None:
        """Share that came through the KV connector."""
        return _share(self.external_tokens, self.prompt_tokens)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def sources(before: Counters | None, after: Counters | None) -> Sources | None:
    """The growth between two looks; ``None`` where one is missing."""
    grown = increase(before, after)
    if grown is None:
        return None
    delta = grown.delta
    cached = delta.get("prompt_tokens_engine_cache")
    external = delta.get("prompt_tokens_external")
    return Sources(
        prompt_tokens=delta.get("prompt_tokens"),
        engine_cache_tokens=delta.get("prefix_hits") if cached is None else cached,
        external_tokens=delta.get("external_hits") if external is None else external,
        restarts=grown.restarts,
    )


@dataclass(frozen=True, slots=True)
class Coldness:
    """What is known about a cold restore.

    ``acknowledged``: whether the store said that it holds what was primed, ``None`` where nobody
    watched it. ``cold``: whether the engine's own cache gave at most 1 %, ``None`` where the engine
    does not tell.
    """

    primed_tokens: int
    acknowledged: bool | None
    made_cold_by: str
    cold: bool | None
    engine_cache_share: float | None
    external_share: float | None

    @property
    def proved(self) -> bool:
        """Whether both hold by somebody's counters."""
        return self.acknowledged is True and self.cold is True

    def sentences(self) -> tuple[str, ...]:
        """What is not proved, each in one sentence; none where all is."""
        said = []
        if self.acknowledged is None:
            said.append(
                "not proved: nobody watched whether the store holds what was primed "
                "-- give --store-metrics and --store-kind"
            )
        elif not self.acknowledged:
            said.append("the store never acknowledged what was primed")
        if self.cold is None:
            said.append(
                "not proved: the engine does not tell what came from its own cache "
                "-- give --engine-metrics and --engine-kind"
            )
        elif not self.cold:
            said.append(f"not cold: {self.engine_cache_share:.1%} came from the engine's own cache")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Every field by name, with ``proved``."""
        return {
            "primed_tokens": self.primed_tokens,
            "acknowledged": self.acknowledged,
            "made_cold_by": self.made_cold_by,
            "cold": self.cold,
            "engine_cache_share": self.engine_cache_share,
            "external_share": self.external_share,
            "proved": self.proved,
        }


def coldness(
    primed_tokens: int, acknowledged: bool | None, made_cold_by: str, seen: Sources | None
) -> Coldness:
    """Put together what is known; a restart inside the block leaves its coldness unknown."""
    share = None if seen is None or seen.restarts else seen.engine_cache_share
    return Coldness(
        primed_tokens=primed_tokens,
        acknowledged=acknowledged,
        made_cold_by=made_cold_by,
        cold=None if share is None else share <= CACHED_SHARE,
        engine_cache_share=share,
        external_share=None if seen is None else seen.external_share,
    )


def holds(
    before: Mapping[str, float | None],
    now: Mapping[str, float | None],
    tokens: int,
    kv_bytes_per_token: int | None,
) -> bool | None:
    """Whether a store has grown by what was primed and nothing waits; ``None``: it does not say.

    Counters as of ``Counters.to_json``. The growth is counted in tokens, or in bytes used where
    ``kv_bytes_per_token`` is known.
    """
    wanted: float = tokens
    old, new = before.get("stored_tokens"), now.get("stored_tokens")
    if (old is None or new is None) and kv_bytes_per_token is not None:
        old, new = before.get("used_bytes"), now.get("used_bytes")
        wanted = tokens * kv_bytes_per_token
    if old is None or new is None:
        return None
    return new - old >= STORED_SHARE * wanted and not now.get("pending_bytes")


def settle(
    store: Watched | None,
    before: Counters | None,
    tokens: int,
    kv_bytes_per_token: int | None,
    limit_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool | None:
    """Wait until the store acknowledges, at most ``limit_s`` (s); without one, all that time.

    Returns True when it did, False when it did not, ``None`` where it does not say.
    """
    end = clock() + limit_s
    said: bool | None = None
    while (left := end - clock()) > 0:
        now = None if store is None else store.look()
        if now is not None and before is not None:
            said = holds(before.to_json(), now.to_json(), tokens, kv_bytes_per_token)
            if said:
                return True
        sleep(min(POLL_S, left))
    return said


def make_cold(how: str, engine_url: str) -> None:
    """Empty the engine's caches: POST to a URL or to a path of the engine, or run a command.

    Raises :class:`CannotMeasure` when that fails, :class:`UsageError` when it is nothing.
    """
    if how.startswith(("http://", "https://")):
        _post(how)
    elif how.startswith("/") and " " not in how and not how.startswith("//"):
        base = engine_url.rstrip("/").removesuffix("/v1")
        _post((base if "//" in base else f"http://{base}") + how)
    else:
        _run(how)
    _await_answer(engine_url)


def _await_answer(url: str) -> None:
    """A command may restart the engine: wait until it takes connections again."""
    target = parse_url(url, "completions")
    end = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection((target.host, target.port), timeout=LOOK_S).close()
        except OSError as fault:
            if time.monotonic() > end:
                raise CannotMeasure(
                    f"the engine did not come back in {READY_S:g} s: {fault}", where=url
                ) from None
            time.sleep(POLL_S)
        else:
            return


def _post(url: str) -> None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        link = kind(parts.hostname or "", parts.port, timeout=60)
        link.request("POST", parts.path + (f"?{parts.query}" if parts.query else ""))
        answer = link.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as fault:
        raise CannotMeasure(f"cannot make the engine cold: {fault}", where=url) from None
    if answer.status >= 300:
        raise CannotMeasure(
            f"cannot make the engine cold: HTTP {answer.status}",
            where=url,
            remedy="vLLM has /reset_prefix_cache with VLLM_SERVER_DEV_MODE=1, SGLang /flush_cache",
        )
    link.close()


def _run(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise UsageError(f"--make-cold is no command: {fault}", where=command) from None
    if not words:
        raise UsageError("--make-cold is empty")
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("--make-cold names no program that is here", where=words[0]) from None
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise CannotMeasure(f"cannot make the engine cold: {fault}", where=command) from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CannotMeasure(
            f"cannot make the engine cold: exit {done.returncode} {' '.join(last)}", where=command
        )
