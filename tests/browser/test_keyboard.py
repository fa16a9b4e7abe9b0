"""The page by keyboard alone: no stop without a name, one stop for each group, arrows inside it and around its end."""

from __future__ import annotations

import pytest

from tests.browser.test_look import served
from tests.ui.fake_engine import FakeEngine

STOP = """() => {
  const e = document.activeElement, box = e.getBoundingClientRect();
  const named = e.labels?.[0]?.textContent || e.ariaLabel || e.textContent || '';
  return [e.tagName, e.type ?? '', named.trim().split('\\n')[0], Math.min(box.width, box.height)];
}"""
TAB = "document.querySelector('#tabs [role=tab][aria-selected=true]').dataset.tabId"


@pytest.fixture(scope="module")
def base():
    demo, address = served(FakeEngine())
    yield address
    demo.close(verbose=False)


def opened(page, base):
    page.goto(f"{base}/")
    page.wait_for_selector("#chips .chip")
    page.wait_for_selector("#sweep .main-svg")


def test_each_stop_on_the_way_to_the_tabs_has_a_name_and_is_seen(page, base):
    opened(page, base)
    stops = []
    while len(stops) < 40:
        page.keyboard.press("Tab")
        stops.append(page.evaluate(STOP))
        if stops[-1][2] == "Run" and len(stops) > 15:
            break
    assert [s for s in stops if s[0] in ("BODY", "UL", "DIV") or not s[2] or s[3] < 12] == []
    names = [s[2] for s in stops]
    assert names[-1] == "Run" and names.count("Run") == 2  # the button, and the one tab that is a stop
    assert [s[1] for s in stops].count("radio") == 1


def test_arrows_choose_within_a_group(page, base):
    opened(page, base)
    page.get_by_label("kernel", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("location.search.includes('rows=1&')")  # decode: the preset after default


def test_arrows_go_around_the_tabs(page, base):
    opened(page, base)
    page.focus("#tabs [role=tab][aria-selected=true]")
    seen = []
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight", "End", "ArrowRight", "End", "Home"):
        page.keyboard.press(key)
        seen.append(page.evaluate(TAB))
        assert page.evaluate("document.activeElement.dataset.tabId") == seen[-1]
    assert seen == ["Chat", "Run", "Memory", "Chat", "Run", "Chat", "Run"]
