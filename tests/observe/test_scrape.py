"""A look at a metrics page ends in its time, with a page or with a reason."""

from __future__ import annotations

import socket
import time

import pytest

from kvgate.observe import scrape as scrape_module
from kvgate.observe.exposition import latest, parse, series, total
from kvgate.observe.scrape import scrape

from .conftest import Answer, MetricsServer, drip, page, raw, silence


def test_a_page_becomes_samples_stamped_on_the_monotonic_clock(server: MetricsServer) -> None:
    server.answer = page('a_total{x="1"} 5\nb 2.5\n')
    before_ns = time.monotonic_ns()
    look = scrape(server.url, 5.0)
    assert look.error is None and look.samples is not None
    assert [(s.name, dict(s.labels), s.value) for s in look.samples] == [
        ("a_total", {"x": "1"}, 5.0),
        ("b", {}, 2.5),
    ]
    assert before_ns <= look.monotonic_ns <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (raw(b"HTTP/1.1 500 Oops\r\n\r\n"), "HTTP 500"),
        (raw(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n"), "HTTP 302"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1\n"), "broke off"),
        (raw(b""), "no HTTP"),
        (raw(b"SSH-2.0-x\r\n"), "no HTTP"),
        (page(""), "empty"),
        (page("# only a comment\n"), "empty"),
        (page("<html>not metrics</html>"), "not Prometheus"),
        (page("a 1\nb broken\n"), "not Prometheus"),
        (raw(b"HTTP/1.1 200 OK\r\n\r\na \xff 1\n"), "decode"),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na"), "chunked"),
    ],
    ids=["500", "redirect", "cut", "nothing", "other", "empty", "comment", "html", "half", "bytes",
         "chunked"],
)  # fmt: skip
def test_what_is_no_whole_page_is_an_error_and_no_sample(
    server: MetricsServer, answer: Answer, told: str
) -> None:
    server.answer = answer
    look = scrape(server.url, 5.0)
    assert look.samples is None
    assert look.error is not None and told in look.error


@pytest.mark.parametrize("answer", [silence, drip])
def test_a_server_that_hangs_or_drips_is_left_after_the_time_out(
    server: MetricsServer, answer: Answer
) -> None:
    server.answer = answer
    look = scrape(server.url, 0.2)
    assert look.samples is None
    assert look.error == "no whole page in 0.2 s"


def test_a_page_without_end_is_refused(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape_module, "MAX_PAGE_BYTES", 1000)
    server.answer = page("a 1\n" * 1000)
    assert "larger" in (scrape(server.url, 5.0).error or "")


def test_a_closed_port_and_a_bad_address_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "refused" in (scrape(f"http://127.0.0.1:{port}/metrics", 1.0).error or "")
    for url in ("ftp://127.0.0.1/", "nonsense", "http://127.0.0.1:99999/", "http://127.0.0.1/a b"):
        assert scrape(url, 1.0).error


def test_proxies_of_the_environment_are_not_used(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert scrape(server.url, 5.0).ok


@pytest.mark.parametrize(
    "lines",
    [["c_total NaN"], ["c_total +Inf"], ["c_total -5"], ["c_total 1e300"],
     ["c_total 5", "c_total 6"], ['c_total{a="1"} 1e308', 'c_total{a="2"} 1e308'],
     ["c_total " + "9" * 5000]],
)  # fmt: skip
def test_a_number_that_is_no_count_is_missing(lines: list[str]) -> None:
    found = series(parse("\n".join(lines) + "\n"), "c")
    assert found
    assert total(found) is None
    if len(lines) == 1:
        assert latest(found) is None


def test_a_line_that_would_take_seconds_to_read_is_no_page() -> None:
    labels = ",".join(f'a{i}="1"' for i in range(100_000))
    with pytest.raises(ValueError, match="a line of"):
        parse(f"c_total{{{labels}}} 1\n")
