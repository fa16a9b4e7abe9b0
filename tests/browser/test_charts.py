"""The charts' script by itself, with a Plotly that only notes for what width it draws."""

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
