"""A headless Chromium, driven over WebDriver's own HTTP protocol (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--no-first-run", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def is_installed() -> bool:
    """Whether there is a Chromium with its driver."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


class Browser:
    """One window."""

    def __init__(self, address: str, width: int, height: int) -> None:
        options = {"binary": shutil.which("chromium"), "args": [*_FLAGS, f"--window-size={width},{height}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _ask(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"{address}/session/{made['sessionId']}"

    def open(self, page: Path) -> None:
        """Load a page."""
        _ask(f"{self._session}/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a piece of JavaScript returns, a promise awaited."""
        return _ask(f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, x: float, y: float, times: int = 1) -> None:
        """Press the mouse at a place in the window and let it go."""
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        moves = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        mouse = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": moves + press * times,
        }
        _ask(f"{self._session}/actions", {"actions": [mouse]})

    def type(self, text: str) -> None:
        """Press keys, one after the other."""
        presses = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        _ask(f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": presses}]})

    def screenshot(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode(_ask(f"{self._session}/screenshot"))

    def complaints(self) -> list[str]:
        """Return what the console says since it was asked last."""
        entries = _ask(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def close(self) -> None:
        """Close the window."""
        _ask(self._session, method="DELETE")


@contextmanager
def browser(width: int = 1500, height: int = 900) -> Iterator[Browser]:
    """Open a window of this size."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        window = Browser(f"http://127.0.0.1:{port}", width, height)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(10)
        if driver.stdout is not None:
            driver.stdout.close()


def _ask(address: str, body: Any = None, method: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method or None)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
