"""The load of one host, at the word of a kvgate elsewhere: ``python -m kvgate.load.agent``.

Orders come as lines on standard input (see :mod:`kvgate.talk`): ``clock``, ``calibrate``, ``load``,
``start``, ``stop``, ``fetch``, ``alive``. When they end, or nobody is heard any more, so does the
load. Its files lie in a private folder that is gone with it.
"""

from __future__ import annotations

import contextlib
import platform
import select
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from kvgate import __version__
from kvgate.errors import KvgateError
from kvgate.load.calibrate import check_client
from kvgate.load.job import Job, contradiction
from kvgate.load.process import LoadProcess
from kvgate.talk import Listener, Message, Silence

_CALIBRATION_S: Final = 60.0


class LoadAgent:
    """At most one load at a time."""

    def __init__(self, listener: Listener, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._process: LoadProcess | None = None
        self._told_ready = False
        self._loads = 0

    def serve(self) -> None:
        """Obey until the orders end; whatever happens, no load is left running."""
        self._listener.say("hello", kvgate=__version__, python=platform.python_version())
        try:
            while not self._listener.closed:
                process = self._process
                fds = [self._listener.fd, *([] if process is None else [process.fd])]
                readable, _, _ = select.select(fds, [], [])
                if self._listener.fd in readable:
                    for order in self._listener.read():
                        self._obey(order)
                if process is not None and process is self._process and process.fd in readable:
                    self._hear(process)
        finally:
            if self._process is not None:
                self._process.stop()
                self._process.end()

    def _obey(self, order: Message) -> None:
        what = order.get("do")
        if what == "clock":
            self._listener.say_clock()
        elif what == "calibrate":
            self._calibrate(int(order["level"]))
        elif what == "load":
            self._load(order["job"])
        elif what == "start" and self._process is not None:
            self._process.start(int(order["at_ns"]))
        elif what == "stop" and self._process is not None:
            self._process.stop()
        elif what == "fetch":
            self._listener.send_file(self._records())

    def _records(self) -> Path:
        return self._folder / f"requests-{self._loads}.jsonl"

    def _calibrate(self, level: int) -> None:
        folder = self._folder / "calibration"
        shutil.rmtree(folder, ignore_errors=True)
        self._listener.patient(_CALIBRATION_S)
        try:
            budget = check_client(level, folder)
        except (KvgateError, OSError) as fault:
            self._listener.say("budget", error=str(fault), budget=None)
        else:
            self._listener.say("budget", error=None, budget=msgspec.to_builtins(budget))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _load(self, plain: Any) -> None:
        self._records().unlink(missing_ok=True)
        self._loads += 1
        self._told_ready = False
        try:
            job = msgspec.structs.replace(
                msgspec.convert(plain, type=Job),
                records_path=str(self._records()),
                report_path=str(self._folder / f"client-{self._loads}.json"),
            )
            wrong = contradiction(job)
            if wrong is None:
                self._process = LoadProcess(
                    job, self._folder, f"job-{self._loads}", await_start=True
                )
        except (msgspec.ValidationError, OSError) as fault:
            wrong = str(fault)
        if wrong is not None:
            self._listener.say("ended", error=f"the job is refused: {wrong}", state=None)

    def _hear(self, process: LoadProcess) -> None:
        changed = process.read()
        if process.ready and not self._told_ready:
            self._told_ready = True
            self._listener.say("ready")
        if process.over:
            self._ended(process)
        elif changed:
            self._listener.say("progress", **msgspec.to_builtins(process.progress))

    def _ended(self, process: LoadProcess) -> None:
        self._process = None
        process.end()
        try:
            report, state, code = process.result()
        except KvgateError as fault:
            self._listener.say("ended", error=str(fault), state=None)
            return
        plain = None if report is None else msgspec.to_builtins(report)
        self._listener.say("ended", error=None, state=state, code=code, report=plain)


def main() -> int:
    """Serve until the orders end; 1 where nobody was heard for too long."""
    folder = Path(tempfile.mkdtemp(prefix="kvgate-load-"))
    try:
        with contextlib.suppress(BrokenPipeError):
            LoadAgent(Listener(), folder).serve()
    except Silence:
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
