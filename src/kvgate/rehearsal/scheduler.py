"""Continuous batching in simulated time: admission, restores, chunked prefill, decoding.

A step computes one token of each decoding sequence and, with what is left of the token budget,
prefill of the sequences that are next. Steps follow each other on a virtual timeline; a request
whose KV is being restored counts as waiting, as in vLLM.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kvgate.rehearsal.contents import AnswerSource, chunk_keys, content_of
from kvgate.rehearsal.profile import Scenario
from kvgate.rehearsal.tiers import ChunkCache, StoreLink

# A step loop that has fallen behind hands control back so that sockets are served meanwhile.
_MOST_STEPS_AT_ONCE: Final = 16


class Sink(Protocol):
    """Where the tokens of one request go."""

    def token(self, answer: AnswerSource, at: int, last: str | None) -> bool:
        """Output token ``at``; ``last`` is the finish reason. False ends the request early."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the engine; token counts are of its prompt unless said otherwise."""

    tokens: list[int]
    output_limit: int
    ignore_eos: bool
    priming: bool
    variation: bytes
    sink: Sink
    salt: str = ""
    keys: list[bytes] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    taint: bytes = b""
    local_tokens: int = 0
    dram_tokens: int = 0
    external_tokens: int = 0
    to_compute: int = 0
    held_chunks: int = 0
    in_this_step: int = 0
    answer: AnswerSource | None = None
    output_tokens: int = 0
    state: str = "waiting"
    preempt_at: int | None = None
    give_up: Callable[[], None] | None = None

    @property
    def reserved_tokens(self) -> int:
        """Room that it needs in the GPU cache while it is admitted."""
        return len(self.tokens) + self.output_limit

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return self.local_tokens + self.external_tokens


@dataclass(slots=True)
class Counters:
    """What /metrics shows; all of them only rise."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    local_hit_tokens: int = 0
    external_tokens: int = 0
    dram_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    store_fallbacks: int = 0
    steps: int = 0
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0})


@dataclass(frozen=True, slots=True)
class Pace:
    """Real seconds for simulated ones: the scale, this start's speed factor, and drift."""

    time_scale: float
    slowdown: float
    drift_per_minute: float
    prime_speedup: float
    zero_s: float

    def slowdown_at(self, now_s: float) -> float:
        """Factor on every simulated duration at real ``now_s``."""
        minutes = (now_s - self.zero_s) * self.time_scale / 60.0
        return self.slowdown * (1.0 + self.drift_per_minute * max(0.0, minutes))


class Scheduler:
    """The engine's step loop and its queues."""

    def __init__(
        self,
        scenario: Scenario,
        pace: Pace,
        store: StoreLink | None,
        warm_share: float,
        set_alarm: Callable[[float], None],
    ) -> None:
        self._scenario = scenario
        self._cost = scenario.engine
        self._pace = pace
        self._store = store
        self._warm_share = warm_share
        self._set_alarm = set_alarm
        self.gpu = ChunkCache(self._cost.gpu_cache_tokens, scenario.chunk_tokens)
        self.dram = ChunkCache(self._cost.dram_tokens, scenario.chunk_tokens)
        self.counters = Counters()
        self._reserved_tokens = 0
        # Chunks of answers go to the store only with the prompt of the next turn.
        self._unsaved: set[bytes] = set()
        self._arrived: deque[Sequence] = deque()
        self._loading: set[Sequence] = set()
        self._ready: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._step_end_s: float | None = None
        self._idle_since_s = pace.zero_s

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Sequences outside the batch, those with a restore on its way included."""
        return len(self._arrived) + len(self._loading) + len(self._ready)

    @property
    def cache_usage(self) -> float:
        """Share of the GPU cache that admitted sequences have reserved."""
        return self._reserved_tokens / self._cost.gpu_cache_tokens

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; it must fit the GPU cache at all."""
        sequence.keys = chunk_keys(sequence.tokens, self._scenario.chunk_tokens, sequence.salt)
        self._arrived.append(sequence)
        self._admit()

    def drop(self, sequence: Sequence) -> None:
        """The client has gone: free whatever the request holds."""
        if sequence.state == "done":
            return
        for queue in (self._arrived, self._ready, self._prefilling, self._decoding):
            if sequence in queue:
                queue.remove(sequence)
        self._loading.discard(sequence)
        if sequence.give_up is not None:
            sequence.give_up()
        self._leave(sequence, "abort")
        self._admit()

    def reset_caches(self, *, dram: bool) -> int:
        """Drop the GPU prefix cache, and the DRAM tier too when asked; tokens dropped."""
        return self.gpu.clear() + (self.dram.clear() if dram else 0)

    # --- admission and restores -------------------------------------------------------------

    def _admit(self) -> None:
        while self._arrived:
            first = self._arrived[0]
            if self._reserved_tokens + first.reserved_tokens > self._cost.gpu_cache_tokens:
                return
            self._arrived.popleft()
            self._reserved_tokens += first.reserved_tokens
            first.state = "admitted"
            self._match(first)

    def _match(self, sequence: Sequence) -> None:
        chunk_tokens = self._scenario.chunk_tokens
        # The last token of a prompt is always computed, so a cache never serves a whole prompt.
        whole = (len(sequence.tokens) - 1) // chunk_tokens
        sequence.contents = self.gpu.leading(sequence.keys[:whole])
        beyond = sequence.keys[len(sequence.contents) :]
        in_dram = self.dram.leading(beyond)
        sequence.held_chunks = len(sequence.contents)
        self._loading.add(sequence)
        asked = beyond[len(in_dram) :]
        if self._store is None or not asked:
            self._matched(sequence, in_dram, 0)
            return
        sequence.give_up = self._store.lookup(
            asked, lambda held: self._looked_up(sequence, in_dram, held)
        )

    def _looked_up(self, sequence: Sequence, in_dram: list[bytes], held: int | None) -> None:
        sequence.give_up = None
        if held is None:
            self.counters.store_fallbacks += 1
        self._matched(sequence, in_dram, held or 0)

    def _matched(self, sequence: Sequence, in_dram: list[bytes], held: int) -> None:
        local = len(sequence.contents)
        if self._warm_share and local == 0 and (held or self._store is None):
            # The fault: chunks that a reset should have dropped are still in the engine's cache.
            local = min(round(self._warm_share * len(sequence.keys)), len(sequence.keys) - 1)
            sequence.contents = [content_of(key) for key in sequence.keys[:local]]
            in_dram, held = [], max(0, held + len(in_dram) - local)
        sequence.held_chunks = local
        restored = local + len(in_dram) + held
        if held and self._store is not None:
            now_s = time.monotonic()
            slowdown = self._pace.slowdown_at(now_s)
            if sequence.priming:
                slowdown /= self._pace.prime_speedup
            sequence.give_up = self._store.load(
                sequence.keys[restored - held : restored],
                slowdown,
                lambda contents, end_s: self._loaded(sequence, in_dram, contents, end_s),
            )
        elif in_dram:
            size = len(in_dram) * self._scenario.chunk_bytes
            now_s = time.monotonic()
            wait_s = size / (self._cost.dram_gb_per_s * 1e9) * self._pace.slowdown_at(now_s)
            end_s = now_s + wait_s / self._pace.time_scale
            handle = asyncio.get_running_loop().call_later(
                end_s - now_s, self._loaded, sequence, in_dram, [], end_s
            )
            sequence.give_up = handle.cancel
        else:
            self._loaded(sequence, [], [], time.monotonic())

    def _loaded(
        self,
        sequence: Sequence,
        in_dram: list[bytes],
        contents: list[bytes] | None,
        end_s: float,
    ) -> None:
        sequence.give_up = None
        if contents is None:
            self.counters.store_fallbacks += 1
            contents = []
        chunk_tokens = self._scenario.chunk_tokens
        count = self.counters
        total = len(sequence.tokens)
        sequence.local_tokens = sequence.held_chunks * chunk_tokens
        restored = in_dram + contents
        most = total - 1 - sequence.local_tokens
        sequence.external_tokens = min(len(restored) * chunk_tokens, most)
        sequence.dram_tokens = min(len(in_dram) * chunk_tokens, most)
        sequence.contents += restored
        sequence.to_compute = total - sequence.cached_tokens
        count.prefix_queries += total
        count.prefix_hits += sequence.local_tokens
        if self._store is not None or self._cost.dram_tokens:
            count.external_queries += total - sequence.local_tokens
            count.external_hits += sequence.external_tokens
        self._loading.discard(sequence)
        self._ready.append(sequence)
        if self._step_end_s is None:
            self._begin_step(max(end_s, self._idle_since_s))

    # --- steps ------------------------------------------------------------------------------

    def _begin_step(self, start_s: float) -> None:
        left = self._cost.step_budget_tokens - len(self._decoding)
        prefill_s = 0.0
        scale_s = self._scenario.prefill_s_per_token
        taking = True
        while taking and left > 0:
            taking = False
            for sequence in self._prefilling:
                if left > 0 and not sequence.in_this_step:
                    sequence.in_this_step = min(left, sequence.to_compute)
                    left -= sequence.in_this_step
                    speedup = self._pace.prime_speedup if sequence.priming else 1.0
                    prefill_s += sequence.in_this_step * scale_s / speedup
            if left > 0 and self._ready and self.running < self._cost.max_running:
                sequence = self._ready.popleft()
                sequence.state = "running"
                self._prefilling.append(sequence)
                taking = True
        batch = self.running
        if batch == 0:
            self._step_end_s = None
            self._idle_since_s = start_s
            return
        base_s = (
            self._cost.decode_base_s
            + self._cost.decode_per_sequence_s * batch
            + self._cost.decode_per_load_s * len(self._loading)
        )
        if all(s.priming for s in self._prefilling) and all(s.priming for s in self._decoding):
            base_s /= self._pace.prime_speedup
        length_s = (base_s + prefill_s) * self._pace.slowdown_at(start_s) / self._pace.time_scale
        self._step_end_s = start_s + length_s
        self._set_alarm(self._step_end_s)

    def step_due(self) -> None:
        """Called by the alarm: finish every step whose end has passed."""
        for _ in range(_MOST_STEPS_AT_ONCE):
            end_s = self._step_end_s
            if end_s is None:
                return
            if end_s > time.monotonic():
                break
            self._finish_step()
            self._admit()
            self._begin_step(end_s)
        if self._step_end_s is not None:
            self._set_alarm(self._step_end_s)

    def _finish_step(self) -> None:
        self.counters.steps += 1
        emitting = list(self._decoding)
        for sequence in list(self._prefilling):
            sequence.to_compute -= sequence.in_this_step
            sequence.in_this_step = 0
            if sequence.to_compute == 0:
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
                if sequence.output_tokens == 0:
                    self._prefilled(sequence)
                emitting.append(sequence)
        for sequence in emitting:
            self._emit(sequence)

    def _prefilled(self, sequence: Sequence) -> None:
        count = self.counters
        total = len(sequence.tokens)
        count.prompt_tokens += total
        count.computed_tokens += total - sequence.cached_tokens
        count.local_hit_tokens += sequence.local_tokens
        count.external_tokens += sequence.external_tokens
        count.dram_tokens += sequence.dram_tokens
        keys = sequence.keys
        cached = len(sequence.contents)
        right = [content_of(key) for key in keys]
        if sequence.contents != right[:cached]:
            sequence.taint = content_of(b"".join(sequence.contents))
        computed = [content_of(key, sequence.taint) for key in keys[cached:]]
        sequence.contents += computed
        self.gpu.put(keys, sequence.contents, self._reserved_tokens)
        if self._cost.dram_tokens:
            self.dram.put(keys, sequence.contents)
        fresh = [at for at, key in enumerate(keys) if at >= cached or key in self._unsaved]
        if fresh and self._store is not None:
            speedup = self._pace.prime_speedup if sequence.priming else 1.0
            self._unsaved.difference_update(keys)
            self._store.save(
                [keys[at] for at in fresh],
                [sequence.contents[at] for at in fresh],
                self._pace.slowdown / speedup,
            )
        sequence.answer = AnswerSource(sequence.tokens, sequence.taint, sequence.variation)

    def _emit(self, sequence: Sequence) -> None:
        answer = sequence.answer
        if answer is None or sequence.state == "done":
            return
        at = sequence.output_tokens
        sequence.output_tokens += 1
        self.counters.generation_tokens += 1
        last: str | None = None
        if not sequence.ignore_eos and sequence.output_tokens >= answer.natural_length():
            last = "stop"
        elif sequence.output_tokens >= sequence.output_limit:
            last = "length"
        goes_on = sequence.sink.token(answer, at, last)
        if last is not None or not goes_on:
            self._decoding.remove(sequence)
            self._keep_output(sequence, answer)
            self._leave(sequence, last if last is not None and goes_on else "abort")
        elif sequence.output_tokens == sequence.preempt_at:
            self._preempt(sequence)

    def _preempt(self, sequence: Sequence) -> None:
        """Throw a request out half-way: what it had computed is computed again, last in line."""
        self._decoding.remove(sequence)
        sequence.preempt_at = None
        sequence.state = "admitted"
        sequence.to_compute = len(sequence.tokens) + sequence.output_tokens
        self.counters.preemptions += 1
        self._ready.append(sequence)

    def _keep_output(self, sequence: Sequence, answer: AnswerSource) -> None:
        """The next turn of a conversation finds the KV of this answer, its last token apart."""
        size = self._scenario.chunk_tokens
        total = len(sequence.tokens) + sequence.output_tokens - 1
        if total // size <= len(sequence.keys):
            return
        output = [answer.token_id(at) for at in range(sequence.output_tokens - 1)]
        keys = chunk_keys([*sequence.tokens, *output], size, sequence.salt)[len(sequence.keys) :]
        self.gpu.put(keys, [content_of(key, sequence.taint) for key in keys], self._reserved_tokens)
        self._unsaved.update(keys)

    def _leave(self, sequence: Sequence, reason: str) -> None:
        if sequence.state != "waiting":
            self._reserved_tokens -= sequence.reserved_tokens
        sequence.state = "done"
        # Request, sink and connection refer to each other and the collector runs rarely: let go of
        # what is large now, or a soak sees the simulator leak.
        sequence.tokens.clear()
        sequence.keys, sequence.contents = [], []
        self.counters.finished[reason] += 1
