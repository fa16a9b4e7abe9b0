// A chart that owns its drawing: Plotly.js comes once, when the first chart is drawn, and each new figure is laid over
// the old one, so that a chart which grows point by point neither flickers nor leaks. props.source is Plotly's address.
const plot = element.querySelector('.plot');
window.tpPlotly ??= {ready: null};

function library() {
  tpPlotly.ready ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = props.source;
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return tpPlotly.ready;
}

// What is pressed here ends in charts: Plotly comes while the work is done.
window.tpPlotly.comes ??= addEventListener('click', e => {
  if (e.target.closest?.('#run, #trace, #tune-start')) library();
}, true) ?? true;

let drawn = false;
async function draw() {
  if (!props.value) {
    if (drawn) window.Plotly.purge(plot);
    drawn = false;
    plot.style.height = '';
    return;
  }
  const fig = JSON.parse(props.value);
  plot.style.height = fig.layout.height + 'px';
  const Plotly = await library();
  await document.fonts.ready;  // labels are measured once; a late font would cut them
  if (!plot.isConnected) return;
  await Plotly.react(plot, fig.data, fig.layout, {displayModeBar: false, responsive: false, scrollZoom: false});
  drawn = true;
}

new ResizeObserver(() => { if (drawn && plot.offsetWidth) Plotly.Plots.resize(plot); }).observe(element);
watch('value', draw);
draw();
