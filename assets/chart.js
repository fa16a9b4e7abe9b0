// A chart that owns its drawing: each new figure is laid over the old one, so that a chart which grows point by point
// neither flickers nor leaks. props.source is Plotly's address; page.js fetches it, once.
let plot = element.querySelector('.plot');
tp.plotlyAt = props.source;
let drawn = false, wide = 0;

// Charts are drawn one after another, and the browser paints in between: the first is seen before the last is drawn.
function draw() {
  if (!props.value) {
    if (drawn) clear();
    plot.style.height = '';
    return;
  }
  const value = props.value, fig = JSON.parse(value), lay = () => laid(value, fig);
  plot.style.height = fig.layout.height + 'px';
  tp.turn = tp.turn.then(lay, lay);
}

async function laid(value, fig) {
  await tp.plotly();
  await document.fonts.ready;  // labels are measured once; a late font would cut them
  if (!plot.isConnected || props.value !== value) return;
  const now = plot.offsetWidth;  // taken before: the window may change while Plotly draws for this width
  // Drawn afresh: only stretched, a legend that takes other lines would lie over the plot, and react sees no change.
  if (drawn && now !== wide) clear();
  wide = now;
  await Plotly.react(plot, fig.data, fig.layout, {displayModeBar: false, responsive: false, scrollZoom: false});
  drawn = true;
  follow();
  await new Promise(painted => setTimeout(painted));
}

// Purged, the element keeps Plotly's wheel listener, and the next drawing adds one: so it gives way to a fresh one.
function clear() {
  Plotly.purge(plot);
  const fresh = plot.cloneNode(false);
  plot.replaceWith(fresh);
  plot = fresh;
  drawn = false;
}

function follow() {
  const now = plot.offsetWidth;  // 0 while its tab is hidden
  if (drawn && now && now !== wide) draw();
}

new ResizeObserver(follow).observe(element);
watch('value', draw);
draw();
