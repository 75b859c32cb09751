"""Empty the kernel's page cache of a store's files, and show that it is empty. Needs no root.

``posix_fadvise(DONTNEED)`` drops clean pages only, so each file is synced first; a page that is
just being written or read stays. What counts is therefore not that the call was made but what
``mincore`` says afterwards: how many of the files' pages are still resident.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class Residency:
    """How much of a folder's files the page cache holds. ``pages`` and ``resident_pages`` count
    pages of :data:`PAGE_BYTES`."""

    files: int
    bytes: int
    pages: int
    resident_pages: int


@dataclass(frozen=True, slots=True)
class Drop:
    before: Residency
    after: Residency

    @property
    def is_cold(self) -> bool:
        return self.after.resident_pages == 0


def resident_pages(path: Path) -> tuple[int, int]:
    """``(pages, resident pages)`` of one file, by ``mincore``. The mapping touches no page.

    Raises OSError when the file cannot be read or mapped.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0, 0
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            raise _os_error(path)
        try:
            pages = -(-size // PAGE_BYTES)
            flags = ctypes.create_string_buffer(pages)
            if _LIBC.mincore(address, size, flags) != 0:
                raise _os_error(path)
            return pages, sum(flag & 1 for flag in flags.raw)
        finally:
            _LIBC.munmap(address, size)
    finally:
        os.close(descriptor)


def _os_error(path: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(path))


def _files(folder: Path) -> Iterator[Path]:
    for parent, _folders, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def residency(folder: Path) -> Residency:
    """Sum over all regular files below ``folder``; files that vanish meanwhile are left out."""
    files = total_bytes = total_pages = total_resident = 0
    for path in _files(folder):
        try:
            size = path.stat().st_size
            pages, resident = resident_pages(path)
        except FileNotFoundError:
            continue
        files += 1
        total_bytes += size
        total_pages += pages
        total_resident += resident
    return Residency(files, total_bytes, total_pages, total_resident)


def drop_file(path: Path) -> None:
    """Write out a file's dirty pages and ask the kernel to forget its pages."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def drop(folder: Path, *, deadline_s: float = 10.0) -> Drop:
    """Drop all files below ``folder`` until none has a resident page or ``deadline_s`` is over.

    The caller must ask :attr:`Drop.is_cold`: a page that somebody holds is no error here.
    """
    before = residency(folder)
    deadline = time.monotonic() + deadline_s
    while True:
        for path in _files(folder):
            try:
                drop_file(path)
            except FileNotFoundError:
                continue
        after = residency(folder)
        if after.resident_pages == 0 or time.monotonic() >= deadline:
            return Drop(before, after)
        time.sleep(0.2)
