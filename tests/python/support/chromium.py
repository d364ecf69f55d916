"""Headless Chromium driven over a pipe: reads what a page shows, its console and its requests."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 60
# Chromium has no sandbox for root; the tests load only pages that recoup made.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)

# Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.closerange(3, 10)
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.closerange(10, 256)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Drives one page at a time: `open` it, then query its content and act on it."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.messages: list[str] = []
        """Errors, console output and dialogs of the page, and violations of its content policy."""
        self.requests: list[str] = []
        """All addresses that the page has requested."""

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of Chromium's DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._on_event(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page: Path, width: int = 1280, height: int = 1000) -> None:
        """Opens the page in a new tab; returns when its scripts have run."""
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.messages.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        self.settle()

    def value(self, expression: str) -> Any:
        """The result of a JavaScript expression, as far as JSON can represent it."""
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Waits until `condition` is true."""
        end = time.monotonic() + _PATIENCE_S
        while not self.value(condition):
            assert time.monotonic() < end, f"this does not become true: {condition}"

    def settle(self) -> None:
        """Waits until everything scheduled for the next two frames is painted."""
        frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.value(f"{frame}.then(() => 0)")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """kind: mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        """Clicks by the element's own method, so that the element may lie outside of the window."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def press(self, key: str) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def text(self, selector: str) -> str:
        """The visible text of the element."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def screenshot(self, path: Path, *, dark: bool = False, whole: bool = False) -> None:
        """`whole` captures the whole page instead of the part in the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.settle()
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            assert readable, "Chromium does not answer"
            chunk = os.read(self._answers, 1 << 16)
            assert chunk, "Chromium has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _on_event(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.messages.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.messages.append(json.dumps(parameters["args"]))
            case "Log.entryAdded":
                self.messages.append(parameters["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.messages.append(f"dialog: {parameters['message']}")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium with its profile in `folder`. Skips the test if Chromium is not installed."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium, or any of " + ", ".join(_NAMES))
    command_end, commands = os.pipe()
    answers, answer_end = os.pipe()
    arguments = [found, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, str(command_end), str(answer_end), *arguments],
            pass_fds=(command_end, answer_end),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(command_end)
    os.close(answer_end)
    try:
        driven = Browser(commands, answers)
        yield driven
        driven._session = ""
        driven.call("Browser.close")
        process.wait(_PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(commands)
        os.close(answers)
