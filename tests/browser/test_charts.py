"""The charts' script by itself, with a Plotly that only notes for what width it draws."""

import re

from playground.ui import live

DRAWN = """async code => {
  const element = document.getElementById('chart'), widths = [];
  window.tp = {turn: Promise.resolve(), plotly: async () => {}};
  window.Plotly = {purge() {}, react: async plot => {
    widths.push(plot.offsetWidth);
    element.style.width = '400px';  // somebody turns a phone
  }};
  const props = {source: '', value: JSON.stringify({data: [], layout: {height: 200}})};
  new Function('element', 'props', 'watch', code)(element, props, () => {});
  await new Promise(done => setTimeout(done, 500));
  return widths;
}"""


def test_a_chart_whose_window_changes_while_it_is_drawn_is_drawn_again(chrome):
    page = chrome.new_page()
    page.set_content('<div id="chart" style="width: 700px"><div class="plot"></div></div>')
    first, *later = page.evaluate(DRAWN, live.script("chart.js"))
    assert first == 700 and set(later) == {400}
    page.close()


AGAIN_AND_AGAIN = """async ([code, source]) => {
  const element = document.getElementById('chart'), props = {source, value: null};
  window.tp = {turn: Promise.resolve(), plotly: () => tp.library};
  tp.library = new Promise(done => {
    const script = document.createElement('script');
    script.src = source;
    script.onload = done;
    document.head.append(script);
  });
  let changed;
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function(...given) {
    if (this.matches?.('.plot')) this.heard = (this.heard ?? 0) + 1;
    return add.apply(this, given);
  };
  new Function('element', 'props', 'watch', code)(element, props, (name, draw) => { changed = draw; });
  for (let i = 0; i < 12; i++) {
    element.style.width = `${500 + i % 3 * 100}px`;
    props.value = i % 4 === 3 ? null : JSON.stringify({data: [{type: 'bar', x: [1], y: [i]}], layout: {height: 200}});
    changed();
    await tp.turn;
  }
  const plot = element.querySelector('.plot');
  return [element.children.length, plot.heard ?? 0, plot.getAttribute('role')];
}"""


def test_a_chart_that_is_drawn_and_emptied_again_and_again_gathers_no_listeners(page, base):
    """Plotly's own purge leaves one with each drawing."""
    source = re.search(r"/playground-assets/plotly[\w.]+js", page.request.get(f"{base}/config").text())[0]
    page.goto(f"{base}/robots.txt")
    page.set_content('<div id="chart"><div class="plot" role="img"></div></div>')
    assert page.evaluate(AGAIN_AND_AGAIN, [live.script("chart.js"), base + source]) in ([1, 0, "img"], [1, 1, "img"])
