"""A real browser for tests of pages: headless Chromium, driven by the DevTools protocol over two pipes.

The protocol (https://chromedevtools.github.io/devtools-protocol/) is JSON with a zero byte after each message; with
--remote-debugging-pipe the browser reads them from descriptor 3 and answers on 4, so no port and no further package is needed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import to_ns
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WITHIN_S = 40.0
_LEFT = "Inspected target navigated or closed"
_GONE_S = 5.0
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio"),
    *("--remote-debugging-pipe", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en"),
)
Json = dict[str, Any]


def browser_path() -> str | None:
    """The browser's program; None if this machine has none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page; use it as a context manager. Raises ClusterError if it doesn't answer.

    `complaints` has what the page's console said as errors and what the page threw, in order.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        self._process = 0
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        self.events: list[Json] = []

    def __enter__(self) -> Browser:
        (their_in, self._out), (self._in, their_out) = (_high_pipe() for _ in range(2))
        null = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, null, 2),
            (os.POSIX_SPAWN_DUP2, their_in, 3),
            (os.POSIX_SPAWN_DUP2, their_out, 4),
        ]
        arguments = [self._program, *_OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        environ = os.environ | {"TMPDIR": self._profile.name}  # killed, it leaves its sockets there
        self._process = os.posix_spawn(self._program, arguments, environ, file_actions=actions, setsid=True)
        for descriptor in (their_in, their_out, null):
            os.close(descriptor)
        try:
            self._open()
        except BaseException:
            self.__exit__()  # Python doesn't where the beginning fails
            raise
        return self

    def _open(self) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __exit__(self, *_exception: object) -> None:
        try:
            os.killpg(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            give_up_ns = monotonic_ns() + to_ns(_GONE_S)
            while monotonic_ns() < give_up_ns:  # its helpers write to the profile until the last one is gone
                os.killpg(self._process, 0)
                sleep_ns(to_ns(0.01))
        except ProcessLookupError:
            pass
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    # --- what tests do --------------------------------------------------------------------------------------------------

    def goto(self, url: str) -> None:
        """Load a page; returns when it and its resources are loaded, or at once if only the fragment (after #) changes."""
        self.events.clear()
        loader = self.call("Page.navigate", url=url).get("loaderId")
        if loader:  # the page before may still say that it is loaded
            came = self._until(lambda event: _is_of(event, loader))
            self._until(lambda event: event["method"] == "Page.loadEventFired", came)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited. Raises ClusterError if the expression throws."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise ClusterError(f"{script}: {found['exceptionDetails'].get('exception', {}).get('description', '?')}")
        return found["result"].get("value")

    def until(self, script: str, within_s: float = WITHIN_S) -> None:
        """Wait until this expression is true, also on a page that replaces this one. Raises ClusterError after `within_s`."""
        deadline = monotonic_ns() + to_ns(within_s)
        while not self._now(script):
            if monotonic_ns() > deadline:
                text = self.run("document.body.innerText.slice(0, 400)")
                raise ClusterError(
                    f"{script}: not true within {within_s:g} s; {self.complaints} the page says: {text!r}"
                )
            sleep_ns(20_000_000)

    def _now(self, script: str) -> bool:
        """Whether the expression is true; False if the page was left during the evaluation."""
        try:
            return bool(self.run(script))
        except ClusterError as error:
            if _LEFT in str(error):
                return False
            raise

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press and release a key; `code`: its Windows key code, which some default actions need."""
        common: Json = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Set the size of the window and the preferred colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the whole page, or of its visible part."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    # --- the protocol ---------------------------------------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> Json:
        """Send one command; returns its result. Raises ClusterError if it is refused or not answered."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise ClusterError(f"{method}: {reply['error'].get('message')}")
                result: Json = reply["result"]
                return result
            self._note(reply)

    def _until(self, wanted: Callable[[Json], bool], since: int = 0) -> int:
        """The index of the first such event after `goto`, at least `since`."""
        while True:
            for place in range(since, len(self.events)):
                if wanted(self.events[place]):
                    return place
            since = len(self.events)
            self._note(self._next())

    def _note(self, event: Json) -> None:
        self.events.append(event)
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description") or details.get("text")))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))

    def _next(self) -> Json:
        deadline = monotonic_ns() + to_ns(WITHIN_S)
        while b"\0" not in self._buffer:
            left_s = (deadline - monotonic_ns()) / 1e9
            ready = select.select([self._in], [], [], max(0.0, left_s))[0]
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise ClusterError(f"{self._program}: does not answer")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: Json = json.loads(message)
        return found


def _is_of(event: Json, loader: str) -> bool:
    """Whether this event says that the requested page is loaded."""
    return bool(event["method"] == "Page.frameNavigated" and event["params"]["frame"]["loaderId"] == loader)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors are above those that the browser gets, so that none is overwritten."""
    low = os.pipe()
    read, write = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in low)
    for descriptor in low:
        os.close(descriptor)
    return read, write
