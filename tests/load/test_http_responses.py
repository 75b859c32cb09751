"""HTTP/1.1: every way to frame a body, and every way to break it."""

from __future__ import annotations

import pytest

from kvgate.load.http import ProtocolFault, ResponseReader


def whole(reader: ResponseReader) -> bool:
    return reader.complete


def test_a_counted_body_ends_where_its_length_says() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab") == b"ab"
    assert not whole(reader)
    assert reader.feed(b"cd") == b"cd"
    assert whole(reader)
    assert reader.keep_alive


def test_a_body_without_a_length_ends_with_the_connection_and_only_then() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\nab")
    assert not whole(reader)
    reader.close()
    assert whole(reader)
    assert not reader.keep_alive


def test_a_chunked_body_cut_by_the_connection_is_not_complete() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
    reader.close()
    assert not whole(reader)


def test_an_interim_response_is_not_the_response() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    assert reader.status == 503
    assert whole(reader)


@pytest.mark.parametrize(
    "version", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n"]
)
def test_a_connection_that_closes_is_not_used_again(version: bytes) -> None:
    reader = ResponseReader()
    reader.feed(version + b"Content-Length: 0\r\n\r\n")
    assert not reader.keep_alive


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    ],
)
def test_what_is_no_http_is_named_and_not_guessed(wire: bytes) -> None:
    with pytest.raises(ProtocolFault):
        ResponseReader().feed(wire)


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 " + b"9" * 5000 + b" OK", b"HTTP/1.1 \xb200 OK", b"HTTP/1.1 20 OK",
     b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000,
     b"HTTP/1.1 200 OK\r\nContent-Length: \xb2", b"HTTP/1.1 200 OK\r\nContent-Length: -5"],
)  # fmt: skip
def test_a_number_that_cannot_be_one_is_a_fault_of_the_server(head: bytes) -> None:
    with pytest.raises(ProtocolFault):
        ResponseReader().feed(head + b"\r\n\r\n")
