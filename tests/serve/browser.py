"""A server of our own and headless Chromium, for the tests of the web page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
START_SECONDS = 300.0


def start(data: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start `patience serve` on a free port; return the process and its address."""
    command = [
        sys.executable,
        "-m",
        "patience_env.training.cli",
        "serve",
        "--port",
        "0",
        "--data",
        str(data),
        *arguments,
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith("patience: http://"):
        stop(server)
        raise RuntimeError(f"the server did not start: {line!r}")
    return server, line.split()[1]


def stop(server: subprocess.Popen[str]) -> None:
    """End a server and wait for it."""
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stdout is not None:
        server.stdout.close()


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """Run a server; yield its address once it answers."""
    server, address = start(data)
    try:
        urllib.request.urlopen(address, timeout=START_SECONDS).close()
        yield address
    finally:
        stop(server)


@contextmanager
def chromium(width: int = 1280, height: int = 900) -> Iterator[Any]:
    """Run headless Chromium with a fresh profile; yield its driver."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


class Page:
    """What a person does on the page: looks and clicks."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def go(self, place: str) -> None:
        """Open an address of the page anew."""
        self.driver.get("about:blank")
        self.driver.get(self.address + place)
        self.wait("return document.body.dataset.ready")

    def wait(self, script: str, seconds: float = START_SECONDS) -> Any:
        """Wait until a script returns something true."""
        end = time.monotonic() + seconds
        while True:
            found = self.driver.execute_script(script)
            if found:
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"{script} in vain; the page says {self.text('#message')!r}")
            time.sleep(0.01)

    def text(self, selector: str) -> str:
        """Return the text of an element."""
        found: str = self.driver.execute_script("return document.querySelector(arguments[0]).textContent", selector)
        return found

    def step(self) -> int:
        """Return how many moves the page knows of."""
        return int(self.driver.execute_script("return Number(document.body.dataset.step)"))

    def await_step(self, step: int) -> None:
        """Wait until the page shows the position after so many moves."""
        self.wait(f"return document.body.dataset.step === '{step}'")

    def pile(self, name: str) -> Any:
        """Return the element of a pile."""
        return self.driver.find_element("css selector", f'#main .play .pile[data-name="{name}"]')

    def click_pile(self, name: str) -> None:
        """Click a pile as the mouse does."""
        self.pile(name).click()

    def lit(self) -> set[str]:
        """Return the piles that are lit."""
        script = "return [...document.querySelectorAll('button.pile.lit')].map((pile) => pile.dataset.name)"
        return set(self.driver.execute_script(script))

    def picked(self) -> list[str]:
        """Return the piles that are chosen."""
        script = "return [...document.querySelectorAll('button.pile.picked')].map((pile) => pile.dataset.name)"
        return list(self.driver.execute_script(script))

    def cards(self, name: str) -> list[str]:
        """Return the cards that are drawn on a pile, bottom first."""
        script = "return [...arguments[0].querySelectorAll('use')].map((use) => use.getAttribute('href'))"
        return [href.rpartition("-")[2] for href in self.driver.execute_script(script, self.pile(name))]

    def click(self, selector: str) -> None:
        """Click an element."""
        self.driver.find_element("css selector", selector).click()

    def complaints(self) -> list[str]:
        """Return the errors in the browser's log."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
