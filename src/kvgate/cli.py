"""``kvgate``: plan, judge, verify, report, load and what surrounds them.

Exit codes: 0 PASS or done, 1 FAIL, 2 wrong usage, 10 INCONCLUSIVE, 11 INVALID or cannot measure.
An error is one line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kvgate import __version__
from kvgate.commands import (
    bundles,
    campaigns,
    contracts,
    imports,
    machine,
    plan,
    schemas,
    verification,
)
from kvgate.commands.shown import note, say
from kvgate.errors import EXIT_INVALID, EXIT_PASS, EXIT_USAGE, KvgateError

LOAD = "load"
_WRONG_PATH = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def application(*, with_load: bool = True) -> typer.Typer:
    """The commands. ``load`` brings the client's modules, so it can be left out."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",  # paragraphs are set to the terminal's width
        help="Gated acceptance testing for KV cache appliances.",
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    app.command("plan")(plan.plan_command)
    app.command("judge")(bundles.judge_command)
    app.command("verify")(verification.verify_command)
    app.command("sign")(verification.sign_command)
    app.command("schema")(schemas.schema_command)
    app.command("report")(bundles.report_command)
    app.command("import")(imports.import_command)
    app.add_typer(contracts.app, name="contract")
    app.add_typer(campaigns.app, name="campaign")
    app.command("doctor")(machine.doctor_command)
    app.command("faults")(machine.faults_command)
    if with_load:
        from kvgate.commands.load import load_command

        app.command(LOAD)(load_command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        say(f"kvgate {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and leave.")
    ] = False,
) -> None:
    """Gated acceptance testing for KV cache appliances."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kvgate`` with these arguments (default: the process's); returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    others = {
        "plan", "judge", "verify", "sign", "report", "import", "contract", "campaign", "doctor",
        "faults", "schema",
    }  # fmt: skip
    app = application(with_load=not given or given[0] not in others)
    try:
        code = app(given, prog_name="kvgate", standalone_mode=False)
        sys.stdout.flush()
    except KvgateError as fault:
        note(str(fault))
        return fault.exit_code
    except BrokenPipeError:
        # The reader has seen enough (kvgate ... | head); nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INVALID
    except OSError as fault:
        place = f"{fault.filename}: " if fault.filename else ""
        note(f"{place}{fault.strerror or fault} -- check the path, its permissions and the disk")
        return EXIT_USAGE if isinstance(fault, _WRONG_PATH) else EXIT_INVALID
    except RecursionError:
        note("the input is nested too deeply to be a contract or evidence")
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        note("stopped")
        return EXIT_INVALID
    except Exception as fault:
        # The option parser's own complaints: Typer gives them no public base class.
        told = getattr(fault, "format_message", None)
        if told is None:
            raise
        message = str(told())
        if message:  # empty where the help was shown instead
            note(_parser_line(message, getattr(fault, "ctx", None)))
        return EXIT_USAGE
    return code if isinstance(code, int) else EXIT_PASS


def _parser_line(message: str, context: object) -> str:
    path = getattr(context, "command_path", "kvgate")
    told = " ".join(message.split()).replace(": Value error, ", ": ")
    return f"{told} -- {path} --help lists what it takes"


if __name__ == "__main__":
    raise SystemExit(main())
