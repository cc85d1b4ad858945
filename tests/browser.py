"""A real browser for tests: Chromium, driven through chromedriver by the WebDriver protocol.

Give a test the fixture `browser` by importing it; it skips in words where there is no browser.
"""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {
    "Enter": "\ue007",
    "Tab": "\ue004",
    "Escape": "\ue00c",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    " ": " ",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for a file of tests."""
    programs = [shutil.which("chromedriver"), shutil.which("chromium")]
    if None in programs:
        pytest.skip("there is no chromium with chromedriver here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [programs[0], f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        found = Browser(f"http://127.0.0.1:{port}", programs[1], tmp_path_factory.mktemp("profile"))
        found.open("about:blank")
        yield found
        found.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


class Browser:
    """A session of WebDriver.

    Args:
        driver: the address of chromedriver.
        binary: the browser.
        profile: an empty folder for what it keeps.
    """

    def __init__(self, driver: str, binary: str, profile: Path) -> None:
        self.root = driver
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        until = time.monotonic() + 20
        while True:
            try:
                self._send("GET", f"{driver}/status")
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        given = {"capabilities": {"alwaysMatch": wanted}}
        made = self._send("POST", f"{driver}/session", given)
        self.root = f"{driver}/session/{made['sessionId']}"

    def _send(self, method, address, content=None):
        body = None if method != "POST" else json.dumps(content or {}).encode()
        request = urllib.request.Request(address, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def call(self, method, path, **content):
        """A command of the protocol, such as `call("POST", "/refresh")`."""
        return self._send(method, self.root + path, content)

    def open(self, address):
        """Loads a page, and forgets what was logged before; a `Path` is a file."""
        self.logs("browser")
        self.logs("performance")
        self.call("POST", "/url", url=address.as_uri() if isinstance(address, Path) else address)

    def run(self, script, *arguments):
        """What JavaScript returns; a promise is waited for."""
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def wait(self, script, seconds=20):
        """Runs JavaScript until it returns something true, and gives that."""
        until = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < until, f"never came true: {script}; {self.errors()}"
            time.sleep(0.02)
        return found

    def find(self, selector):
        """The first element of a CSS selector."""
        found = self.call("POST", "/element", using="css selector", value=selector)
        return found[_ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click")

    def hover(self, selector):
        """Moves the mouse over an element."""
        origin = {_ELEMENT: self.find(selector)}
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}
        mouse = {"type": "pointer", "id": "mouse", "actions": [move]}
        self.call("POST", "/actions", actions=[mouse])

    def press(self, *keys):
        """Presses keys one after the other, wherever the focus is: names of `KEYS`, or letters."""
        strokes = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self.call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": strokes}])

    def resize(self, width, height=900):
        """Sets the size of the page, in CSS pixels, whatever the smallest window is."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme):
        """Asks the page for a dark or light scheme, as a system's setting does."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def devtools(self, command, **params):
        """A command of the DevTools protocol."""
        return self.call("POST", "/goog/cdp/execute", cmd=command, params=params)

    def screenshot(self, path, whole=False):
        """Writes a PNG of what is seen, or of the whole page."""
        found = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def logs(self, kind):
        """What was logged since the last call: "browser" or "performance"."""
        return self.call("POST", "/se/log", type=kind)

    def errors(self):
        """Messages of errors and warnings in the console since the last call."""
        return [one["message"] for one in self.logs("browser") if one["level"] != "INFO"]

    def requests(self):
        """Addresses that were asked for since the last call, those with their content left out."""
        events = [json.loads(one["message"])["message"] for one in self.logs("performance")]
        sent = [one for one in events if one["method"] == "Network.requestWillBeSent"]
        asked = [one["params"]["request"]["url"] for one in sent]
        own = ("data:", "blob:", "about:", "chrome")  # its own pages are no part of ours
        return [address for address in asked if not address.startswith(own)]
