"""judge, report: what can be said of sealed evidence, offline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.shown import document, note, say
from kvgate.errors import EXIT_INVALID, EXIT_PASS, CannotMeasure, KvgateError, UsageError

if TYPE_CHECKING:
    from kvgate.adjudicate import Judged

BundlePath = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of one gate run.")]
_MARKS = ("state.json", "manifest.json", "campaign.json", "contract.toml")


class Lang(StrEnum):
    """Languages of a report."""

    EN = "en"
    ZH = "zh"
    BOTH = "both"


class Format(StrEnum):
    """Forms of a report."""

    PDF = "pdf"
    HTML = "html"
    JUNIT = "junit"
    CSV = "csv"


def require_bundle(path: Path) -> Path:
    """``path`` where it looks like a bundle; raises UsageError naming what to give instead."""
    if not path.exists():
        raise UsageError("no such folder", where=str(path), remedy="give the folder of a bundle")
    if not path.is_dir():
        raise UsageError("not a folder", where=str(path), remedy="give the folder of a bundle")
    if any((path / name).is_file() for name in _MARKS):
        return path
    runs = sorted(p.name for p in path.iterdir() if p.is_dir() and (p / "campaign.json").is_file())
    remedy = f"it holds runs: give one of {', '.join(runs)}" if runs else "see var/campaigns/"
    raise UsageError("no evidence bundle here", where=str(path), remedy=remedy)


def judged_bundle(path: Path) -> Judged:
    """The bundle with its recomputed verdict; whatever a stranger put into it is one line.

    Raises CannotMeasure or UsageError.
    """
    from kvgate.adjudicate import adjudicate

    require_bundle(path)
    try:
        return adjudicate(path)
    except (KvgateError, OSError):
        raise
    except Exception as error:
        # Evidence comes from strangers: what no rule foresaw is still only unusable evidence.
        raise CannotMeasure(
            f"the evidence cannot be judged: {type(error).__name__}: {str(error)[:200]}",
            where=str(path),
            remedy="kvgate verify lists what was changed",
        ) from error


def stored_verdict(judged: Judged) -> str:
    """Whether the stored verdict is the recomputed one: "identical", "differs" or "absent"."""
    path = judged.bundle.root / "verdict.json"
    if not path.is_file():
        return "absent"
    return "identical" if path.read_bytes() == judged.verdict_json else "differs"


def judge_command(
    bundle: BundlePath,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the bytes of verdict.json only.")
    ] = False,
) -> None:
    """Recompute the verdict from the bundle alone.

    Exit code 0 PASS, 1 FAIL, 10 INCONCLUSIVE, 11 INVALID. A bundle that is not sealed, that is no
    longer what was sealed, or whose stored verdict differs, never ends with 0.
    """
    from kvgate.commands.stop_words import clause_word, stop_lines
    from kvgate.evidence.verify import verify

    judged = judged_bundle(bundle)
    verdict, stored = judged.verdict, stored_verdict(judged)
    same = {
        "identical": "the stored verdict is byte-identical",
        "differs": "the stored verdict DIFFERS from the recomputed one",
        "absent": "no verdict is stored",
    }[stored]
    sealed = judged.bundle.state == "sealed" and judged.bundle.partial_reason is None
    if json_output:
        document(verdict)
        note(same)
    else:
        mark = "  [REHEARSAL: simulated, never acceptance evidence]" * verdict.rehearsal
        say(f"G{verdict.gate}  {verdict.verdict}  {verdict.decision or 'no decision'}{mark}")
        say(f"    {verdict.reason}; {verdict.decision_reason}")
        for clause in verdict.clauses:
            say(f"    {clause.clause}  {clause_word(clause)}  {clause.reason}")
        for line in stop_lines(verdict):
            say(f"    {line}")
        by = "judged" if stored != "absent" else "measured"
        say(f"{same} ({by} by kvgate {judged.campaign.kvgate_version})")
    if not sealed:
        why = judged.bundle.partial_reason or f"its state is {judged.bundle.state}"
        note(f"{bundle}: the bundle is not a whole sealed one ({why}): it counts for nothing")
    problems = verify(bundle) if sealed else []
    if problems:
        note(f"{bundle}: not what was sealed: {problems[0]} -- kvgate verify {bundle} lists all")
    code = verdict.exit_code
    if stored == "differs" or (
        code == EXIT_PASS and (not sealed or problems or stored == "absent")
    ):
        code = EXIT_INVALID
    raise typer.Exit(code)


def report_command(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="Gate runs.")],
    lang: Annotated[Lang, typer.Option(help="Language.")] = Lang.BOTH,
    format_: Annotated[
        list[Format] | None, typer.Option("--format", help="May be given several times.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder (default: reports/ beside the bundles).")
    ] = None,
) -> None:
    """Render the report of one or more gate runs: PDF, HTML, JUnit, CSV of the blocks.

    PDF and HTML hold all the bundles in one document; JUnit and CSV are one file per bundle. A run
    that was broken off after its measurement had ended is judged and sealed first.
    """
    from kvgate.conduct.finish import finish, has_ended, in_its_campaign
    from kvgate.conduct.workspace import Workspace
    from kvgate.evidence.verify import verify
    from kvgate.report import blocks_csv, render_html, render_junit, render_pdf
    from kvgate.report.publish import report_input
    from kvgate.report.render import write_file

    copies = set()
    for path in bundles:
        if not has_ended(require_bundle(path)):
            continue
        if not in_its_campaign(path):
            copies.add(path)
            continue
        finish(path)
        note(f"{path}: was measured to its end and not sealed: it is judged and sealed now")
    all_judged = [judged_bundle(path) for path in bundles]
    for path, judged in zip(bundles, all_judged, strict=True):
        if path in copies:
            note(
                f"{path}: not sealed, and not in the campaign that opened it: the report is of a "
                "run that counts for nothing; run `kvgate report` on it there, which seals it"
            )
        elif judged.bundle.manifest is None:
            note(f"{path}: not sealed: the report is of a run that counts for nothing")
        elif problems := verify(path):
            raise CannotMeasure(
                f"the bundle is not what was sealed: {problems[0]}",
                where=str(path),
                remedy=f"kvgate verify {path} lists every difference",
            )
        elif stored_verdict(judged) != "identical":
            note(f"{path}: this version judges otherwise than the stored verdict says")
    folder = out or bundles[0].resolve().parent / "reports"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"no reports can be put there: {error.strerror}",
            where=str(folder),
            remedy="name another folder with --out",
        ) from error
    items = [report_input(j, Workspace(j.bundle.root.resolve().parent).history())
             for j in all_judged]  # fmt: skip
    name = "+".join(path.resolve().name for path in bundles)
    languages = ("en", "zh") if lang is Lang.BOTH else (lang.value,)
    for form in dict.fromkeys(format_ or [Format.PDF]):
        if form is Format.PDF:
            for code in languages:
                say(str(render_pdf(items, code, folder / f"{name}.{code}.pdf")))
        elif form is Format.HTML:
            for code in languages:
                say(str(render_html(items, code, folder / f"{name}.{code}.html")))
        else:
            for path, judged in zip(bundles, all_judged, strict=True):
                junit = form is Format.JUNIT
                file = folder / f"{path.resolve().name}{'.junit.xml' if junit else '.blocks.csv'}"
                if junit:
                    data = render_junit(judged.verdict, judged.bundle.manifest_sha256)
                else:
                    data = blocks_csv(judged.analysis)
                say(str(write_file(file, data)))
