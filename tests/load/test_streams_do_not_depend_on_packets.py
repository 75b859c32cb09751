"""However a byte stream is cut on its way, the parsers say the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.load.http import ResponseReader
from kvgate.load.sse import EventReader

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.one_of(
    st.builds(lambda b: b"data: " + b, st.binary(max_size=8)),
    st.builds(lambda b: b"data:" + b, st.binary(max_size=4)),
    st.sampled_from([b"", b"", b"", b": note", b"event: error", b"id: 7", b"data", b"retry: 1"]),
)


@st.composite
def cuts(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """A byte string in pieces."""
    places = draw(st.lists(st.integers(0, len(whole)), max_size=12).map(sorted))
    edges = [0, *places, len(whole)]
    return [whole[a:b] for a, b in pairwise(edges)]


def _events(pieces: list[bytes]) -> tuple[list[bytes], bytes | None]:
    reader = EventReader()
    found = [event for piece in pieces for event in reader.feed(piece)]
    return found, reader.named_error


def _reference(whole: bytes) -> list[bytes]:
    """The events by the letter of the specification, from the whole stream at once."""
    text = whole.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[bytes] = []
    data: list[bytes] = []
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data:
                events.append(b"\n".join(data))
            data = []
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value[1:] if value.startswith(b" ") else value)
    return events


@settings(deadline=None)
@given(st.data())
def test_events_are_the_same_for_any_split(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.tuples(LINES, LINE_ENDS), max_size=20))
    start = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    whole = start + b"".join(line + end for line, end in parts)
    pieces = data.draw(cuts(whole))
    assert _events(pieces) == _events([whole])
    assert _events(pieces)[0] == _reference(whole)


@settings(deadline=None)
@given(st.data())
def test_engine_like_events_are_the_same_for_any_split(data: st.DataObject) -> None:
    payloads = data.draw(st.lists(st.binary(max_size=20).filter(_no_line_end), max_size=8))
    whole = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
    assert _events(data.draw(cuts(whole)))[0] == payloads


def _no_line_end(data: bytes) -> bool:
    return b"\n" not in data and b"\r" not in data


@settings(deadline=None)
@given(st.data())
def test_a_chunked_body_is_the_same_for_any_split(data: st.DataObject) -> None:
    chunks = data.draw(st.lists(st.binary(min_size=1, max_size=30), max_size=6))
    extension = data.draw(st.sampled_from([b"", b";name=value", b" "]))
    trailer = data.draw(st.sampled_from([b"", b"X-Sum: 1\r\n"]))
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole += b"".join(b"%X%b\r\n%b\r\n" % (len(c), extension, c) for c in chunks)
    whole += b"0\r\n" + trailer + b"\r\n"
    reader = ResponseReader()
    body = b"".join(reader.feed(piece) for piece in data.draw(cuts(whole)) if piece)
    assert body == b"".join(chunks)
    assert reader.complete
    assert reader.keep_alive
