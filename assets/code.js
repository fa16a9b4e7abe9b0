// The code view: Python left, one stage right; lines that came from one another light up on both sides. Rows are
// plain elements that the browser lays out only when they come into sight, and events are delegated, so that ten
// thousand lines cost no more than ten. The value is JSON, see code_view.as_json.
const root = element.querySelector('.codeview');
const escape = text => text.replace(/[&<>]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;'}[c]));
const PYTHON = /(#.*)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|return|for|in|if|else|while|and|or|not|None|True|False)\b|(@?\b(?:tl|triton)\.[\w.]+)/g;
const OPCODE = /^(\s*(?:[0-9a-f]{4,}\s+)?(?:@!?%?U?P\w+\s+)?(?:[%$][\w#:, %]+ = )?(?:tail call \w+ )?)([\w.:]+)/;
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
let data = null, launch = 0, stage = tp.asked.get('stage') ?? '', pinned = null, lit = [];

const python = text => escape(text).replace(PYTHON, (all, note, string, word, call) =>
  note ? `<i>${all}</i>` : word ? `<b>${all}</b>` : call ? `<u>${all}</u>` : all);
const code = text => escape(text).replace(OPCODE, (all, before, op) => `${before}<b>${op}</b>`);
const row = (html, n, lines) =>
  `<li class="ln" data-n="${n}"${lines.length ? ` data-l="${lines.join(' ')}"` : ''}><code>${html || ' '}</code></li>`;
const part = name => root.querySelector(name);
const pane = () => part('.stage'), py = () => part('.py');
// The rows of a line, and of the others that its statement takes.
const of = (list, line) => {
  if (!line) return [];
  const [from, to] = data.launches[launch].spans.find(([from, to]) => from <= line && line <= to) ?? [+line, +line];
  const lines = Array.from({length: to - from + 1}, (_, i) => `[data-l~="${from + i}"]`);
  return [...list.querySelectorAll(lines.join())];
};

function draw() {
  data = props.value ? JSON.parse(props.value) : null;
  root.hidden = !data;
  if (!data) { root.replaceChildren(); return; }
  launch = 0;
  if (!Object.hasOwn(data.launches[0].stages, stage)) stage = data.first;
  const names = data.launches.map((l, i) => `<option value="${i}">${escape(l.kernel)}</option>`).join('');
  root.innerHTML = `<div class="pane"><div class="bar2"><b class="file"></b>
      <select class="launch" aria-label="Kernel"${data.launches.length < 2 ? ' hidden' : ''}>${names}</select>
      <span class="pin" role="status"></span></div><ol class="src py" tabindex="0" aria-label="Python"></ol></div>
    <div class="pane"><div class="bar2"><div class="stages" role="tablist" aria-label="Stage"></div>
      <input type="search" placeholder="Find" aria-label="Find in this stage"><output></output>
      <button type="button" data-do="copy">Copy</button><button type="button" data-do="save">Download</button></div>
      <div class="body"><ol class="src stage" tabindex="0"></ol><div class="mini" aria-hidden="true"></div></div></div>`;
  part('input').oninput = find;
  part('.launch').onchange = e => { launch = +e.target.value; show(); };
  py().addEventListener('keydown', walk);
  show();
}

function show() {
  const now = data.launches[launch];
  part('.file').textContent = now.file;
  py().innerHTML = now.python.map((text, i) => row(python(text), now.first + i, [now.first + i])).join('');
  part('.stages').innerHTML = Object.entries(now.stages).map(([name, rows]) =>
    `<button type="button" role="tab" data-stage="${name}" aria-selected="${name === stage}">${name.toUpperCase()}<small>${rows.length.toLocaleString('en')}</small></button>`).join('');
  pinned = null;
  turn(stage in now.stages ? stage : Object.keys(now.stages)[0]);
}

function turn(name) {
  stage = name;
  root.querySelectorAll('[role=tab]').forEach(t => t.setAttribute('aria-selected', t.dataset.stage === name));
  pane().setAttribute('aria-label', name.toUpperCase());
  pane().innerHTML = data.launches[launch].stages[name].map(([text, lines], i) => row(code(text), i + 1, lines)).join('');
  pane().scrollTop = 0;
  weigh();
  light(pinned, py());
  find();
}

// Behind each Python line's number, a bar: how many lines of this stage came from it.
function weigh() {
  const counts = {};
  for (const [, lines] of data.launches[launch].stages[stage]) for (const l of lines) counts[l] = (counts[l] ?? 0) + 1;
  const top = Math.max(1, ...Object.values(counts));
  for (const e of py().children) {
    const n = counts[e.dataset.l] ?? 0;
    e.style.setProperty('--n', n / top);
    e.title = n ? `${n} line${n > 1 ? 's' : ''} of ${stage.toUpperCase()}` : '';
  }
}

function scrollTo(list, row) { list.scrollTo({top: row.offsetTop - list.clientHeight / 3, behavior: calm ? 'auto' : 'smooth'}); }

function light(line, from) {
  lit.forEach(e => e.classList.remove('hot'));
  const there = of(pane(), line), here = of(py(), line), total = pane().children.length;
  lit = [...here, ...there];
  lit.forEach(e => e.classList.add('hot'));
  part('.mini').innerHTML = there.map(e => `<i style="top:${100 * (e.dataset.n - 1) / total}%"></i>`).join('');
  if (from !== pane() && there[0]) scrollTo(pane(), there[0]);
  if (from !== py() && here[0]) scrollTo(py(), here[0]);
  const rows = here.map(e => e.dataset.n), name = rows.length > 1 ? `Lines ${rows[0]}–${rows.at(-1)}` : `Line ${line}`;
  const said = line ? `${name}: ${there.length.toLocaleString('en')} of ${total.toLocaleString('en')} lines` : '';
  part('.pin').textContent = pinned ? `${said}, pinned` : said || 'Hover links; click pins';
}

function pin(line, from) { pinned = pinned === line ? null : line; light(pinned ?? line, from); }

function walk(e) {
  const step = {ArrowDown: 1, ArrowUp: -1}[e.key];
  if (!step) return;
  e.preventDefault();
  const live = [...py().children].map(x => x.dataset.l).filter(l => of(pane(), l).length);
  pinned = live[live.indexOf(pinned) + step] ?? live[step > 0 ? 0 : live.length - 1];
  light(pinned, null);
}

function find() {
  root.querySelectorAll('.hit').forEach(e => e.classList.remove('hit'));
  const wanted = part('input').value.trim().toLowerCase();
  if (!wanted) { part('.bar2 output').textContent = ''; return; }
  const hits = [...pane().children].filter(e => e.textContent.toLowerCase().includes(wanted));
  hits.forEach(e => e.classList.add('hit'));
  part('.bar2 output').textContent = hits.length ? hits.length.toLocaleString('en') : 'none';
  if (hits[0]) scrollTo(pane(), hits[0]);
}

const text = () => data.launches[launch].stages[stage].map(([line]) => line).join('\n') + '\n';

root.addEventListener('mouseover', e => {
  const at = e.target.closest('.ln');
  if (at && !pinned) light(at.dataset.l?.split(' ')[0], at.parentElement);
});
root.addEventListener('click', async e => {
  const at = e.target.closest('.ln[data-l]'), tab = e.target.closest('[role=tab]'), tool = e.target.closest('[data-do]');
  if (at) pin(at.dataset.l.split(' ')[0], at.parentElement);
  if (tab) { turn(tab.dataset.stage); tp.url({stage: stage === data.first ? null : stage}); }
  if (tool?.dataset.do === 'save') tp.save({name: `${data.launches[launch].kernel}.${data.target}.${stage}`, text: text(), kind: 'text/plain'});
  if (tool?.dataset.do === 'copy') {
    try { await navigator.clipboard.writeText(text()); tool.textContent = 'Copied'; } catch { tool.textContent = 'Not allowed'; }
    setTimeout(() => { tool.textContent = 'Copy'; }, 1500);
  }
});
// A finding, anywhere on the page, leads to its rows.
document.addEventListener('click', e => {
  const b = e.target.closest('.finds button');
  if (!b || !data) return;
  if (+b.dataset.launch !== launch) { launch = +b.dataset.launch; part('.launch').value = launch; show(); }
  if (b.dataset.stage in data.launches[launch].stages) turn(b.dataset.stage);
  pinned = b.dataset.l || null;
  light(pinned, null);
  const first = pane().children[+b.dataset.row];
  if (first) { scrollTo(pane(), first); first.classList.add('hot'); lit.push(first); }
  root.scrollIntoView({block: 'nearest', behavior: calm ? 'auto' : 'smooth'});
});
watch('value', draw);
draw();
