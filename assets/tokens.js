// The tokens of an answer as chips, the stronger its shade the less likely the model held each to be. One of them is in the tab
// order and arrows walk the rest; the one that has the focus or the pointer is explained below, with what else the
// model held likely. The value is a line of JSON for each token, see chat_tokens.line; while an answer comes it grows.
const list = element.querySelector('.tokens'), read = element.querySelector('.token-read');
const escape = text => String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'}[c]));
const seen = text => escape(text).replace(/^ /, '·').replace(/ $/, '·');
const percent = p => p == null ? '?' : p >= .9995 ? '100 %' : p >= .0995 ? (100 * p).toFixed(0) + ' %' : (100 * p).toPrecision(2) + ' %';
let lines = [], tokens = [];

function draw() {
  const now = props.value ? props.value.split('\n') : [];
  if (now.length < lines.length || lines.some((line, i) => line !== now[i])) {
    lines = []; tokens = [];
    list.replaceChildren();
    read.innerHTML = '';
  }
  for (const line of now.slice(lines.length)) {
    const token = JSON.parse(line), chip = document.createElement('button');
    chip.type = 'button';
    chip.tabIndex = tokens.length ? -1 : 0;
    chip.dataset.i = tokens.length;
    chip.style.setProperty('--unlikely', token[1] == null ? 0 : 1 - token[1]);
    chip.innerHTML = seen(token[0]);
    chip.ariaLabel = `${token[0]}, ${percent(token[1])}`;
    list.append(chip);
    tokens.push(token);
  }
  lines = now;
  element.querySelector('.tokens-none').hidden = tokens.length > 0;
  if (tokens.length && !read.innerHTML) read.innerHTML = '<p class="quiet">Point at a token, or walk them with the arrow keys.</p>';
}

function explain(chip) {
  const [text, own, drawn, others] = tokens[chip.dataset.i];
  list.querySelectorAll('.on').forEach(c => c.classList.remove('on'));
  chip.classList.add('on');
  const rows = others.map(([other, p]) => `<li${other === text ? ' class="own"' : ''}><code>${seen(other)}</code>
    <div><i style="width:${100 * p}%"></i></div><b>${percent(p)}</b></li>`).join('');
  // Drawn with 100 % says that there was no choice: temperature 0, say.
  const other = drawn != null && drawn < .9995 && Math.abs(drawn - own) > .0005 ? `, ${percent(drawn)} after temperature, top-k and top-p` : '';
  read.innerHTML = `<p>Token ${+chip.dataset.i + 1}, <code>${seen(text)}</code>: the model gave it ${percent(own)}${other}.</p><ul class="share">${rows}</ul>`;
}

list.addEventListener('pointerover', e => { const chip = e.target.closest('button'); if (chip) explain(chip); });
list.addEventListener('focusin', e => {
  const chip = e.target.closest('button');
  if (!chip) return;
  list.querySelectorAll('[tabindex="0"]').forEach(c => { c.tabIndex = -1; });
  chip.tabIndex = 0;
  explain(chip);
});
list.addEventListener('keydown', e => {
  const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -1e9, End: 1e9}[e.key];
  const chip = e.target.closest('button');
  if (!step || !chip) return;
  e.preventDefault();
  list.children[Math.max(0, Math.min(tokens.length - 1, +chip.dataset.i + step))].focus();
});
watch('value', draw);
draw();
