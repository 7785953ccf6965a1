"""Runs inside the sandbox: serves the workspace, opens its page in Chromium, plays steps.

Each step's answer is reported at once, so that a page that hangs loses only what comes after.
Whatever the page gives, and however large, there is an answer to each step.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
import time
from typing import Any

from envs.agencybench.inside.prelude import PAYLOAD, report

_FLAGS = (
    "--headless",
    "--no-sandbox",  # it has one around it, inside which it cannot make another
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
)
# Before the page's own scripts: a seeded Math.random, and what went wrong.
_FIRST = """
(() => {
  let state = %d >>> 0;
  Math.random = () => {
    state = (state + 0x6D2B79F5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  window.__faults = [];
  window.addEventListener('error', e => window.__faults.push(String(e.message)));
  window.addEventListener('unhandledrejection', e => window.__faults.push(String(e.reason)));
})();
"""


#: Bytes of one answer of a page, and of all that is told.
_MOST_VALUE, _MOST_TOLD = 1 << 20, 15 << 20
#: Seconds after a click or a key in which a page shows what came of it.
_SETTLES = 0.03
#: Pixels of a page that a picture shows at most.
_TALLEST = 2000


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of the workspace as they are now, and no words."""

    def end_headers(self) -> None:
        """Let nothing be kept for the next load."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def open_browser(payload: dict[str, Any]) -> Any:
    """A browser with the page's viewport and seed."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in _FLAGS:
        options.add_argument(flag)
    options.add_argument("--user-data-dir=/tmp/profile")
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("unhandledPromptBehavior", "dismiss")
    os.environ["HOME"] = "/tmp"
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_script_timeout(5)
    driver.set_page_load_timeout(15)
    source = {"source": _FIRST % payload["seed"]}
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    size(driver, *payload["viewport"])
    return driver


def size(driver: Any, width: int, height: int) -> None:
    """Set the viewport."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def tap(driver: Any, script: str) -> Any:
    """Press and release the mouse at the place in the viewport that a script tells."""
    driver.execute_script("window.scrollTo(0, 0)")
    place = driver.execute_script(script)
    x, y = (place["x"], place["y"]) if isinstance(place, dict) else place
    at = {"x": float(x), "y": float(y), "button": "left", "clickCount": 1}
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **at})
    return [float(x), float(y)]


def see(driver: Any, script: str, arguments: list[Any]) -> Any:
    """Run a script that shares the page's elements and none of the page's scripts.

    What a page put in the place of ``document.querySelector`` or ``performance.now`` is not there.
    """
    frame = driver.execute_cdp_cmd("Page.getFrameTree", {})["frameTree"]["frame"]["id"]
    world = driver.execute_cdp_cmd(
        "Page.createIsolatedWorld", {"frameId": frame, "worldName": "judge"}
    )
    call = f"(function () {{{script}\n}}).apply(null, {json.dumps(arguments)})"
    made = driver.execute_cdp_cmd(
        "Runtime.evaluate",
        {
            "expression": call,
            "contextId": world["executionContextId"],
            "returnByValue": True,
            "timeout": 5000,
        },
    )
    if "exceptionDetails" in made:
        fault = made["exceptionDetails"].get("exception", {}).get("description", "")
        raise RuntimeError(fault.partition("\n")[0] or "the script failed")
    return made["result"].get("value")


def picture(driver: Any, whole: bool) -> Any:
    """A screenshot of the viewport, or of the page as far down as it goes."""
    wanted: dict[str, Any] = {"format": "png"}
    if whole:
        size = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        height = min(max(1, size["height"]), _TALLEST)
        width = min(max(1, size["width"]), _TALLEST)
        wanted["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        wanted["captureBeyondViewport"] = True
    return driver.execute_cdp_cmd("Page.captureScreenshot", wanted)["data"]


def until(ask: Any, seconds: float) -> bool:
    """Ask again and again; whether the answer came true."""
    end = time.monotonic() + seconds
    while not ask():
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True


def play(driver: Any, address: str, step: list[Any]) -> Any:
    """Play one step and return what came of it."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    name, *rest = step
    if name == "open":
        driver.get(f"{address}/{rest[0]}")
        return driver.title
    if name == "reload":
        driver.refresh()
        return None
    if name == "js":
        return driver.execute_script(rest[0], *rest[1:])
    if name == "see":
        return see(driver, rest[0], rest[1:])
    if name == "await":
        return until(lambda: see(driver, rest[0], []), rest[1])
    if name == "write":
        with open(rest[0], "w", encoding="utf-8") as file:
            file.write(rest[1])
        return None
    if name == "click":
        driver.find_element(By.CSS_SELECTOR, rest[0]).click()
        time.sleep(_SETTLES)
        return None
    if name == "tap":
        return tap(driver, rest[0])
    if name == "focus":
        driver.execute_script("arguments[0].focus()", driver.find_element(By.CSS_SELECTOR, rest[0]))
        return None
    if name == "keys":
        for key in rest:
            ActionChains(driver).send_keys(getattr(Keys, key, key)).perform()
        time.sleep(_SETTLES)
        return None
    if name == "wait":
        time.sleep(rest[0])
        return None
    if name == "until":
        return until(lambda: driver.execute_script(rest[0]), rest[1])
    if name == "viewport":
        size(driver, *rest)
        return None
    if name == "screenshot":
        return picture(driver, rest == ["page"])
    if name == "console":
        entries = [f"{e['level']}: {e['message']}"[:300] for e in driver.get_log("browser")]
        faults = driver.execute_script("return window.__faults || []")
        return entries[:100] + [f"FAULT: {text}"[:300] for text in faults[:20]]
    raise ValueError(f"unknown step {name!r}")


def main(payload: dict[str, Any]) -> None:
    """Serve, open, play."""
    handler = functools.partial(Quiet, directory=os.getcwd())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver = open_browser(payload)
    report({"started": True})
    address = f"http://127.0.0.1:{server.server_port}"
    left = _MOST_TOLD
    for step in payload["steps"]:
        os.write(3, b"\n")
        # A page that never yields holds the driver whatever the driver's own deadlines say.
        watch = threading.Timer(payload["patience"], give_up)
        watch.daemon = True
        watch.start()
        began = time.monotonic()
        made: dict[str, Any]
        try:
            made = {"value": plain(play(driver, address, step), step[0])}
        except Exception as error:
            text = str(error).partition("\n")[0]
            made = {"error": f"{type(error).__name__}: {text}"[:300]}
        watch.cancel()
        size = len(json.dumps(made))
        if size > left:
            made, size = {"error": "too much was told"}, 0
        left -= size
        report({**made, "seconds": time.monotonic() - began})


def plain(value: Any, name: str) -> Any:
    """The value as JSON can hold it: a page may give anything.

    Raises:
        ValueError: If it is too large.
    """
    text = json.dumps(value, default=lambda other: f"<{type(other).__name__}>")
    if len(text) > _MOST_VALUE and name != "screenshot":
        raise ValueError("the value is too large")
    return json.loads(text)


def give_up() -> None:
    """The page hangs: say so and end; the sandbox ends the browser."""
    report({"error": "the page does not answer", "hangs": True})
    os._exit(0)


if __name__ == "__main__":
    main(PAYLOAD)
    os._exit(0)
