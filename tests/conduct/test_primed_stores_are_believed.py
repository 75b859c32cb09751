"""After an interruption a store is primed again, unless the very process that acknowledged its
prompts still says that it holds them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate.conduct.block import Bench
from kvgate.conduct.prime import Primed, still_holds
from kvgate.contract import parse_contract
from kvgate.evidence.journal import Journal
from kvgate.progress import Silent

from .stage import contract_bytes, inventory

NOTED = Primed(1000, started_ms=1_700_000_000_000, stored=1000.0)


class Store:
    """A store's metrics page on a free port; every number is made up."""

    def __init__(self) -> None:
        self.page = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def says(self, *, stored: float = 1000, pending: float = 0, started: float = 1.7e9) -> None:
        self.page = (
            f"kvstore_stored_tokens_total {stored}\nkvstore_pending_bytes {pending}\n"
            f"process_start_time_seconds {started}\n"
        )

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                body = self.page.encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}"
                connection.sendall(head.encode() + b"\r\n\r\n" + body)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.close()


@pytest.fixture
def bench(tmp_path: Path, store: Store) -> Iterator[Bench]:
    contract = parse_contract(contract_bytes(), name="quick")
    place = inventory(store_ports={"appliance": store.port}, store_metrics="kvstore")
    with Journal(tmp_path / "g3-001") as journal:
        yield Bench(contract, place, 3, journal, tmp_path, Silent())


def test_the_process_that_acknowledged_is_believed(bench: Bench, store: Store) -> None:
    store.says()
    assert still_holds(bench, "appliance", NOTED)
    store.says(stored=2000)
    assert still_holds(bench, "appliance", NOTED)


@pytest.mark.parametrize("said", [
    {"started": 1.8e9}, {"stored": 999}, {"stored": 0}, {"pending": 1}, {"stored": float("nan")},
], ids=str)  # fmt: skip
def test_a_restarted_emptied_or_busy_store_is_primed_again(
    bench: Bench, store: Store, said: dict[str, float]
) -> None:
    store.says(**said)
    assert not still_holds(bench, "appliance", NOTED)


@pytest.mark.parametrize("noted", [
    Primed(1000), Primed(1000, started_ms=1_700_000_000_000), Primed(1000, stored=1000.0),
], ids=str)  # fmt: skip
def test_a_store_that_told_too_little_then_is_primed_again(
    bench: Bench, store: Store, noted: Primed
) -> None:
    store.says()
    assert not still_holds(bench, "appliance", noted)


def test_a_store_that_does_not_answer_is_primed_again(bench: Bench, store: Store) -> None:
    store.page = ""
    assert not still_holds(bench, "appliance", NOTED)
    store.close()
    assert not still_holds(bench, "appliance", NOTED)


@pytest.mark.parametrize("plain", [None, {}, {"tokens": None}, {"tokens": "many"}])
def test_a_note_without_tokens_is_none(plain: dict[str, object] | None) -> None:
    assert Primed.noted(plain) is None


def test_a_note_is_read_back_as_it_was() -> None:
    plain = {"tokens": 1000, "started_ms": 1_700_000_000_000, "stored": 1000.0}
    assert Primed.noted(plain) == NOTED
