"""What is asked and when follows from seeds alone."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.errors import CannotMeasure, UsageError
from kvgate.load.arrivals import intended_times
from kvgate.load.histogram import Histogram
from kvgate.load.job import Closed, Constant, Poisson, read_job
from kvgate.load.prompts import ids_digest, prompt_text, prompt_tokens
from kvgate.load.requests import parse_url
from kvgate.load.texts import fetch_texts

from .conftest import Engine, MakeJob, run_job


def test_prompts_are_the_same_in_every_process() -> None:
    code = (
        "from kvgate.load.prompts import *; "
        "print(ids_digest(prompt_tokens('s', 'p', 3, 100, 10, 5000)), prompt_text('s', 'p', 3, 5))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    ).stdout.split(" ", 1)
    assert said[0] == ids_digest(prompt_tokens("s", "p", 3, 100, 10, 5000))
    assert said[1].strip() == prompt_text("s", "p", 3, 5)


def test_the_first_prompt_never_changes() -> None:
    # A pool primed by one version must be found again by the next.
    assert prompt_tokens("seed", "pool", 0, 4, 1000, 30000) == [14222, 18515, 18934, 15334]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 10**6), st.integers(1, 2**31))
def test_prompts_have_their_length_and_range(length: int, low: int, span: int) -> None:
    ids = prompt_tokens("s", "p", 0, length, low, low + span)
    assert len(ids) == length
    assert all(low <= i < low + span for i in ids)


def test_prompts_share_no_beginning_across_pools_indices_or_lengths() -> None:
    keys = [("s", "p", 0, 64), ("s", "p", 1, 64), ("s", "q", 0, 64), ("t", "p", 0, 64)]
    keys += [("s", "p", 0, 65), ("sp", "", 0, 64), ("", "sp", 0, 64)]
    starts = {tuple(prompt_tokens(*key, 0, 1000)[:16]) for key in keys}
    assert len(starts) == len(keys)


def test_ids_are_uniform_over_a_range_that_does_not_divide_the_words() -> None:
    # A range of 3/4 of the words: plain remainders would hit the lower third twice as often.
    span = 3 * 2**30
    ids = prompt_tokens("s", "p", 0, 30_000, 0, span)
    lower = sum(i < span // 3 for i in ids)
    assert abs(lower - 10_000) < 5 * (30_000 * 2 / 9) ** 0.5


def test_constant_arrivals_do_not_drift() -> None:
    times = list(islice(intended_times(Constant(3.0)), 3001))
    assert times[3000] == 1000 * 10**9


def test_poisson_arrivals_follow_from_their_seed_and_keep_the_rate() -> None:
    times = list(islice(intended_times(Poisson(50.0, "a")), 5000))
    assert times == list(islice(intended_times(Poisson(50.0, "a")), 5000))
    assert times != list(islice(intended_times(Poisson(50.0, "b")), 5000))
    assert times == sorted(times)
    assert times[-1] / 5000 == pytest.approx(10**9 / 50, rel=5 / 5000**0.5)


def test_fixed_concurrency_has_no_intended_times() -> None:
    with pytest.raises(ValueError, match="no intended times"):
        intended_times(Closed(1))


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 1))
def test_a_histograms_quantile_is_right_to_a_bucket(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    found = histogram.quantile_ns(share)
    assert found is not None
    assert exact <= found <= exact * 17 / 16 + 1
    assert histogram.max_ns == max(values)


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile_ns(0.5) is None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:8000", "/v1/completions"),
        ("http://h:8000/", "/v1/completions"),
        ("http://h:8000/v1/", "/v1/completions"),
        ("http://h:8000/proxy/v1", "/proxy/v1/completions"),
    ],
)
def test_a_base_url_may_end_anywhere(url: str, path: str) -> None:
    assert parse_url(url, "completions") == ("h", 8000, False, path)


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:99999", "http://h:x"])
def test_what_is_no_url_is_one_line(url: str) -> None:
    with pytest.raises(UsageError, match="not an http"):
        parse_url(url, "chat")


@pytest.mark.parametrize("text", ["", "{", "{}", '{"url": 3}', "null", '{"arrival": NaN}'])
def test_a_job_that_is_none_is_one_line_with_its_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"job\.json"):
        read_job(path)


def test_texts_have_exactly_the_asked_number_of_tokens(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    job = make_job(engine.url, requests=3, endpoint="chat", texts_path=str(texts))
    fetch_texts(job, texts)
    run = run_job(job, tmp_path)
    assert [r.prompt_tokens for r in run.records] == [8, 8, 8]
    assert len({r.prompt_digest for r in run.records}) == 3


def test_a_length_that_no_text_can_have_is_one_line(
    engine: Engine, make_job: MakeJob, tmp_path: Path
) -> None:
    # The simulated chat template alone has seven tokens.
    job = make_job(engine.url, endpoint="chat")
    job = type(job)(
        **{f: getattr(job, f) for f in job.__struct_fields__}
        | {"prompts": type(job.prompts)(seed="s", pool="p", count=1, tokens=3)}
    )
    with pytest.raises(CannotMeasure, match="no text of 3 tokens"):
        fetch_texts(job, tmp_path / "texts.jsonl")
