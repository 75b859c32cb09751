"""A headless Chromium, driven over a pipe: the browser's own protocol, no driver and no port.

Each message is one JSON text ended by a zero byte; the browser reads descriptor 3 and writes 4
(``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 120.0
"""Nothing is measured here: this only ends a browser that hangs."""


def chromium() -> str | None:
    """The browser's path, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page of the browser, with everything it complained of."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._n = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._ask("Network.emulateNetworkConditions", offline=True, latency=0,
                  downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._n += 1
        message: dict[str, Any] = {"id": self._n, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {PATIENCE_S:g} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        self._listen(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _listen(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params)))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{params['type']}: {params['args']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")

    def open(self, path: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Show a file at ``width`` CSS pixels; returns when it has loaded."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", answer)))
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press and release a key on whatever has the focus."""
        codes = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}
        text = "\r" if name == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, text=text,
                      windowsVirtualKeyCode=codes[name])  # fmt: skip

    def type(self, text: str) -> None:
        """Type into whatever has the focus."""
        self._ask("Input.insertText", text=text)

    def move(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])


# The browser wants the pipe as descriptors 3 and 4: put it there, then become the browser.
_PLACED = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


@contextmanager
def browser(program: str, home: Path) -> Iterator[Page]:
    """A page of a fresh browser whose files live in ``home``; it has ended when the block ends."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
        "--remote-debugging-pipe", f"--user-data-dir={home}",
    ]  # fmt: skip
    started = subprocess.Popen(
        [sys.executable, "-c", _PLACED, str(to_browser), str(from_browser), program, *options],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(write, read)
    finally:
        os.close(write)
        os.close(read)
        started.terminate()
        try:
            started.wait(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
