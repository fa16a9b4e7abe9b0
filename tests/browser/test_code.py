"""The Code and Autotune tabs as a person uses them, in Chromium, on this CPU."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

SMALL = "kernel=vector_add&n=4096&dtype=float32"


def serious(page):
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:160]) for v in found if v["impact"] in ("serious", "critical")]


def opened(page, base, tab):
    page.goto(f"{base}/?{SMALL}&tab={tab}")
    page.wait_for_selector("#chips .chip", state="attached")


def test_code_compiles_unasked_and_links_its_lines_both_ways(page, base):
    opened(page, base, "Code")
    page.wait_for_selector(".codeview .stage .ln")
    assert re.search(r"\d+ registers a thread", page.inner_text("#code-answer h2"))
    # From Python: pin the line of the load; the PTX that came from it lights up.
    page.locator(".py .ln", has_text="tl.load(x_ptr").click()
    hot = page.locator(".stage .ln.hot").all_inner_texts()
    assert any("ld.global" in text for text in hot)
    # From the machine code back.
    page.click("[data-stage=sass]")
    page.locator(".stage .ln.hot", has_text="LDG").first.wait_for()
    page.locator(".stage .ln", has_text="STG").first.click()
    assert "tl.store" in page.inner_text(".py .ln.hot")
    # A finding leads to its rows, search counts hits, and the code can be taken along.
    page.locator(".finds button", has_text="16-byte loads").click()
    assert page.get_attribute("[role=tab][data-stage=ptx]", "aria-selected") == "true"
    page.fill(".codeview input[type=search]", "ld.global")
    assert int(page.inner_text(".codeview output")) >= 2
    with page.expect_download() as got:
        page.click(".codeview [data-do=save]")
    assert got.value.suggested_filename == "vector_add_kernel.sm_90.ptx"
    assert Path(got.value.path()).read_text().startswith(".version")
    page.keyboard.press("Escape")
    page.focus(".py")
    page.keyboard.press("ArrowDown")
    assert page.locator(".py .ln.hot").count() == 1
    assert serious(page) == []


def test_a_link_restores_target_and_stage_and_the_page_keeps_them(page, base):
    page.goto(f"{base}/?{SMALL}&tab=Code&target=sm_80&stage=sass&tune=sm_100")
    page.wait_for_selector(".codeview .stage .ln")
    assert "for sm_80" in page.inner_text("#code-answer")
    assert page.get_attribute("[role=tab][data-stage=sass]", "aria-selected") == "true"
    page.click("[data-stage=ttgir]")
    page.locator("#code-form input").click()
    page.locator("[role=option]", has_text="sm_89").first.click()
    expect(page.locator("#code-answer")).to_contain_text("for sm_89")
    assert all(kept in page.url for kept in ("target=sm_89", "stage=ttgir", "tune=sm_100"))
    page.get_by_role("tab", name="Autotune").click()
    expect(page.locator("#tune-form input").first).to_have_value(re.compile("sm_100"))


def test_two_targets_are_compared(page, base):
    opened(page, base, "Code")
    page.wait_for_selector(".codeview .stage .ln")
    page.get_by_label("target").nth(1).click()
    page.locator("[role=option]", has_text="sm_80").last.click()
    page.click("button:has-text('Compare')")
    page.wait_for_selector(".diff li")
    assert "sm_80" in page.inner_text("table.fig thead >> nth=-1")


def test_a_kernel_is_compared_before_and_after_an_edit(page, base):
    opened(page, base, "Code")
    page.wait_for_selector(".codeview .stage .ln")
    page.click("#compare-kernel input")
    page.locator("[role=option]", has_text="edited below").click()
    editor = page.locator("#compare-editor textarea")
    text = editor.input_value()
    editor.fill(text.replace("x.to(tl.float32) + y.to(tl.float32)", "x.to(tl.float32) * y.to(tl.float32)", 1))
    page.click("#compare")
    added = page.locator("#compared .diff .plus")
    added.first.wait_for()
    assert "tl.float32) * y" in added.first.text_content()
    # The edit is there as long as its kernel is, for another target too.
    page.locator("#code-form input").click()
    page.locator("[role=option]", has_text="sm_89").first.click()
    expect(page.locator("#code-answer")).to_contain_text("for sm_89")
    expect(added).to_have_count(0)
    assert "* y.to(tl.float32)" in editor.input_value()
    page.click("#compare")
    added.first.wait_for()
    # Another stage is drawn at once, and what does not compile names its line.
    page.click("#compare-stage input")
    page.locator("[role=option]", has_text="PTX").click()
    page.locator("#compared .diff .plus", has_text="mul").first.wait_for()
    editor.fill(text.replace("mask = offsets < n_elements", "mask = offsets < nothing", 1))
    page.click("#compare")
    line = 1 + text[: text.index("mask = offsets < n_elements")].count("\n")
    said = page.locator("#compared .verdict.failed")
    expect(said).to_contain_text(f"line {line}: `mask = offsets < nothing`")
    assert serious(page) == []


@pytest.mark.slow
def test_what_torch_compile_writes_for_a_block_is_read_in_the_page(page, base):
    opened(page, base, "Code")
    page.wait_for_selector(".codeview .stage .ln")
    page.click("#inductor-block")
    page.locator(".gen").first.wait_for()
    assert page.locator(".gen").count() >= 3
    noticed = page.locator(".why li:visible").all_inner_texts()
    assert len(noticed) == 3 and any("a norm" in text and "a softmax" in text for text in noticed)
    page.locator(".gen summary", has_text="rsqrt").first.click()
    assert "@triton.jit" in page.locator(".gen[open] pre").first.inner_text()


def test_code_that_cannot_be_compiled_says_why(page, base):
    opened(page, base, "Code")
    page.wait_for_selector(".codeview .stage .ln")
    page.get_by_label("n", exact=True).fill("-1")
    page.click("#compile")
    expect(page.locator("#code-answer .verdict.failed")).to_contain_text("n must be 1 or more")
    assert not page.is_visible(".codeview")


def test_own_ranges_are_swept_and_the_winner_kept(page, base):
    opened(page, base, "Autotune")
    page.get_by_label(re.compile("own ranges")).fill("BLOCK=1024,2048 num_warps=4")
    page.click("#tune-start")
    expect(page.locator("#tune-answer")).to_contain_text("2 of 2 configs tried")
    assert page.locator("table.configs tbody tr").count() == 2
    assert page.locator("#tune-grid td.best").count() == 1
    page.locator(".main-svg:visible").first.wait_for()
    with page.expect_download() as got:
        page.get_by_role("button", name="triton.Config list").click()
    text = Path(got.value.path()).read_text()
    assert text.count("triton.Config({'BLOCK': ") == 2
    page.locator("[role=img][aria-label^='How the configs']").wait_for()
    page.click("#tune-keep")
    assert "vector_add" in page.locator("#winners tbody tr").first.inner_text()
    # Run takes the winner without being told to.
    page.click("#warm")
    first = page.locator("#warm-up tbody tr", has_text="decode")
    assert "(tuned)" in first.inner_text()
    page.click("#forget-all")
    page.get_by_text("1 winner forgotten").wait_for()
    assert page.locator("#winners tbody tr").count() == 0
    assert serious(page) == []


def test_a_recorded_sweep_is_there_before_ones_own(page, base):
    page.goto(f"{base}/?kernel=add_rms_norm&tab=Autotune")
    answer = page.locator("#tune-answer")
    expect(answer).to_contain_text("recorded NVIDIA H200")
    expect(answer).to_contain_text("Recorded for rows=64, n=3,000. Sweep configs tries them on this device.")
    assert page.locator("table.configs tbody tr").count() > 5 and page.locator("#tune-grid td.best").count() > 0
    page.click("#tune-keep")
    page.get_by_text("No config has won on this device").wait_for()
    page.get_by_label(re.compile("own ranges")).fill("BLOCK_N=4096 num_warps=4")
    page.click("#tune-start")
    expect(answer).to_contain_text("1 of 1 configs tried")
    expect(answer).not_to_contain_text("NVIDIA H200")
    assert page.locator("table.configs tbody tr").count() == 1
    # Of another shape it is stale, on a busy host as well, whose sweep has no winner.
    answer.locator(".verdict").evaluate("verdict => { verdict.className = 'verdict unknown'; }")
    page.get_by_label("n", exact=True).fill("5000")
    page.keyboard.press("Tab")
    expect(answer).to_have_attribute("data-stale", re.compile("Of an earlier choice"))


def test_ranges_that_cannot_be_are_one_line(page, base):
    opened(page, base, "Autotune")
    page.get_by_label(re.compile("own ranges")).fill("WIDTH=3")
    page.click("#tune-start")
    expect(page.locator("#tune-answer .verdict.failed")).to_contain_text("Own ranges hold 'WIDTH'")


def test_a_sweep_can_be_stopped_and_keeps_what_it_found(page, base):
    opened(page, base, "Autotune")
    page.get_by_label(re.compile("own ranges")).fill("BLOCK=64,128,256,512,1024,2048,4096,8192 num_warps=1,2,4,8")
    page.click("#tune-start")
    page.wait_for_selector("#tune-grid td:not(.none)")
    page.click("#tune-stop")
    page.wait_for_selector("#tune-start:visible")
    assert page.locator("table.configs tbody tr").count() > 1


def test_both_tabs_fit_a_phone(page, base):
    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("Code", "Autotune"):
        opened(page, base, tab)
        page.wait_for_selector({"Code": ".codeview .stage .ln", "Autotune": "#tune-start"}[tab])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
