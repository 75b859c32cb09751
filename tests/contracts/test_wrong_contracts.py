"""A wrong contract is one line with file, line and what is wrong; never another exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.contract import load_contract, parse_contract
from kvgate.errors import UsageError

from .conftest import REHEARSAL

TEXT = REHEARSAL.read_text()
LINES = TEXT.splitlines(keepends=True)


def line_of(needle: str, text: str = TEXT, nth: int = 0) -> int:
    """1-based number of the nth line that holds ``needle``."""
    return [i for i, s in enumerate(text.splitlines(), 1) if needle in s][nth]


def refused(text: str | bytes) -> UsageError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(UsageError) as caught:
        parse_contract(data, name="c.toml")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def changed(old: str, new: str, nth: int = 0) -> tuple[str, int]:
    """The contract with one occurrence replaced, and the line where it stands."""
    number = line_of(old, nth=nth)
    lines = TEXT.splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(old, new)
    return "".join(lines), number


@pytest.mark.parametrize(
    ("old", "new", "nth", "said"),
    [
        ("drop_at_least = 0.25", "drop_at_leest = 0.25", 0, "unknown key"),
        ("drop_at_least = 0.25", "drop_at_least = 25", 0, "write 0.25 for 25 %"),
        ("consumer = 0.05", "consumer = 5", 0, "write 0.25 for 25 %"),
        ("consumer = 0.05", "consumer = true", 0, "number"),
        ('unit = "bit/s"', 'unit = "Gbit/s"', 0, "measured in 'bit/s'"),
        ('metric = "ttft"', 'metric = "ttfb"', 0, "unknown metric 'ttfb'"),
        ('arm = "appliance"', 'arm = "applliance"', 0, "unknown arm 'applliance'"),
        ('id = "G3.2"', 'id = "G3.1"', 0, "clause G3.1 stands twice"),
        ('id = "G3.2"', 'id = "G2.9"', 0, "clause G2.9 stands in gate 3"),
        ('id = "G3.2"', 'id = "third"', 0, 'gate and number, as "G3.1"'),
        ('id = "rehearsal"', 'id = "My Lab"', 0, "a name of small letters"),
        ("deadline_day = 49", "deadline_day = 14", 0, "day 14 is before the gate before's, day 21"),
        ("deadline_day = 70", "deadline_day = 71", 0, "the campaign ends on day 70"),
        ('serials = ["SIM-FX100-0001"]', "serials = []", 0, "must not be empty"),
        ('seed = "', 'seed = ""  # "', 0, "at least 1 character"),
        ("weeks = 10", "weeks = 0", 0, "greater than 0"),
        ("design_effect = 0.30", "design_effect = 0.25", 0, "design_effect must lie above"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(old: str, new: str, nth: int, said: str) -> None:
    text, number = changed(old, new, nth)
    fault = refused(text)
    assert said in fault.message
    name, line = fault.where.rsplit(":", 1)
    assert name == "c.toml"
    # A rule that spans keys is reported at its table; everything else at the key itself.
    assert int(line) == number or LINES[int(line) - 1].startswith("[[gate")
    assert number - 12 <= int(line) <= number
    assert fault.remedy


def test_a_list_whose_entries_are_all_wrong_is_not_called_empty() -> None:
    """As left behind by who replaced every ``id`` of the file at once."""
    lines = ['id = "my-lab"' if s.startswith("id = ") else s for s in TEXT.splitlines()]
    assert (
        'gate1.clause.0.id: must be gate and number, as "G3.1"' in refused("\n".join(lines)).message
    )


@pytest.mark.parametrize(
    ("key", "table"),
    [("metric = ", "[[gate1.clause]]"), ("title = ", ""), ("weeks = ", "[campaign]"),
     ("store = ", "[arms.recompute]"), ("kind = ", "[workloads.cold_restore]"),
     ("preemptions_at_most", "[validity]"), ("min_pairs", "[gate2.pairs]")],
)  # fmt: skip
def test_a_missing_key_is_named_at_its_table(key: str, table: str) -> None:
    start = line_of(table) if table else 1
    number = next(i for i in range(start, len(LINES)) if LINES[i].startswith(key))
    fault = refused("".join(LINES[:number] + LINES[number + 1 :]))
    assert "missing key" in fault.message
    assert key.split(" ")[0] in fault.message
    assert int(fault.where.rsplit(":", 1)[1]) in {start, 1}


@pytest.mark.parametrize("cells", ["cells = [", "reference_cells = ["])
def test_an_unknown_workload_of_a_plan_is_named(cells: str) -> None:
    number = line_of(cells)
    lines = list(LINES)
    for i in range(number - 1, number + 4):
        lines[i] = lines[i].replace('"cold_restore"', '"hot_restore"')
    message = refused("".join(lines)).message
    assert "unknown workload 'hot_restore'" in message or "is in no cell" in message


def test_an_unknown_workload_of_a_clause_is_in_no_plan() -> None:
    text, _ = changed('workload = "cold_restore"', 'workload = "hot"', nth=line_nth_in_gate3())
    assert "is in no cell of the gate's plan" in refused(text).message


def line_nth_in_gate3() -> int:
    start = line_of('id = "G3.1"')
    found = [i for i, s in enumerate(TEXT.splitlines(), 1) if 'workload = "cold_restore"' in s]
    return next(n for n, i in enumerate(found) if i > start)


@pytest.mark.parametrize("text", ["= 1\n", "[a\n", 'x = "', "a = 1\na = 2\n", "a = 2026-13-01\n"])
def test_what_is_not_toml_says_the_line(text: str) -> None:
    fault = refused(f"schema = 1\n{text}")
    assert "not TOML" in fault.message
    assert "at line" in fault.message or "end of document" in fault.message


def test_what_is_not_utf8_is_said() -> None:
    assert "UTF-8" in refused(b"\xff\xfe\x00").message


def test_dates_and_empty_files_are_refused_like_anything_else() -> None:
    assert refused("").message
    text, _ = changed('currency = "CNY"', "currency = 2026-01-01T00:00:00Z")
    load = parse_contract(text.encode(), name="c.toml")  # a date is text to JSON, and harmless
    assert load.campaign.currency.startswith("2026")


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=len(LINES) - 1))
def test_without_any_one_line_it_still_loads_or_is_refused_in_one_line(number: int) -> None:
    data = "".join(LINES[:number] + LINES[number + 1 :]).encode()
    try:
        parse_contract(data, name="c.toml")
    except UsageError as fault:
        assert "\n" not in str(fault)
        assert "c.toml" in str(fault)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=len(LINES) - 1), st.text(max_size=20))
def test_any_text_in_place_of_a_line_loads_or_is_refused_in_one_line(
    number: int, junk: str
) -> None:
    data = "".join([*LINES[:number], junk, "\n", *LINES[number + 1 :]]).encode()
    try:
        parse_contract(data, name="c.toml")
    except UsageError as fault:
        assert "\n" not in str(fault)


def test_a_comment_keeps_the_digest_and_a_number_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    digest = load_contract(REHEARSAL).digest

    def of(text: str) -> str:
        path.write_text(text)
        return load_contract(path).digest

    assert of(TEXT) == digest
    assert (
        of(f"# a remark\n\n{TEXT}".replace("consumer = 0.05", "consumer   =  0.050 # five"))
        == digest
    )
    assert of(TEXT.replace("drop_at_least = 0.25", "drop_at_least = 0.26")) != digest
    assert of(TEXT.replace("consumer = 0.05", "consumer = 0.06")) != digest
    assert of(TEXT.replace("100e9", "99e9")) != digest
    assert of(TEXT.replace("min_pairs = 4", "min_pairs = 4\nnoise_carry_over = 0.3")) != digest


@pytest.mark.parametrize("guard", ["noise_carry_over = 1.0", "noise_carry_over = -0.1",
                                   "noise_sd_floor = -0.1", "noise_sd_floor = inf",
                                   "noise_sd_floor = nan", "noise_carry_over = nan"])  # fmt: skip
def test_a_guard_that_is_none_is_refused(guard: str) -> None:
    fault = refused(TEXT.replace("min_pairs = 4", f"{guard}\nmin_pairs = 4"))
    assert guard.split(" ")[0] in fault.message
