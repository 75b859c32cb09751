"""A simulated engine that knows the truth: it writes down when it sent what.

``python -m kvgate.load.truth --port 0 --ttft-s 0.2 --gap-s 0.01 --tokens 200`` prints its port and
serves OpenAI's streaming endpoints from a timetable; ``--misbehave KIND=SHARE`` breaks one thing in
that share of the requests. It exists to calibrate and test the client; it is never a measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import heapq
import random
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate.load.truth_script import KINDS, Act, Script, count_prompt, script_for
from kvgate.record import NS_PER_S

_ACTS_AT_ONCE: Final = 64
_ARRIVALS_AT_ONCE: Final = 8

_now_ns = time.monotonic_ns


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The timetable: first token after ``ttft_s``, then one every ``gap_s`` (s)."""

    ttft_s: float
    gap_s: float
    tokens: int | None
    misbehave: dict[str, float] = {}
    prompt_limit: int | None = None


class Truth(msgspec.Struct, kw_only=True):
    """What really happened to one request, ns on this host's CLOCK_MONOTONIC.

    ``received_ns``: this process had the whole request. ``first_write_ns``, ``last_write_ns``:
    directly before the first and last token were handed to the kernel. ``name`` is the id that
    the events of the answer carried.
    """

    request_id: str
    kind: str
    name: str = ""
    received_ns: int
    first_write_ns: int | None = None
    last_write_ns: int | None = None
    writes: int = 0


class _Play:
    """A script being played to one connection."""

    __slots__ = ("acts", "due_ns", "next", "peer", "truth")

    def __init__(self, peer: _Peer, truth: Truth, script: Script) -> None:
        self.peer = peer
        self.truth = truth
        self.acts: Iterator[Act] = iter(script)
        self.next: Act | None = next(self.acts, None)
        self.due_ns = 0


class TruthServer:
    """Plays scripts from one timetable for all connections; no task and no timer for each."""

    def __init__(self, settings: Settings, log: Path | None) -> None:
        self.settings = settings
        self._log = log.open("ab") if log is not None else None
        self._encode = msgspec.json.Encoder().encode
        self._heap: list[tuple[int, int, _Play]] = []
        self._number = 0
        self._requests = 0
        self._draw = random.Random(0)
        self._arrived: deque[_Peer] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self._awake = False

    def choose_kind(self) -> str:
        """Which misbehaviour the next request meets, ``""`` for none."""
        drawn = self._draw.random()
        for kind, share in self.settings.misbehave.items():
            if drawn < share:
                return kind
            drawn -= share
        return ""

    def arrived(self, peer: _Peer) -> None:
        """A connection has bytes; they are looked at when all others were read too."""
        self._arrived.append(peer)
        self._wake()

    def play(
        self, peer: _Peer, request_id: str, body: dict[str, Any], chat: bool, received_ns: int
    ) -> None:
        """Start the answer to a request that is here in full."""
        model = str(body.get("model", ""))
        # A test names the misbehaviour it wants in the model's place.
        kind = model.removeprefix("misbehave:") if ":" in model else self.choose_kind()
        settings = self.settings
        tokens = settings.tokens or int(body.get("max_tokens") or 16)
        self._requests += 1
        name = f"truth-{self._requests}"
        script = script_for(
            kind,
            body,
            chat=chat,
            ttft_s=settings.ttft_s,
            gap_s=settings.gap_s,
            tokens=tokens,
            name=name,
        )
        truth = Truth(request_id=request_id, kind=kind, name=name, received_ns=received_ns)
        play = _Play(peer, truth, script)
        if play.next is not None:
            play.due_ns = received_ns + int(play.next.after_s * NS_PER_S)
            self._push(play)

    def _push(self, play: _Play) -> None:
        self._number += 1
        heapq.heappush(self._heap, (play.due_ns, self._number, play))

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Some of what is due, never all: a request that waits unread would look late."""
        self._awake = False
        for _ in range(min(_ARRIVALS_AT_ONCE, len(self._arrived))):
            self._arrived.popleft().look()
        heap = self._heap
        for _ in range(_ACTS_AT_ONCE):
            if not heap or heap[0][0] > _now_ns():
                break
            _, _, play = heapq.heappop(heap)
            self._act(play)
        if self._arrived or (heap and heap[0][0] <= _now_ns()):
            self._wake()
        elif heap and (self._timer is None or heap[0][0] != self._timer_due):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(
                self._timer_due / NS_PER_S, self._on_time
            )

    def _on_time(self) -> None:
        self._timer = None
        self._wake()

    def _act(self, play: _Play) -> None:
        act = play.next
        transport = play.peer.transport
        if act is None or transport is None or transport.is_closing():
            self._note(play)
            return
        truth = play.truth
        if act.data:
            if act.token:
                now = _now_ns()
                if truth.first_write_ns is None:
                    truth.first_write_ns = now
                truth.last_write_ns = now
                truth.writes += 1
            transport.write(act.data)
        if act.end:
            if act.end == "reset":
                # Zero linger makes close send a reset instead of a farewell.
                sock = transport.get_extra_info("socket")
                sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                transport.abort()
            elif act.end == "close":
                transport.close()
            self._note(play)
            return
        play.next = next(play.acts, None)
        if play.next is None:
            self._note(play)
            play.peer.finished()
            return
        # From the due time, not from now: lateness does not add up.
        play.due_ns += int(play.next.after_s * NS_PER_S)
        self._push(play)

    def _note(self, play: _Play) -> None:
        if self._log is not None:
            self._log.write(self._encode(play.truth) + b"\n")
            self._log.flush()

    def close(self) -> None:
        """Finish the log."""
        if self._log is not None:
            self._log.close()


class _Peer(asyncio.Protocol):
    """One client's connection: requests one after another, keep-alive."""

    def __init__(self, server: TruthServer) -> None:
        self._server = server
        self._pending = bytearray()
        self._busy = False
        self._received_ns = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self._received_ns = _now_ns()
        self._pending += data
        if not self._busy:
            self._server.arrived(self)

    def finished(self) -> None:
        """The answer is out; the next request may be here already."""
        self._busy = False
        if self._pending:
            self._server.arrived(self)

    def look(self) -> None:
        """Take up the next request where it is here in full."""
        if self._busy:
            return
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._pending[:end]).decode("latin-1").split("\r\n")
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        length = int(fields.get("content-length", "0"))
        if len(self._pending) < end + 4 + length:
            return
        body = bytes(self._pending[end + 4 : end + 4 + length])
        del self._pending[: end + 4 + length]
        path = head[0].split(" ")[1]
        if path.endswith("/tokenize"):
            self._tokenize(body)
        elif path.endswith("/completions"):
            self._busy = True
            chat = path.endswith("/chat/completions")
            fields_wanted = msgspec.json.decode(body)
            request_id = fields.get("x-request-id", "")
            self._server.play(self, request_id, fields_wanted, chat, self._received_ns)
        elif path.endswith("/models"):
            self._plain(b"200 OK", b'{"object":"list","data":[{"id":"truth","object":"model"}]}')
        else:
            self._plain(b"200 OK" if path == "/health" else b"404 Not Found", b"{}")

    def _tokenize(self, body: bytes) -> None:
        """Words are tokens here, and a chat template adds seven."""
        count = count_prompt(msgspec.json.decode(body))
        self._plain(b"200 OK", msgspec.json.encode({"count": count, "max_model_len": 1 << 20}))

    def _plain(self, status: bytes, body: bytes) -> None:
        if self.transport is not None:
            self.transport.write(
                b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )


async def serve(
    settings: Settings, port: int, log: Path | None, context: ssl.SSLContext | None
) -> None:
    """Serve until SIGTERM or SIGINT; prints ``{"port": N}`` once it listens on 127.0.0.1."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = TruthServer(settings, log)
    listener = await loop.create_server(
        lambda: _Peer(server), "127.0.0.1", port, backlog=4096, ssl=context
    )
    print(msgspec.json.encode({"port": listener.sockets[0].getsockname()[1]}).decode(), flush=True)
    gc.freeze()
    gc.disable()
    await stop.wait()
    listener.close()
    server.close()


def main(argv: list[str] | None = None) -> int:
    """Command line of the truth server."""
    parser = argparse.ArgumentParser(prog="kvgate.load.truth", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-s", type=float, default=0.2)
    parser.add_argument("--gap-s", type=float, default=0.01)
    parser.add_argument("--tokens", type=int, help="default: what the request asks for")
    parser.add_argument("--log", type=Path, help="truth records as JSON lines")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    parser.add_argument(
        "--misbehave", action="append", default=[], metavar="KIND=SHARE", help=", ".join(KINDS)
    )
    args = parser.parse_args(argv)
    faults: dict[str, float] = {}
    for text in args.misbehave:
        kind, _, share = text.partition("=")
        if kind not in KINDS:
            parser.error(f"no such misbehaviour: {kind} (one of {', '.join(KINDS)})")
        faults[kind] = float(share or 1)
    context = None
    if args.tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*args.tls)
    settings = Settings(ttft_s=args.ttft_s, gap_s=args.gap_s, tokens=args.tokens, misbehave=faults)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(settings, args.port, args.log, context))
    return 0


if __name__ == "__main__":
    sys.exit(main())
