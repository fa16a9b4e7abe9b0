"""Run & compare as a person uses it, in Chromium, on this CPU."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import expect

from playground.engine.messages import BenchRequest, EngineError

RIGHT, WRONG, FAILED, BUSY = (f"#answer .verdict.{kind}" for kind in ("right", "wrong", "failed", "busy"))
SMALL = "kernel=vector_add&n=5000&dtype=float32"


def visit(page, base, query="", **more):
    """Open a link and wait until the bench holds what it asks for."""
    page.goto(f"{base}/?{query}")
    page.wait_for_selector("#chips .chip")


def size(page, label):
    return page.get_by_label(label, exact=True)


def headline(page):
    return page.inner_text("#answer .verdict h2")


def cpu_worker() -> int:
    """The process id of this server's CPU worker."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if {"playground.engine.worker", "cpu", str(os.getpid())} <= set(words):
                    return int(entry.name)
    raise AssertionError("no CPU worker runs")


def download(page, name):
    with page.expect_download() as got:
        page.get_by_role("button", name=name, exact=True).click()
    return got.value.suggested_filename, Path(got.value.path()).read_text()


def test_an_empty_page_says_what_run_brings(page, base):
    began = time.monotonic()
    visit(page, base)
    assert headline(page) == "Not run yet" and "Press Run" in page.inner_text("#answer")
    assert not page.is_visible("table.fig") and not page.is_visible("#stop")
    assert size(page, "rows").input_value() == "64"
    expect(page.locator(".top .device")).not_to_contain_text("Starting")
    assert "no GPU" in page.inner_text(".top .device") and "triton" in page.inner_text(".top .host ul")
    assert time.monotonic() - began < 30


def test_run_brings_the_verdict_then_times_and_reasons(page, base):
    visit(page, base, SMALL)
    page.click("#run")
    page.wait_for_selector(RIGHT)
    assert "ulp" in page.inner_text("#answer") or "equals the float64" in page.inner_text("#answer")
    page.wait_for_selector("#here table.fig")
    page.wait_for_selector("#run")  # it has taken Stop's place again
    rows = page.locator("#here table.fig tbody tr").all_inner_texts()
    assert rows[0].startswith("Triton") and any(r.startswith("eager") for r in rows)
    assert page.locator("#here .badge.measured").count() >= 2
    page.wait_for_selector("#here .main-svg")
    assert re.search(r"time, (µs|ms) \(less is better\)", page.text_content("#here .js-plotly-plot"))
    assert "Bound by memory" in page.inner_text("#why") and page.locator("#why .badge.compiled").count() == 1
    # What can be taken along
    name, text = download(page, "CSV")
    first = next(csv.DictReader(io.StringIO(text)))
    assert (name, first["provider"], first["dims"]) == ("vector_add.csv", "triton", "n=5000")
    name, text = download(page, "JSON")
    assert json.loads(text)["run"]["ok"] is True and name == "vector_add.json"
    # The runs of this visit
    page.click("#chips [data-name='One element']")
    page.wait_for_selector("#runs [data-open='2']")
    page.click("#runs [data-open='1']")
    page.wait_for_selector("#here table.fig")
    assert size(page, "n").input_value() == "5000"


def test_the_exported_script_reproduces_the_run(page, base, tmp_path):
    visit(page, base, "kernel=add_rms_norm&rows=3&n=40&dtype=float32&edge=One+row")
    page.click("#run")
    page.wait_for_selector(RIGHT)
    page.wait_for_selector("#visit")
    name, text = download(page, "Script that reproduces this")
    (tmp_path / name).write_text(text)
    done = subprocess.run([sys.executable, "-I", name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "out: right" in done.stdout


def test_a_planted_bug_is_wrong_and_has_no_time(page, base):
    visit(page, base)
    page.click("#chips [data-name='Mean over the block']")
    page.wait_for_selector(WRONG)
    assert headline(page) == "Wrong from index [0, 0] of out on"
    assert re.search(r"Got -?[\d.e-]+, expected -?[\d.e-]+\.", page.inner_text("#answer"))
    assert page.is_visible(".errmap .bad") and not page.is_visible("pre.diff")  # no answer before one asks for it
    page.click("#note summary")
    assert page.is_visible("pre.diff .ins")
    assert "Hint: How many elements does the mean have?" in page.inner_text("#note")
    assert not page.is_visible("#here") and not page.is_visible("#why")
    assert "bug=Mean+over+the+block" in page.url
    chip = page.locator("#chips [data-name='Mean over the block']")
    expect(chip).to_have_attribute("aria-pressed", "true")
    assert "has set dtype to float32. Without it dtype bfloat16 comes back." in page.inner_text("#case-note")
    chip.click()  # it also puts its case away
    page.wait_for_selector(RIGHT)
    expect(chip).to_have_attribute("aria-pressed", "false")
    assert page.get_by_label("dtype").input_value() == "bfloat16" and not page.is_visible("#case-note")


def test_an_edit_is_judged_kept_for_its_kernel_and_exported(page, base):
    visit(page, base, SMALL)
    page.click("#edit-open")
    editor = page.locator("#edit-text textarea")
    expect(editor).to_have_value(re.compile("def vector_add_kernel"))
    page.click("#edit-run")
    expect(page.locator(FAILED)).to_contain_text("Change a line of it")
    whole = editor.input_value()
    editor.fill(whole.replace("x.to(tl.float32) + y", "x.to(tl.float32) - y", 1))
    page.click("#edit-run")
    page.wait_for_selector(WRONG)
    assert "Your edit" in page.inner_text("#note") and page.locator("#note .ins").count() == 1
    assert "edited" in page.inner_text("#runs")
    _, text = download(page, "Script that reproduces this")
    assert "x.to(tl.float32) - y" in text
    editor.fill(whole.replace("x.to(tl.float32) + y", "x.to(tl.float32 + y", 1))
    page.click("#edit-run")
    expect(page.locator(FAILED)).to_contain_text(re.compile(r"Line \d+"))
    page.click("#run")  # the kernel as it is
    page.wait_for_selector(RIGHT)
    assert not page.is_visible("#note .ins")
    page.click("#edit-again")
    expect(editor).to_have_value(whole)


def test_an_answer_is_not_pushed_out_of_sight_by_what_comes_below_it(page, base):
    page.set_viewport_size({"width": 1440, "height": 700})
    visit(page, base)
    page.click("#chips [data-name='Mean over the block']")  # far down: the browser holds on to what is clicked
    page.wait_for_selector(WRONG)
    page.wait_for_selector(".errmap")
    expect(page.locator("#answer .verdict")).to_be_in_viewport()


def test_an_answer_says_when_it_is_of_another_choice_and_a_new_one_comes_into_view(page, base):
    visit(page, base, SMALL)
    page.click("#run")
    page.wait_for_selector(RIGHT)
    page.locator("#run").wait_for()
    answer, stale = page.locator("#answer"), re.compile("Run answers for the one above")
    expect(answer).not_to_have_attribute("data-stale", stale)
    for n in ("6000", "5000"):
        size(page, "n").fill(n)
        size(page, "n").press("Tab")
        (expect(answer).to_have_attribute if n == "6000" else expect(answer).not_to_have_attribute)("data-stale", stale)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(answer).not_to_be_in_viewport()
    page.evaluate("document.querySelector('#chips .chip').click()")
    expect(answer).to_be_in_viewport()
    page.wait_for_selector(f"{RIGHT}, {WRONG}, {FAILED}")
    expect(answer).not_to_have_attribute("data-stale", stale)


def test_out_of_bounds_names_the_line(page, base):
    visit(page, base, "kernel=vector_add&bug=Forgotten+mask&n=1025")
    page.click("#run")
    page.wait_for_selector(WRONG)
    assert headline(page).startswith("Out of bounds: a ")
    assert "tl." in page.inner_text("pre.source .hit")


def test_bad_input_is_one_line_and_the_next_run_works(page, base):
    visit(page, base)
    for value, says in (
        ("0", "rows must be 1 or more, and it is 0"),
        ("3.5", "rows must be whole, and it is 3.5"),
        ("99999999999", "rows must be 2,147,483,648 or less, and it is 99,999,999,999"),
        ("", "rows is empty"),
        ("-1", "rows must be 1 or more, and it is -1"),
    ):
        size(page, "rows").fill(value)
        page.click("#run")
        expect(page.locator(f"{FAILED} h2")).to_have_text(says)
        assert "Nothing was run." in page.inner_text("#answer")
    expect(page.locator("#visit")).to_be_hidden()  # no empty sheet for runs that there are none of
    size(page, "rows").fill("2")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(RIGHT)
    expect(page.locator("#visit")).to_contain_text("Runs of this visit", timeout=60_000)


def test_a_link_restores_the_choice(page, base):
    visit(page, base, "kernel=softmax&rows=7&n=77&dtype=float16&seed=5&bug=Row+stride+forgotten&tab=Run")
    expect(size(page, "n")).to_have_value("77")
    assert size(page, "seed").input_value() == "5" and size(page, "rows").input_value() == "7"
    assert page.locator(".f-dtype input").input_value() == "float16"
    page.wait_for_function("new URL(location).searchParams.get('seed') === '5'")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("[data-do=link]")
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url and "bug=Row+stride+forgotten" in copied
    other = page.context.new_page()
    other.goto(copied)
    expect(size(other, "n")).to_have_value("77")


def test_a_broken_link_says_so_and_runs_nothing_of_it(page, base):
    visit(page, base, "kernel=add_rms_norm&rows=%3Cimg%20src=x%20onerror=document.title=1%3E&n=48")
    page.wait_for_selector(FAILED)
    assert "rows is '<img src=x onerror=document.title=1>'" in page.inner_text("#answer")
    assert page.title() == "Triton Playground" and not page.locator("#answer img").count()
    assert size(page, "n").input_value() == "48"


def test_a_sweep_is_stopped_and_keeps_what_it_has(page, base):
    visit(page, base, "kernel=vector_add&dtype=float32&n=5000")
    expect(page.locator("#sweep-here")).to_contain_text("Not swept")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep .half:first-child .main-svg")
    page.keyboard.press("Escape")
    expect(page.locator("#sweep-here")).to_contain_text("Stopped after")
    assert page.is_visible("#run") and page.locator("#sweep .half:first-child .main-svg").count()
    assert page.locator("#sweep-here .badge.measured").count() == 1


def test_stop_stops_and_a_killed_worker_gives_a_line(page, base):
    visit(page, base, "kernel=softmax&rows=4096&n=4096&dtype=float32")
    page.click("#run")
    page.wait_for_selector(BUSY)
    page.click("#stop")
    page.wait_for_selector("#run")
    page.click("#run")
    page.wait_for_selector(BUSY)
    page.wait_for_function("!document.querySelector('#answer').innerText.includes('Starting')")
    os.kill(cpu_worker(), signal.SIGKILL)
    page.wait_for_selector("#run")
    assert re.search("worker|crash|died|kill", page.inner_text("#answer"))
    visit(page, base, SMALL + "&edge=One+element")
    page.click("#run")
    page.wait_for_selector(RIGHT)


def test_who_waits_sees_their_place(page, base, engine):
    """Another's benchmark holds the CPU; it is stopped as soon as the place has been seen."""
    cancel, began = threading.Event(), threading.Event()

    def other() -> None:
        with contextlib.suppress(EngineError):
            request = BenchRequest(kernel="softmax", dims={"rows": 4096, "n": 8192}, dtype="float32")
            for _ in engine.stream(request, cancel):
                began.set()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert began.wait(60)
        visit(page, base, SMALL + "&edge=One+element")
        page.click("#run")
        page.wait_for_selector("text=1 request before yours")
    finally:
        cancel.set()
        thread.join(60)
    page.wait_for_selector(RIGHT)
