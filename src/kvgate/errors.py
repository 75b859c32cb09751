"""The faults that kvgate reports to a person: one line, the place, the remedy.

An exception of this family means "could not measure" or "was asked wrongly"; it is never a FAIL of
the appliance.
"""

from __future__ import annotations

from typing import Final

EXIT_PASS: Final = 0
EXIT_FAIL: Final = 1
EXIT_USAGE: Final = 2
EXIT_INCONCLUSIVE: Final = 10
EXIT_INVALID: Final = 11


class KvgateError(Exception):
    """A fault with its place and its remedy.

    ``where`` is a file with line, a host, a URL or a port; ``remedy`` says what to do next. Both
    may be empty where there is nothing to say.
    """

    exit_code: int = EXIT_INVALID

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" -- {self.remedy}" if self.remedy else ""
        return " ".join(f"{place}{self.message}{remedy}".split())


class UsageError(KvgateError):
    """The command, contract or inventory is wrong; nothing was run. Remedy: correct it."""

    exit_code = EXIT_USAGE


class CannotMeasure(KvgateError):  # noqa: N818 - the word of the rules of judgement
    """Something kept us from measuring: host, engine, client, disk. Remedy: as the text says."""


class GateClosed(KvgateError):  # noqa: N818 - the word of the rules of judgement
    """The gate may not open: its predecessor has no sealed PASS, or the campaign has ended."""

    exit_code = EXIT_FAIL


class Interrupted(KvgateError):  # noqa: N818 - the word a person would use
    """Ctrl-C or SIGTERM arrived; what was measured is kept and marked partial."""
