// The journey of a tile: two lanes on one clock in microseconds. Playing, stepping and scrubbing only set the clock.
// The value is JSON, see memory_views.journey.
const root = element.querySelector('.journey');
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'}[c]));
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches || new URLSearchParams(location.search).has('still');
const SECONDS = 14;
const LEVELS = [['registers', 'Registers'], ['sram', 'Shared memory'], ['l2', 'L2'], ['hbm', 'Memory']];
let data = null, lanes = [], views = [], end = 0, most = 0, clock = 0, last = 0, running = false, seen = false;

const digits = v => v >= 1000 ? Math.round(v).toLocaleString('en') : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
function size(bytes) {
  const [unit, step] = [['GB', 1e9], ['MB', 1e6], ['KB', 1e3], ['B', 1]].find(([, s]) => bytes >= s) ?? ['B', 1];
  return step === 1 ? `${Math.round(bytes)} B` : `${digits(bytes / step)} ${unit}`;
}
const time = us => us >= 1000 ? `${digits(us / 1000)} ms` : us >= 0.995 ? `${digits(us)} µs` : `${digits(us * 1000)} ns`;
const part = name => root.querySelector(name);

function build() {
  set(false);
  data = props.value ? JSON.parse(props.value) : null;
  root.hidden = !data;
  if (!data) { root.replaceChildren(); return; }
  lanes = data.lanes;
  for (const lane of lanes) {
    let at = 0, through = 0;
    for (const s of lane.steps) {
      s.start = at; s.before = through; at += s.us;
      if (s.level === 'hbm') through += s.bytes;
    }
    lane.us = at;
  }
  end = Math.max(...lanes.map(l => l.us), 1e-6);
  most = Math.max(...lanes.map(l => l.total), 1);
  const bands = LEVELS.map(([key, name]) =>
    `<div class="bd ${key}" data-level="${key}"><b>${key === 'hbm' ? escape(data.memory) : name}</b><span class="held"></span></div>`).join('');
  root.innerHTML = `<div class="lanes">${lanes.map((lane, i) => `<div class="lane" data-lane="${i}">
      <h3>${escape(lane.name)}<small>${escape(lane.note)}</small></h3>
      <div class="water">${bands}<div class="tile" aria-hidden="true">${'<i></i>'.repeat(8)}</div></div>
      <p class="now"></p><div class="sum"><span class="mb"></span><progress aria-label="Bytes through memory, ${escape(lane.name)}"></progress></div>
    </div>`).join('')}</div>
    <div class="scrub"><button type="button" data-do="play">Play</button><button type="button" data-do="step">Next step</button>
    <input type="range" min="0" max="1000" value="0" aria-label="Time"><output></output></div>
    ${data.saved ? `<p class="saved"><b>${escape(data.saved)}</b></p>` : ''}`;
  views = [...root.querySelectorAll('.lane')].map(el => ({
    el, tile: el.querySelector('.tile'), now: el.querySelector('.now'), mb: el.querySelector('.mb'), bar: el.querySelector('progress'),
    bands: Object.fromEntries([...el.querySelectorAll('.bd')].map(b => [b.dataset.level, b])),
  }));
  part('[data-do=play]').onclick = () => set(!running);
  part('[data-do=step]').onclick = () => {
    set(false);
    const marks = lanes.flatMap(l => [...l.steps.map(s => s.start), l.us]).sort((a, b) => a - b);
    clock = marks.find(m => m > clock + end * 1e-6) ?? 0;
    draw();
  };
  part('input').oninput = e => { set(false); clock = e.target.value / 1000 * end; draw(); };
  clock = 0;
  draw();
  // It plays by itself once, when it first comes into sight.
  if (calm) { clock = Math.min(...lanes.map(l => l.us)) * 0.6; draw(); return; }
  if (seen) return;
  new IntersectionObserver((entries, watcher) => {
    if (!entries[0].isIntersecting) return;
    watcher.disconnect();
    seen = true;
    set(true);
  }, {threshold: .5}).observe(root);
}

function words(s) {
  const line = s.line ? `, line ${s.line}` : '';
  if (s.verb === 'compute') return `${s.kernel}: arithmetic, ${(s.flops / 1e6).toLocaleString('en', {maximumSignificantDigits: 3})} MFLOP, ${time(s.us)}`;
  const from = s.level === 'l2' ? ' again, from L2 or L1' : '';
  return `${s.kernel}: ${s.verb} ${s.tensor}${from}, ${size(s.bytes)}, ${time(s.us)}${line}`;
}

function draw() {
  if (!data || !root.offsetParent) return;
  part('input').value = 1000 * clock / end;
  part('.scrub output').textContent = time(clock);
  lanes.forEach((lane, i) => {
    const v = views[i], done = clock >= lane.us - end * 1e-9;
    const s = lane.steps.findLast(x => clock >= x.start - end * 1e-9) ?? lane.steps[0];
    if (!s) { v.now.textContent = 'Nothing moves.'; return; }
    const share = done ? 1 : Math.min(1, (clock - s.start) / (s.us || 1e-9));
    const [from, to] = s.verb === 'compute' ? ['registers', 'registers'] : s.verb === 'store' ? ['registers', s.level] : [s.level, 'registers'];
    // Measured once for each size: reading places between writes would lay the page out anew at each frame.
    v.mid ??= Object.fromEntries(Object.entries(v.bands).map(([k, b]) => [k, b.offsetTop + b.offsetHeight / 2]));
    const ease = share * share * (3 - 2 * share);
    v.tile.style.transform = `translate(-50%, -50%) translateY(${v.mid[from] + (v.mid[to] - v.mid[from]) * ease}px)`;
    v.tile.dataset.name = s.verb === 'compute' ? 'arithmetic' : s.tensor;
    v.el.classList.toggle('done', done);
    for (const [k, b] of Object.entries(v.bands)) b.classList.toggle('hot', !done && (k === from || k === to));
    v.bands.registers.querySelector('.held').textContent = done ? '' : s.held;
    v.bands.hbm.querySelector('.held').textContent = done ? '' : s.level === 'hbm' ? s.tensor : '';
    v.bands.l2.querySelector('.held').textContent = !done && s.level === 'l2' ? s.tensor : '';
    v.now.textContent = done ? `Done after ${time(lane.us)}, each step at its own floor.` : `${lane.steps.indexOf(s) + 1} of ${lane.steps.length}. ${words(s)}`;
    const through = done ? lane.total : s.before + (s.level === 'hbm' ? s.bytes * share : 0);
    v.mb.textContent = `${size(through)} of ${size(lane.total)}`;
    v.bar.max = most;
    v.bar.value = through;
    v.bar.style.setProperty('--full', 100 * lane.total / most + '%');
  });
}

function tick(t) {
  if (!running) return;
  if (element.offsetParent) { clock = Math.min(end, clock + (t - last) / 1000 * end / SECONDS); draw(); }  // a hidden tab's clock rests
  last = t;
  if (clock >= end) return set(false);
  requestAnimationFrame(tick);
}
function set(on) {
  running = on;
  const play = part('[data-do=play]');
  if (play) play.textContent = on ? 'Pause' : clock >= end ? 'Play again' : 'Play';
  if (!on) return;
  if (clock >= end) clock = 0;
  last = performance.now();
  requestAnimationFrame(tick);
}
new ResizeObserver(() => { for (const v of views) v.mid = null; draw(); }).observe(root);
watch('value', build);
build();
