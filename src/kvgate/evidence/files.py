"""Whole files or none: the writes of a bundle, and its safe reads.

A write goes to a temporary file of the same folder, is flushed to the device, renamed over its name
and the folder flushed, so that a crash leaves the old file or the new one. A read follows no link
at any level, takes regular files only and stops at a limit.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from kvgate.errors import CannotMeasure, UsageError
from kvgate.evidence import layout

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
DISK_REFUSES: Final = DISK_FULL | {errno.EROFS, errno.EFBIG, errno.EIO}
"""What only a disk says, whoever was writing: a tool that knows no journal too."""
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing found in a folder: ``kind`` is file, folder, link or special; ``size`` in bytes."""

    rel: str
    kind: str
    size: int


class UnsafeFile(CannotMeasure):
    """A file of an untrusted folder is a link, no regular file, too large or out of its folder."""


def write_whole(path: Path, data: bytes, *, half: Path | None = None) -> None:
    """Put ``data`` at ``path`` completely or not at all, on the device. Raises OSError.

    ``half`` is the folder where a crash may leave a half-written file (default: that of ``path``);
    it must be on the same file system.
    """
    temporary = (half or path.parent) / f"{layout.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the device. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Flush a file's content to the device. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(root: Path, folder: Path) -> None:
    """Create ``folder`` below ``root`` and flush each new name to the device. Raises OSError."""
    if folder == root or folder.is_dir():
        return
    make_folders(root, folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def walk(root: Path) -> Iterator[Entry]:
    """Everything below ``root``, following no link, at most ``MAX_FILES`` things.

    Raises CannotMeasure where the folder cannot be read or is a bomb.
    """
    pending = [("", root)]
    found = 0
    while pending:
        prefix, folder = pending.pop()
        try:
            with os.scandir(folder) as listing:
                items = sorted(listing, key=lambda item: os.fsencode(item.name))
        except OSError as error:
            raise CannotMeasure(
                f"cannot list: {error.strerror}", where=str(folder), remedy="check its permissions"
            ) from error
        for item in items:
            found += 1
            rel = prefix + item.name
            if found > layout.MAX_FILES or rel.count("/") > layout.MAX_DEPTH:
                raise UnsafeFile(
                    f"more than {layout.MAX_FILES} files or {layout.MAX_DEPTH} levels",
                    where=str(root),
                    remedy="this is no bundle of ours; do not open it",
                )
            info = item.stat(follow_symlinks=False)
            yield Entry(rel, _kind(info.st_mode), info.st_size)
            if stat.S_ISDIR(info.st_mode):
                pending.append((f"{rel}/", folder / item.name))


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special"


def open_safely(root: Path, rel: str) -> int:
    """A descriptor to the regular file ``rel`` below ``root``, following no link at any level.

    Raises UnsafeFile for a link, a special file or a path that leaves ``root``, FileNotFoundError
    where nothing is there.
    """
    fault = layout.path_fault(rel)
    if fault is not None:
        raise UnsafeFile(f"path {rel[:200]!r} {fault}", where=str(root))
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    *folders, name = rel.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        # A pipe must not block the reader; for regular files the flag means nothing.
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise UnsafeFile(
                f"{rel} is a link or no regular file",
                where=str(root),
                remedy="ask for a clean copy",
            ) from error
        raise
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeFile(f"{rel} is no regular file", where=str(root))
    return descriptor


def read_safely(root: Path, rel: str, limit: int) -> bytes:
    """The bytes of ``rel``; raises as :func:`open_safely` and UnsafeFile above ``limit`` bytes."""
    with os.fdopen(open_safely(root, rel), "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnsafeFile(f"{rel} is larger than {limit} bytes", where=str(root))
    return data


def digest_safely(root: Path, rel: str, limit: int) -> tuple[int, str]:
    """(size, SHA-256) of ``rel``; raises as :func:`open_safely`, UnsafeFile above ``limit``."""
    digest = hashlib.sha256()
    size = 0
    with os.fdopen(open_safely(root, rel), "rb") as stream:
        while piece := stream.read(_READ_BYTES):
            size += len(piece)
            if size > limit:
                raise UnsafeFile(f"{rel} is larger than {limit} bytes", where=str(root))
            digest.update(piece)
    return size, digest.hexdigest()


class FolderLock:
    """One writer a folder: an advisory lock that dies with its process. ``what`` it is is said to
    whoever comes second."""

    _held: ClassVar[set[str]] = set()

    def __init__(self, root: Path, what: str = "bundle") -> None:
        self._key = os.path.realpath(root)
        self._descriptor: int | None = None
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                f"{what} is being written by another run",
                where=str(root),
                remedy="wait for it to end or choose another folder",
            ) from error
        self._descriptor = descriptor
        self._held.add(self._key)

    @classmethod
    def held_here(cls, root: Path) -> bool:
        """Whether this very process holds the lock."""
        return os.path.realpath(root) in cls._held

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._held.discard(self._key)
