"""From inputs to a PDF or an HTML file: templates, fonts, no network, the same bytes every time."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kvgate.errors import CannotMeasure, UsageError
from kvgate.report.archive import attachments, write_archive
from kvgate.report.assets import assets_dir
from kvgate.report.glyphs import FONTS, check_coverage, visible
from kvgate.report.inputs import ReportInput
from kvgate.report.pages import report_view
from kvgate.report.palette import for_paper, for_screen
from kvgate.report.svg import icon
from kvgate.report.tables import CAP, PAPER_FILES
from kvgate.report.texts import LANGUAGES, Texts, texts
from kvgate.report.webfonts import FONT_PLACE, web_fonts
from kvgate.verdict import Verdict

SCHEME: Final = "kvgate-asset:"
"""Addresses of our own files in style sheets; every other address is refused."""


SCREEN_WORDS: Final = ("sort", "filter", "rows", "arrows")


def _html(inputs: Sequence[ReportInput], lang: str, template: str) -> str:
    if not inputs:
        raise UsageError("a report needs at least one judged gate")
    t = texts(lang)

    view = report_view(inputs, t)
    html = (
        _environment(lang)
        .get_template(template)
        .render(
            t=t,
            r=view,
            fonts=[(name, family, weight) for name, (family, weight) in FONTS.items()],
            scheme=SCHEME,
            sec=functools.partial(next, map(str, itertools.count(1))),
            cap=CAP,
            paper_files=PAPER_FILES,
            icons={v.value: icon(v) for v in Verdict},
            font_place=Markup(FONT_PLACE),  # noqa: S704 - a constant
            **(_script(t) if template == "web.html.j2" else {}),
        )
    )
    for verdict in Verdict:  # what a screen reader says of an icon
        html = html.replace(f'aria-label="{verdict}"', f'aria-label="{t(f"verdict.{verdict}")}"')
    return html


@functools.lru_cache(maxsize=len(LANGUAGES))
def _environment(lang: str) -> Environment:
    """The templates of one language, compiled once."""

    def shown(value: object) -> object:
        if isinstance(value, Markup):
            return value
        if value is None:
            raise TypeError("a template printed nothing where a value was expected")
        return visible(str(value), lang)

    environment = Environment(
        loader=FileSystemLoader(assets_dir() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["screen"] = lambda svg: Markup(for_screen(svg))  # noqa: S704
    environment.filters["paper"] = lambda svg: Markup(for_paper(svg))  # noqa: S704
    return environment


def _script(t: Texts) -> dict[str, Markup]:
    """The page's own script, the words it says, and the digest by which the page allows it and no
    other: what a hostile name might smuggle in would not run."""
    script = (assets_dir() / "templates" / "screen.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    said = json.dumps({key: t(f"screen.{key}") for key in SCREEN_WORDS}, ensure_ascii=False)
    # Our own file and our own words, both without "</".
    return {
        "script": Markup(script),  # noqa: S704
        "script_hash": Markup(f"sha256-{digest}"),  # noqa: S704
        "words": Markup(said),  # noqa: S704
    }


def render_html(inputs: Sequence[ReportInput], lang: str, out: Path) -> Path:
    """Write one self-contained HTML file in ``lang`` ("en" or "zh"); returns ``out``.

    Raises UsageError for no input or an unknown language, CannotMeasure when it cannot be written.
    """
    html = _html(inputs, lang, "web.html.j2")
    check_coverage(html)
    write_file(out, html.replace(FONT_PLACE, web_fonts(html), 1).encode())
    return out


def render_pdf(inputs: Sequence[ReportInput], lang: str, out: Path) -> Path:
    """Write the report as PDF/A-3a in ``lang`` ("en" or "zh"); returns ``out``.

    The same inputs give the same bytes. Verdict, manifest, contract and signatures are attached.
    Raises UsageError for no input or an unknown language; CannotMeasure for a character without a
    glyph, missing system libraries, or a file that cannot be written.
    """
    html = _html(inputs, lang, "pdf.html.j2")
    check_coverage(html)
    # Imported late, so that `python -m kvgate.report.system` runs a module not yet loaded.
    from kvgate.report.system import install_command, missing_system_libraries

    missing = missing_system_libraries()
    if missing and missing != ["libharfbuzz-subset0"]:
        raise CannotMeasure(
            f"the PDF needs system libraries: {', '.join(missing)}",
            remedy=install_command(missing),
        )
    write_file(out, _pdf(html, inputs))
    return out


def _pdf(html: str, inputs: Sequence[ReportInput]) -> bytes:
    import weasyprint

    document = weasyprint.HTML(string="", base_url=SCHEME, url_fetcher=_fetcher())
    # Our page is well-formed XML too, and the parser in C takes a hundredth of the time of the one
    # that forgives everything.
    root = ElementTree.fromstring(html.lstrip())  # noqa: S314 - our own page, nothing to expand
    document.wrapper_element = type(document.wrapper_element).from_html_root(root)
    document.etree_element = document.wrapper_element.etree_element
    return write_archive(document, attachments(inputs))


def _fetcher() -> Any:
    """A fetcher that knows our fonts and nothing else."""
    from weasyprint.urls import FatalURLFetchingError, URLFetcher, URLFetcherResponse

    class Assets(URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: dict[str, str] | None = None) -> Any:
            name = url.removeprefix(SCHEME)
            if url.startswith(SCHEME) and name in FONTS:
                body = (assets_dir() / "fonts" / name).read_bytes()
                return URLFetcherResponse(url, body, {"Content-Type": "font/ttf"})
            raise FatalURLFetchingError(f"a report reads nothing but its own fonts: {url!r}")

    return Assets()


def write_file(out: Path, data: bytes) -> Path:
    """Put ``data`` at ``out``, whole or not at all. Raises CannotMeasure where it cannot be."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(f".{out.name}.part")
        with part.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(out)
    except OSError as error:
        raise CannotMeasure(
            f"the report cannot be written: {error.strerror}",
            where=str(out),
            remedy="choose another place with --out or free the disk",
        ) from error
    return out
