// The access map: the programs of a launch, and for the one that is picked each load and store three times over: where
// in its tensor it lies (among the other programs'), which lane goes to which address, and how it uses one 128-byte
// line. The value is JSON, see memory_map.as_json.
const root = element.querySelector('.accmap');
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'}[c]));
const LINE = 128, SECTOR = 32, WIDE = 1000;
const n = v => Math.round(v).toLocaleString('en');
const part = name => root.querySelector(name);
let data = null, launch = 0, at = 0, pass = {};

function build() {
  data = props.value ? JSON.parse(props.value) : null;
  root.hidden = !data || !data.launches.length;
  if (root.hidden) { root.replaceChildren(); return; }
  launch = 0; at = 0; pass = {};
  const names = data.launches.map((l, i) => `<option value="${i}">${escape(l.kernel)}</option>`).join('');
  root.innerHTML = `<div class="accbar"><select aria-label="Kernel"${data.launches.length < 2 ? ' hidden' : ''}>${names}</select>
      <label>program <input type="range" min="0" value="0" step="1" aria-label="Program"></label><output class="which"></output></div>
    <p class="read" role="status">Point at a lane: its element, value and line stand here.</p><ol class="sites"></ol>`;
  part('select').onchange = e => { launch = +e.target.value; at = 0; pass = {}; show(); };
  part('input').oninput = e => { at = +e.target.value; show(); };
  show();
}

function show() {
  const now = data.launches[launch], program = now.programs[at];
  part('input').max = now.programs.length - 1;
  part('input').value = at;
  part('input').disabled = now.programs.length < 2;
  const grid = now.grid.length > 1 ? ` (${program.at.join(', ')})` : '';
  const kept = now.programs.length < now.total ? `; ${now.programs.length} of ${n(now.total)} are kept` : '';
  part('.which').textContent = `${n(program.id)} of ${n(now.total)}${grid}${kept}`;
  part('.sites').innerHTML = now.sites.map((site, i) => card(now, program, site, i)).join('');
}

const same = (site, a) => a.line === site.line && a.tensor === site.tensor && a.kind === site.kind;

function card(now, program, site, i) {
  const passes = program.accesses.filter(a => same(site, a));
  const access = passes[Math.min(pass[i] ?? 0, passes.length - 1)];
  const missed = now.misses.filter(m => m.line === site.line && m.tensor === site.tensor);
  const facts = [
    access ? `${n(access.active)} of ${n(access.lanes)} lanes` : 'not by this program',
    access?.runs.length ? strides(access.runs) : '',
    `${Math.round(100 * site.efficiency)} % of each sector`, site.again,
  ].filter(Boolean).map(t => `<span>${t}</span>`).join('');
  const more = passes.length > 1 ? `<button type="button" data-pass="${i}">pass ${(pass[i] ?? 0) + 1} of the first ${passes.length}</button>` : '';
  const out = missed.map(m => `<p class="miss">Out of bounds: element ${n(m.index)} of ${escape(site.name)}, lane ${n(m.lane)}, program ${n(m.program)}.</p>`).slice(0, 3).join('');
  return `<li class="site${missed.length ? ' outside' : ''}"><div class="say"><h3>${site.kind} <code>${escape(site.name)}</code><small>${site.bytes}</small></h3>
      <code class="src">${site.line}: ${escape(now.code[site.line] ?? '')}</code><p class="facts">${facts}${more}</p>${out}</div>
    <div class="pics">${access?.runs.length ? strip(now, site, program) + fan(access, site, i) + line(access, site) : ''}</div></li>`;
}

function strides(runs) {
  const steps = [...new Set(runs.filter(r => r[2] > 1).map(r => r[1]))];
  const step = steps.length === 1 ? (steps[0] === 0 ? 'all lanes to one element' : `stride ${n(steps[0])}`) : steps.length ? 'several strides' : 'single elements';
  return runs.length > 1 ? `${step}, ${n(runs.length)}${runs.length >= 160 ? ' or more' : ''} pieces` : step;
}

const low = r => Math.min(r[0], r[0] + r[1] * (r[2] - 1)), high = r => Math.max(r[0], r[0] + r[1] * (r[2] - 1)) + 1;

// Where in the whole tensor: every kept program faint, this one strong.
function strip(now, site, program) {
  const total = Math.max(1, site.size, ...program.accesses.filter(a => same(site, a)).flatMap(a => a.runs.map(high)));
  const bars = p => p.accesses.filter(a => same(site, a)).flatMap(a => merged(a.runs, total))
    .map(([x, w]) => `<rect x="${x.toFixed(1)}" width="${w.toFixed(1)}" height="14"/>`).join('');
  const others = now.programs.filter(p => p !== program).map(bars).join('');
  return `<figure><svg viewBox="0 0 ${WIDE} 14" preserveAspectRatio="none" role="img" aria-label="Where in ${escape(site.name)}"><g class="others">${others}</g><g class="mine">${bars(program)}</g></svg>
    <figcaption><span>${escape(site.name)}, element 0</span><span>${n(total)}</span></figcaption></figure>`;
}

function merged(runs, total) {
  const spans = runs.map(r => [low(r), high(r)]).sort((a, b) => a[0] - b[0]), found = [];
  for (const [a, b] of spans) {
    const top = found[found.length - 1];
    if (top && a - top[1] < total / WIDE) top[1] = Math.max(top[1], b);
    else found.push([a, b]);
  }
  return found.map(([a, b]) => [a / total * WIDE, Math.max(2, (b - a) / total * WIDE)]);
}

// Lanes above, addresses below: side by side where the access is coalesced.
function fan(access, site, i) {
  const first = Math.min(...access.runs.map(low)), last = Math.max(...access.runs.map(high));
  const span = Math.max(last - first, 1), lanes = Math.max(access.lanes, 1);
  const rows = access.samples.map(([lane, index], k) => {
    const x = (lane + .5) / lanes * WIDE, y = (index + .5 - first) / span * WIDE;
    return `<line data-i="${i}" data-k="${k}" x1="${x.toFixed(1)}" y1="0" x2="${y.toFixed(1)}" y2="44"/>`;
  }).join('');
  const end = Math.max(0, ...access.samples.map(s => s[0])) + 1;
  const masked = end < lanes ? `<rect class="masked" x="${end / lanes * WIDE}" width="${(1 - end / lanes) * WIDE}" height="8"/>` : '';
  return `<figure class="fan" data-i="${i}"><svg viewBox="0 0 ${WIDE} 44" preserveAspectRatio="none" tabindex="0" role="img" aria-label="Lanes to addresses; arrows walk the lanes">${masked}${rows}</svg>
    <figcaption><span>lane 0 to ${n(lanes - 1)} above</span><span>elements ${n(first)} to ${n(last - 1)} below</span></figcaption></figure>`;
}

// The bytes of the first 128-byte line that it touches; a sector is 32 of them.
function line(access, site) {
  const start = Math.floor(Math.min(...access.runs.map(low)) * site.itemsize / LINE) * LINE;
  const used = new Set();
  for (const [from, step, count] of access.runs) {
    for (let k = 0; k < Math.min(count, LINE); k++) {
      const byte = (from + step * k) * site.itemsize - start;
      if (byte >= LINE && step >= 0) break;
      for (let b = 0; b < site.itemsize; b++) if (byte + b >= 0 && byte + b < LINE) used.add(byte + b);
    }
  }
  const cells = Array.from({length: LINE / 4}, (_, c) => [0, 1, 2, 3].filter(b => used.has(4 * c + b)).length)
    .map(k => `<i style="--fill:${25 * k}%"></i>`).join('');
  const sectors = Array.from({length: 4}, (_, s) => [...Array(SECTOR).keys()].some(b => used.has(s * SECTOR + b))).filter(Boolean).length;
  return `<figure class="line"><div role="img" aria-label="${used.size} of 128 bytes of a line">${cells}</div>
    <figcaption><span>first line: ${used.size} of 128 bytes, ${sectors} of 4 sectors</span></figcaption></figure>`;
}

function read(line) {
  if (!line) return;
  root.querySelectorAll('.fan .hot').forEach(l => l.classList.remove('hot'));
  line.classList.add('hot');
  const now = data.launches[launch], site = now.sites[line.dataset.i], program = now.programs[at];
  const passes = program.accesses.filter(a => same(site, a));
  const [lane, index, value] = passes[Math.min(pass[line.dataset.i] ?? 0, passes.length - 1)].samples[line.dataset.k];
  const byte = index * site.itemsize;
  part('.read').innerHTML = `Lane <b>${n(lane)}</b> ${site.kind}s <code>${escape(site.name)}[${n(index)}]</code>, byte ${n(byte)}, sector ${n(Math.floor(byte / SECTOR))}: value <b>${escape(value)}</b>. Line ${site.line}: <code>${escape(now.code[site.line] ?? '')}</code>`;
}

root.addEventListener('pointermove', e => {
  const svg = e.target.closest('.fan svg');
  if (!svg) return;
  const box = svg.getBoundingClientRect(), x = (e.clientX - box.left) / box.width * WIDE, y = (e.clientY - box.top) / box.height;
  const away = l => Math.abs(+l.getAttribute('x1') * (1 - y) + +l.getAttribute('x2') * y - x);
  read([...svg.querySelectorAll('line')].reduce((best, l) => !best || away(l) < away(best) ? l : best, null));
});
root.addEventListener('keydown', e => {
  const svg = e.target.closest('.fan svg'), step = {ArrowRight: 1, ArrowLeft: -1}[e.key];
  if (!svg || !step) return;
  e.preventDefault();
  const lines = [...svg.querySelectorAll('line')], now = lines.findIndex(l => l.classList.contains('hot'));
  read(lines[Math.max(0, Math.min(lines.length - 1, now + step))]);
});
root.addEventListener('click', e => {
  const b = e.target.closest('[data-pass]');
  if (!b) return;
  const i = b.dataset.pass, now = data.launches[launch];
  const count = now.programs[at].accesses.filter(a => same(now.sites[i], a)).length;
  pass[i] = ((pass[i] ?? 0) + 1) % count;
  show();
  root.querySelector(`[data-pass="${i}"]`)?.focus();
});
watch('value', build);
build();
