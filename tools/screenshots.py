"""Takes the README's screenshots from the real page: `python -m tools.screenshots`.

It starts the page on a free port, runs a kernel in it as a person would, and saves the page in light and dark. What
they show is measured on the host that takes them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tools import browser

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "assets" / "screenshots"
CHOICE = "?kernel=add_rms_norm&rows=4096&n=4096&dtype=bfloat16"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SIZE: ViewportSize = {"width": 1440, "height": 1100}


def serve(port: int) -> subprocess.Popen:
    """The page on this port, once it answers."""
    env = {**os.environ, "GRADIO_SERVER_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                return process
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.25)
    process.terminate()
    raise SystemExit(f"the page does not answer on port {port}")


def shoot(chromium: Browser, address: str, scheme: Literal["light", "dark"]) -> None:
    """Press Run, wait for the verdict, and save the page as it then stands."""
    page = chromium.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1.25)
    page.goto(address + CHOICE)
    filled = "[...document.querySelectorAll('input')].filter(field => field.value === '4096').length >= 2"
    page.wait_for_function(filled)  # the address has been heeded: rows and n
    run, stop = (page.get_by_role("button", name=name, exact=True) for name in ("Run", "Stop"))
    run.click()
    stop.wait_for()
    run.wait_for(timeout=120_000)  # it takes Stop's place when the answer is whole
    page.wait_for_timeout(1500)  # charts draw themselves
    page.screenshot(path=FOLDER / f"run-{scheme}.png")
    page.close()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    FOLDER.mkdir(parents=True, exist_ok=True)
    process = serve(port)
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser.find(), args=FLAGS)
            shoot(chromium, f"http://127.0.0.1:{port}/", "light")
            shoot(chromium, f"http://127.0.0.1:{port}/", "dark")
            chromium.close()
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
