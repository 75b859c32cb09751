"""The open bundle while a gate runs.

A crash at any moment leaves a folder that says open or partial, or one that is sealed; never one
that looks whole and is not. A block counts as measured only with its ``block.json``, which is
written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvgate.canonical import canonical_json
from kvgate.errors import CannotMeasure, Interrupted, KvgateError, UsageError
from kvgate.evidence import files, layout
from kvgate.evidence.manifest import Manifest, State
from kvgate.evidence.seal import OUR_OWN, cannot_write, read_state, remove_leftovers, seal

CRASHED: Final = "the run that wrote this bundle ended without closing it"


class Journal:
    """A bundle being written. Use as a context manager: an exception marks the bundle partial.

    ``Journal(root)`` starts a new bundle in an absent or empty folder and raises UsageError where
    something is there already; :meth:`open_existing` goes on with an interrupted one. One process
    writes a bundle at a time. Every write is whole or absent; a full disk raises CannotMeasure and
    marks the bundle partial.
    """

    def __init__(self, root: Path) -> None:
        if root.is_dir() and any(root.iterdir()):
            raise UsageError(
                "folder is not empty", where=str(root), remedy="resume it or choose a new folder"
            )
        self._begin(root, create=True)
        self._guard(lambda: self._write_state("open"))

    @classmethod
    def open_existing(cls, root: Path) -> Journal:
        """Go on with an open or partial bundle; the interruption is recorded in its state.

        Raises UsageError for a sealed bundle, a folder that is none, or one being written.
        """
        state = read_state(root)
        if state is None:
            raise UsageError("no bundle here", where=str(root), remedy="start a new one")
        if state.state == "sealed":
            raise UsageError(
                "bundle is sealed", where=str(root), remedy="a new run needs a new bundle"
            )
        journal = cls.__new__(cls)
        journal._begin(root, create=False)
        journal._interruptions = (*state.interruptions, state.reason or CRASHED)
        journal._guard(journal._resume)
        return journal

    def _begin(self, root: Path, *, create: bool) -> None:
        self.root = root
        self._interruptions: tuple[str, ...] = ()
        self._closed = False
        if create:
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise cannot_write(root, error) from error
        self._lock = files.FolderLock(root)

    def _resume(self) -> None:
        # A seal that was cut short left a manifest that nothing vouches for.
        (self.root / layout.MANIFEST).unlink(missing_ok=True)
        remove_leftovers(self.root)
        self._write_state("open")

    # -- writing ---------------------------------------------------------------------------------

    def write_bytes(self, rel: str, data: bytes) -> Path:
        """Put ``data`` at ``rel``, replacing what was there; returns the path.

        Raises UsageError for an unsafe path, for the journal's own files and for a block that is
        finished, CannotMeasure where the disk refuses.
        """
        path = self._writable(rel)
        self._guard(lambda: self._put(path, data))
        return path

    def write_json(self, rel: str, obj: object) -> Path:
        """Put ``obj`` at ``rel`` as canonical JSON. Raises as :meth:`write_bytes`; ValueError
        for what canonical JSON refuses (NaN, infinity)."""
        return self.write_bytes(rel, canonical_json(obj))

    def add_file(self, rel: str, source: Path) -> Path:
        """Copy a file that another tool wrote into the bundle. Raises as :meth:`write_bytes`."""
        try:
            data = source.read_bytes()
        except OSError as error:
            raise CannotMeasure(
                f"cannot read: {error.strerror}", where=str(source), remedy="collect it again"
            ) from error
        return self.write_bytes(rel, data)

    def block_dir(self, n: int) -> Path:
        """The folder of block ``n`` (n >= 0), created where needed. Raises UsageError when the
        block is finished."""
        folder = self.root / layout.BLOCKS / _number(n)
        self._require_open()
        self._require_unfinished(folder)
        self._guard(lambda: files.make_folders(self.root, folder))
        return folder

    def finish_block(self, n: int, block_json: object) -> Path:
        """Flush what lies in the folder of block ``n``, then write its ``block.json``: from here
        on the block is measured and can no longer be changed."""
        folder = self.block_dir(n)
        data = canonical_json(block_json)

        def finish() -> None:
            for entry in files.walk(folder):
                if entry.kind == "file":
                    files.sync_file(folder / entry.rel)
            files.write_whole(folder / layout.BLOCK, data)

        self._guard(finish)
        return folder / layout.BLOCK

    def finished_blocks(self) -> tuple[int, ...]:
        """Numbers of the blocks that have their ``block.json``, ascending."""
        folder = self.root / layout.BLOCKS
        if not folder.is_dir():
            return ()
        names = (path.name for path in folder.iterdir() if (path / layout.BLOCK).is_file())
        return tuple(sorted(int(n) for n in names if layout.BLOCK_NUMBER.fullmatch(n)))

    def discard_block(self, n: int) -> None:
        """Remove an unfinished block, so that a resumed gate can measure it anew."""
        folder = self.root / layout.BLOCKS / _number(n)
        self._require_open()
        self._require_unfinished(folder)
        if folder.is_dir():
            self._guard(lambda: shutil.rmtree(folder))

    def ensure_space(self, need_bytes: int) -> None:
        """Raises CannotMeasure where fewer than ``need_bytes`` are free for us."""
        info = os.statvfs(self.root)
        free_bytes = info.f_bavail * info.f_frsize
        if free_bytes < need_bytes:
            raise CannotMeasure(
                f"{free_bytes:,} bytes are free, {need_bytes:,} are needed",
                where=str(self.root),
                remedy="free space or put the bundle on another disk",
            )

    # -- ending ----------------------------------------------------------------------------------

    def mark_partial(self, reason: str) -> None:
        """Say in the bundle that evidence is missing, and why. The journal stays usable."""
        if self._closed:
            return
        state = read_state(self.root)
        if state is not None and state.state == "sealed":
            return  # broken off just behind the seal: nothing is missing
        try:
            self._write_state("partial", reason)
        except OSError:
            self._overwrite_state(reason)

    def seal(self, *, previous_manifest_sha256: str | None, kvgate_version: str) -> Manifest:
        """Seal and close; see :func:`kvgate.evidence.seal.seal`."""
        self._require_open()
        manifest = seal(
            self.root,
            previous_manifest_sha256=previous_manifest_sha256,
            kvgate_version=kvgate_version,
        )
        self.close()
        return manifest

    def close(self) -> None:
        """Let go of the folder; the state on disk stays as it is. A second call does nothing."""
        self._closed = True
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            if isinstance(error, OSError) and error.errno in files.DISK_REFUSES:
                error = cannot_write(self.root, error)
            told = str(error) if isinstance(error, KvgateError) else type(error).__name__
            cause = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "ended"
            self.mark_partial(f"{cause}: {told}")
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    def _put(self, path: Path, data: bytes) -> None:
        files.make_folders(self.root, path.parent)
        files.write_whole(path, data)

    def _writable(self, rel: str) -> Path:
        self._require_open()
        layout.require_safe(rel, self.root)
        first, *rest = rel.split("/")
        if rel in OUR_OWN or first == layout.SIGNATURES:
            raise UsageError(f"{rel} is written by the seal alone", where=str(self.root))
        if first == layout.BLOCKS:
            if len(rest) < 2 or not layout.BLOCK_NUMBER.fullmatch(rest[0]):
                raise UsageError(f"{rel} lies in no numbered block", where=str(self.root))
            self._require_unfinished(self.root / first / rest[0])
            if rest[1:] == [layout.BLOCK]:
                raise UsageError(f"{rel} is written by finish_block alone", where=str(self.root))
        return self.root / rel

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("bundle is closed", where=str(self.root), remedy="open it again")

    def _require_unfinished(self, folder: Path) -> None:
        if (folder / layout.BLOCK).exists():
            raise UsageError(
                "block is finished and cannot change",
                where=str(folder),
                remedy="measure again under a new number",
            )

    def _guard(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            fault = cannot_write(self.root, error)
            self.mark_partial(fault.message)
            raise fault from error

    def _write_state(self, state: str, reason: str | None = None) -> None:
        record = State(
            state="partial" if state == "partial" else "open",
            reason=reason,
            interruptions=self._interruptions,
        )
        files.write_whole(self.root / layout.STATE, record.to_bytes())

    def _overwrite_state(self, reason: str) -> None:
        # On a full disk no second file fits; the block that state.json has already takes this one.
        # Torn by a crash, it reads as partial all the same.
        record = State(state="partial", reason=reason, interruptions=self._interruptions)
        try:
            with (self.root / layout.STATE).open("r+b") as stream:
                stream.write(record.to_bytes())
                stream.truncate()
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            # Still "open" on disk, which is as little a sealed bundle as "partial" is.
            return


def _number(n: int) -> str:
    if n < 0 or not layout.BLOCK_NUMBER.fullmatch(str(n)):
        raise UsageError(f"{n} is no block number", remedy="count blocks from 0")
    return str(n)
