"""The real page on the real engine, in a real browser: one server and one browser for all tests of a process."""

from __future__ import annotations

import dataclasses
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from playground.engine.engine import Engine
from playground.native.cache import folder as native_folder
from playground.settings import Settings
from tests.decoder import tiny
from tools import browser as chromium

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

# Gradio's client ends its streams when a page is left while they are open, and reports what it did.
PARTING = (
    "console: AbortError: signal is aborted",
    "console: AbortError: BodyStreamBuffer was aborted",  # the same, as Chromium 150 says it
    "console: Unexpected error Connection errored out",
)

SAYS = ".verdict, .working, .toast-wrap"  # where the page says what it does, what came out and what failed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A failed test says where its page was, and what the page said: a wait that ran out says only what it missed."""
    report = yield
    page = item.funcargs.get("page")
    if report.when == "call" and report.failed and page and not page.is_closed():
        said = page.locator(SAYS).filter(visible=True).all_inner_texts()
        report.sections.append(("the page", "\n".join([page.url, *said])))
    return report


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    compiled = native_folder()  # which the sessions may share: it holds no one's choices
    with tempfile.TemporaryDirectory() as cache, socket.socket() as probe, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYGROUND_NATIVE_CACHE", str(compiled))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        made = Engine(dataclasses.replace(Settings.from_env(), port=port, host="127.0.0.1", cache=Path(cache),
                                          model=str(tiny.folder())))  # fmt: skip
        yield made
        made.close()


@pytest.fixture(scope="session")
def base(engine) -> Iterator[str]:
    from playground.ui import server

    demo = server.serve(engine, engine.settings)
    yield f"http://127.0.0.1:{engine.settings.port}"
    demo.close(verbose=False)


@pytest.fixture(scope="session")
def chrome():
    path = chromium.find()
    if path is None:
        pytest.skip("no Chromium here: `apt install chromium` or `.venv/bin/playwright install chromium` brings one")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chrome, base):
    """A new visit. Whatever the browser complains of, or loads from elsewhere, fails the test at its end."""
    context = chrome.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    trouble: list[str] = []
    visits: list[str] = []
    page.on("framenavigated", lambda frame: visits.append(frame.url))  # about:blank too, which asks for nothing
    page.on("console", lambda m: trouble.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda e: trouble.append(f"error: {e}"))
    page.on("request", lambda r: trouble.append(f"outside: {r.url}") if outside(r.url, base) else None)
    yield page
    seen = list(trouble)  # closing the window is no fault of the page's
    context.close()
    # What Gradio says of its own streams as a page is left for another comes before the other is asked for.
    assert [t for t in seen if len(visits) < 2 or not t.startswith(PARTING)] == []


def outside(url: str, base: str) -> bool:
    return not url.startswith((base, "data:", "blob:"))
