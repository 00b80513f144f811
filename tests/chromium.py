"""A real Chromium without a window, by its DevTools protocol; Debian's package ``chromium`` has it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

LONGEST_S = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root has none
    "--remote-debugging-port=0",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--force-color-profile=srgb",
)


def program() -> str | None:
    """Where Chromium is; None = nowhere."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Tab:
    """One page of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.logged: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its result.

        Raises:
            AssertionError: the browser refuses it.
        """
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=LONGEST_S))
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.logged.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("method") == "Log.entryAdded":
                self.logged.append(json.dumps(answer["params"]["entry"]))

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, promises awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, (script, answer)
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        ends_at = time.monotonic() + LONGEST_S
        while not self.evaluate(f"!!({script})"):
            assert time.monotonic() < ends_at, f"never: {script}\n{self.logged}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        """A key, such as ``ArrowDown``."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36}
        more: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def show(self, width: int, height: int, *, dark: bool) -> None:
        """Size of the window, and what its user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def screenshot(self, file: Path) -> None:
        """What is in sight, as PNG."""
        answer = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def opened(address: str) -> Iterator[Tab]:
    """A browser of its own that shows an address."""
    chromium = program()
    assert chromium is not None, "there is no Chromium"
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        browser = subprocess.Popen(
            [chromium, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_address_of_tab(Path(folder), browser), max_size=None) as socket:
                tab = Tab(socket)
                tab.call("Page.navigate", url=address)
                yield tab
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()


def _address_of_tab(folder: Path, browser: subprocess.Popen[bytes]) -> str:
    file, ends_at = folder / "DevToolsActivePort", time.monotonic() + LONGEST_S
    while not (file.exists() and file.read_text().count("\n")):
        assert browser.poll() is None, f"Chromium ended with {browser.returncode}"
        assert time.monotonic() < ends_at, "Chromium does not start"
        time.sleep(0.05)
    port = file.read_text().split("\n")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=LONGEST_S) as answer:
        tabs = json.load(answer)
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
