"""The Memory tab in a browser: it opens traced, its pictures can be played, scrubbed, picked and pointed at."""

import pytest

SMALL = "tab=Memory&kernel=add_rms_norm&rows=16&n=300&dtype=bfloat16"


def opened(page, base, query=SMALL):
    page.goto(f"{base}/?{query}")
    page.locator(".accmap .site").first.wait_for(timeout=150_000)  # the first trace starts a worker
    return page


def test_it_traces_by_itself_and_draws_everything(page, base):
    opened(page, base)
    assert "asked for" in page.locator("#memory-answer h2").inner_text()
    assert page.locator(".hier li").count() == 5
    assert page.locator(".accmap .site").count() == 5
    assert [li.split("\n")[0] for li in page.locator(".ways:not(.limits) li").all_inner_texts()] == [
        "Compulsory", "Asked for", "DRAM saw",
    ]  # fmt: skip
    page.locator(".chart .sankey").first.wait_for()
    page.get_by_label("Roofline: TFLOP per second against FLOP per byte").locator(".xtitle").wait_for()
    assert page.locator("#stop-trace").is_hidden()


def test_the_journey_steps_and_scrubs(page, base):
    opened(page, base, SMALL + "&still=1")
    now = page.locator('.lane[data-lane="0"] .now')
    page.locator(".journey input[type=range]").fill("0")
    assert now.inner_text().startswith("1 of 7. add_rms_norm_kernel: load x, 9.60 KB")
    page.get_by_role("button", name="Next step").click()
    assert now.inner_text().startswith("2 of 7")
    page.locator(".journey input[type=range]").fill("1000")
    assert now.inner_text().startswith("Done after")
    play = page.locator(".journey [data-do=play]")
    assert play.inner_text() == "Play again" or play.inner_text() == "Play"
    play.click()
    assert play.inner_text() == "Pause"
    play.click()
    assert play.inner_text() == "Play"


def test_a_program_is_picked_and_its_lanes_are_read(page, base):
    opened(page, base)
    page.locator(".accmap input[type=range]").fill("1")
    assert page.locator(".accmap .which").inner_text().startswith("1 of 16")
    fan = page.locator(".fan svg").first
    fan.scroll_into_view_if_needed()
    box = fan.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    read = page.locator(".accmap .read")
    assert "Lane 0 loads x[300], byte 600" in read.inner_text() and "value" in read.inner_text()
    fan.focus()
    page.keyboard.press("ArrowRight")
    assert "Lane 0 " not in read.inner_text()


def test_a_forgotten_mask_is_found_where_it_is(page, base):
    page.goto(f"{base}/?{SMALL}&bug=Forgotten+mask".replace("dtype=bfloat16", "dtype=float32"))
    page.locator(".site.outside").first.wait_for(timeout=150_000)
    assert page.locator("#memory-answer h2").inner_text().startswith("Out of bounds")
    assert "element 4,800 of x" in page.locator(".site.outside .miss").first.inner_text()


def test_a_link_restores_the_gpu_and_the_page_keeps_it(page, base):
    opened(page, base, f"{SMALL}&gpu=A100")
    assert page.get_by_text("The levels of an A100").is_visible()
    page.locator("#memory-form input").click()
    page.locator("[role=option]", has_text="MI300X").click()
    page.get_by_text("The levels of an MI300X").wait_for(timeout=60_000)
    assert "gpu=MI300X" in page.url and page.get_by_text("512 KB per CU").is_visible()
    with page.expect_download() as got:
        page.click("#trace-csv")
    assert got.value.suggested_filename == "add_rms_norm_trace.csv"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_nothing_is_wider_than_the_page(page, base, width, mode):
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, base, f"{SMALL}&__theme={mode}&still=1")
    page.locator(".chart .sankey").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ink, ground = page.evaluate(
        """() => { const css = getComputedStyle(document.querySelector('.site h3')); const p = document.querySelector(
        '.sheet'); return [css.color, getComputedStyle(p).backgroundColor].map(c => c.match(/[0-9.]+/g).slice(0, 3)
        .reduce((a, v) => a + +v, 0)); }"""
    )
    assert (ink < ground) == (mode == "light")
