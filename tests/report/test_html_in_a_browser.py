"""The HTML twin where people meet it: in a browser, without network, by hand and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate.report import render_html

from . import example
from .browser import Page, browser, chromium

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium here: apt-get install chromium (CI installs it)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    assert PROGRAM is not None
    with browser(PROGRAM, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("html")
    stop = [example.gate3("fail")]
    four = [example.gate1(failing=True, hosts=8), example.gate2(), *stop, example.gate4(gap=True)]
    return {
        "stop": render_html(stop, "en", folder / "stop.html"),
        "stop zh": render_html(stop, "zh", folder / "stop.zh.html"),
        "campaign": render_html(four, "en", folder / "campaign.html"),
    }


BLOCKS = "document.querySelector('table.blocks')"


def column(page: Page, table: str, n: int) -> list[str]:
    found: list[str] = page.run(
        f"[...{table}.tBodies[0].rows].filter(r => !r.hidden)"
        f".map(r => r.cells[{n}].textContent.trim())"
    )
    return found


@pytest.mark.parametrize("name", ["stop", "stop zh", "campaign"])
def test_the_browser_has_nothing_to_complain_of(
    page: Page, files: dict[str, Path], name: str
) -> None:
    page.complaints.clear()
    page.open(files[name])
    assert page.run("document.documentElement.classList.contains('scripted')") is True
    assert page.complaints == []


def test_the_policy_lets_no_other_script_run(page: Page, files: dict[str, Path]) -> None:
    page.open(files["stop"])
    page.run(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); })()"
    )
    assert page.run("window.ran === undefined") is True


def test_a_column_sorts_up_down_and_back_by_its_numbers(page: Page, files: dict[str, Path]) -> None:
    page.open(files["stop"])
    given = column(page, BLOCKS, 6)
    press = f"{BLOCKS}.tHead.rows[0].cells[6].querySelector('button').click()"
    head = f"{BLOCKS}.tHead.rows[0].cells[6].getAttribute('aria-sort')"
    page.run(press)
    up = column(page, BLOCKS, 6)
    assert up == sorted(given, key=float)
    assert page.run(head) == "ascending"
    page.run(press)
    assert column(page, BLOCKS, 6) == sorted(given, key=float, reverse=True)
    assert page.run(head) == "descending"
    page.run(press)
    assert column(page, BLOCKS, 6) == given
    assert page.run(head) is None


def test_units_are_understood_when_sorting(page: Page, files: dict[str, Path]) -> None:
    page.open(files["stop"])
    table = "document.querySelector('table.files')"
    page.run(f"{table}.tBodies[0].rows[3].cells[1].textContent = '1.2 MB'")
    page.run(f"{table}.tBodies[0].rows[5].cells[1].textContent = '812 B'")
    page.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    sizes = column(page, table, 1)
    assert (sizes[0], sizes[-1]) == ("812 B", "1.2 MB")


def test_the_keyboard_alone_sorts_and_filters(page: Page, files: dict[str, Path]) -> None:
    page.open(files["stop"])
    page.run(f"{BLOCKS}.tHead.rows[0].cells[0].querySelector('button').focus()")
    page.key("Enter")
    assert page.run(f"{BLOCKS}.tHead.rows[0].cells[0].getAttribute('aria-sort')") == "ascending"
    page.run(f"{BLOCKS}.previousElementSibling.querySelector('input').focus()")
    page.type("restore baseline")
    left = column(page, BLOCKS, 4)
    assert left
    assert all("restore" in cell for cell in left)
    assert set(column(page, BLOCKS, 3)) == {"baseline"}
    total = page.run(f"{BLOCKS}.tBodies[0].rows.length")
    said = page.run(f"{BLOCKS}.previousElementSibling.querySelector('output').textContent")
    assert said == f"{len(left)} of {total} rows"
    page.key("Escape")
    assert len(column(page, BLOCKS, 4)) == total


def test_a_chart_says_its_values_under_pointer_and_keys(page: Page, files: dict[str, Path]) -> None:
    page.open(files["stop"])
    tip = "document.querySelector('.tip')"
    assert page.run(f"{tip}.hidden") is True
    x, y = page.run(
        "(() => { const m = document.querySelector('figure circle[data-said]');"
        " m.scrollIntoView({block: 'center'}); const b = m.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    page.move(x, y)
    assert page.run(f"{tip}.hidden") is False
    assert "%" in page.run(f"{tip}.textContent")
    page.move(1, 1)
    page.run("document.querySelector('svg.chart').focus()")
    page.key("ArrowRight")
    first = page.run(f"{tip}.textContent")
    page.key("ArrowRight")
    assert page.run(f"{tip}.hidden") is False
    assert page.run(f"{tip}.textContent") != first
    page.key("Escape")
    assert page.run(f"{tip}.hidden") is True


@pytest.mark.parametrize("name", ["stop", "stop zh", "campaign"])
def test_nothing_overflows_a_narrow_screen(page: Page, files: dict[str, Path], name: str) -> None:
    page.open(files[name], width=360)
    wide = page.run(
        "[...document.querySelectorAll('body *')].filter(e => {"
        " if (e.closest('svg') && !e.matches('svg')) return false;"
        " const held = e.parentElement.closest('table.data, figure');"
        " return !held && e.getBoundingClientRect().right > 360.5; })"
        ".map(e => e.tagName + '.' + e.className).slice(0, 5)"
    )
    assert page.run("document.documentElement.scrollWidth") <= 360, wide
    assert wide == []


def test_dark_turns_paper_ink_and_charts(page: Page, files: dict[str, Path]) -> None:
    def luminance(script: str) -> float:
        colour = page.run(script)
        parts = colour[colour.index("(") + 1 : -1].split(",")[:3]
        return sum(w * float(c) for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('h2[id]')).color"
    grid = "getComputedStyle(document.querySelector('svg.chart line')).stroke"
    page.open(files["stop"])
    light = [luminance(s) for s in (paper, ink, grid)]
    page.open(files["stop"], dark=True)
    dark = [luminance(s) for s in (paper, ink, grid)]
    assert light[0] > 240
    assert light[1] < 60
    assert dark[0] < 40
    assert dark[1] > 200
    assert dark[2] < light[2]
    left = page.run(
        "[...document.querySelectorAll('svg.chart *')].filter(e => ['fill', 'stroke']"
        ".some(a => (e.getAttribute(a) || '').startsWith('#'))).length"
    )
    assert left == 0, "a colour of a chart does not follow the reader's setting"
