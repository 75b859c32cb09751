"""Where the report's templates and fonts are: in the installed package or in the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvgate.errors import CannotMeasure

_HERE: Final = Path(__file__).resolve().parent


def assets_dir() -> Path:
    """The folder that holds ``templates/`` and ``fonts/``.

    A wheel carries it beside this module, a checkout has it as ``reports/`` at its root. Raises
    CannotMeasure when neither is there.
    """
    for folder in (_HERE / "assets", _HERE.parents[2] / "reports"):
        if (folder / "templates").is_dir() and (folder / "fonts").is_dir():
            return folder
    raise CannotMeasure(
        "the report's templates and fonts are missing",
        where=str(_HERE),
        remedy="install kvgate again; the wheel carries them",
    )
