"""A load agent with one thing wrong: ``python doctored.py FAULT``. Run by tests, never shipped."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

from kvgate.load import agent
from kvgate.talk import Message

FAULT = sys.argv[1]
LATE_S = 0.6


class Doctored(agent.LoadAgent):
    def _obey(self, order: Message) -> None:
        if FAULT == "unreachable engine" and order.get("do") == "load":
            order = {**order, "job": {**order["job"], "url": "http://127.0.0.1:9"}}
        if order.get("do") == "start":
            if FAULT == "late":
                time.sleep(LATE_S)
            super()._obey(order)
            if FAULT == "dies":
                os._exit(9)
            if FAULT == "half a message":
                os.write(1, b'{"kind":"progress","done":1}\n')
            if FAULT == "nested":
                os.write(1, b"[" * 100_000 + b"\n")
            if FAULT == "nonsense":
                os.write(1, b"Segmentation fault\n")
            if FAULT == "client dies":
                assert self._process is not None
                os.kill(self._process._process.pid, signal.SIGKILL)
            return
        if FAULT == "clockless after" and order.get("do") == "clock" and self._over():
            os._exit(7)
        if FAULT == "no clock" and order.get("do") == "clock":
            self._listener.say("clock", ns="noon")
            return
        super()._obey(order)

    def _over(self) -> bool:
        return self._loads > 0 and self._process is None

    def _records(self) -> Path:
        path = super()._records()
        if FAULT == "beyond all clocks" and path.exists() and self._over():
            path.write_bytes(
                re.sub(rb'"end_ns":\d+', b'"end_ns":%d' % (1 << 70), path.read_bytes())
            )
        if FAULT == "short" and path.exists() and self._over():
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:-1]))
        return path


agent.LoadAgent = Doctored  # type: ignore[misc]
sys.exit(agent.main())
