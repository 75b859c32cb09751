"""The system libraries that WeasyPrint needs and no wheel can bring, checked before rendering.

``python -m kvgate.report.system`` prints the one command that installs what is missing and exits 1,
or exits 0 in silence. It imports no rendering code, so it works on a bare machine.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Callable
from typing import Final

LIBRARIES: Final = (
    ("gobject-2.0", "libgobject-2.0.so.0", "libglib2.0-0"),
    ("pango-1.0", "libpango-1.0.so.0", "libpango-1.0-0"),
    ("pangoft2-1.0", "libpangoft2-1.0.so.0", "libpangoft2-1.0-0"),
    ("fontconfig", "libfontconfig.so.1", "libfontconfig1"),
    ("harfbuzz", "libharfbuzz.so.0", "libharfbuzz0b"),
    # Without it fonts are cut down in Python, four times slower.
    ("harfbuzz-subset", "libharfbuzz-subset.so.0", "libharfbuzz-subset0"),
)
"""Linker name, soname, Debian package."""


def _loads(name: str, soname: str) -> bool:
    for candidate in (soname, ctypes.util.find_library(name)):
        if candidate is None:
            continue
        try:
            ctypes.CDLL(candidate)
        except OSError:
            continue
        return True
    return False


def missing_system_libraries(loads: Callable[[str, str], bool] = _loads) -> list[str]:
    """Debian packages of the libraries that cannot be loaded; empty when all are there."""
    return [package for name, soname, package in LIBRARIES if not loads(name, soname)]


def install_command(packages: list[str]) -> str:
    """The command a person types on Debian or Ubuntu."""
    return "apt-get install -y " + " ".join(packages)


def main() -> int:
    """Print the install command when something is missing; the exit status says whether it is."""
    missing = missing_system_libraries()
    if missing:
        sys.stdout.write(install_command(missing) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
