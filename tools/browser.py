"""Sees to a Chromium for the browser tests, where that takes nobody by surprise.

The system's Chromium is taken where there is one. Where there is none, apt and root are there (a container, CI), it
is installed; anywhere else the browser tests skip, and say how to get one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT_SECONDS = 420


def find() -> str | None:
    """The Chromium that tests drive: the system's, else the one Playwright has downloaded; None without either."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    downloaded = sorted(cache.glob("chromium-*/chrome-linux*/chrome"))
    return str(downloaded[-1]) if downloaded else None


def apt(*arguments: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-o", "Acquire::Retries=2", *arguments]
    try:
        return subprocess.run(command, env=env, capture_output=True, timeout=APT_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    if find():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("browser: installing chromium with apt (up to 2 minutes)", flush=True)
        if apt("update") and apt("install", "-y", "--no-install-recommends", "chromium") and find():
            return
    print("browser: no Chromium here, so the browser tests skip; `.venv/bin/playwright install chromium` brings one")


if __name__ == "__main__":
    main()
