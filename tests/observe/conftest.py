"""Metrics servers of the test itself, on a free port of the loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

Answer = Callable[[socket.socket, threading.Event], None]


class MetricsServer:
    """Answers each connection with ``answer(connection, closing)``; ``looks`` counts them."""

    def __init__(self) -> None:
        self.answer: Answer = page("up 1\n")
        self.looks = 0
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=[connection], daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(4096)
            self.looks += 1
            self.answer(connection, self._closing)

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()


def raw(data: bytes) -> Answer:
    """Answer with these very bytes, then close."""
    return lambda connection, closing: connection.sendall(data)


def page(text: str) -> Answer:
    """Answer with a metrics page."""
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return raw(head.encode() + body)


def silence(connection: socket.socket, closing: threading.Event) -> None:
    """Never answer, until the test ends."""
    closing.wait(30)


def drip(connection: socket.socket, closing: threading.Event) -> None:
    """A byte now and then, never an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not closing.wait(0.02):
        connection.sendall(b"#")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """A metrics server that is closed at the end of the test."""
    server = MetricsServer()
    try:
        yield server
    finally:
        server.close()
