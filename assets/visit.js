// The list of runs: a number opens its run, a tick compares it.
element.addEventListener('click', e => {
  const run = e.target.closest('[data-open]');
  if (run) trigger('open', {number: Number(run.dataset.open)});
});
element.addEventListener('change', e => {
  if (!e.target.matches('[data-pick]')) return;
  const ticked = [...element.querySelectorAll('[data-pick]:checked')].map(box => Number(box.dataset.pick));
  trigger('compare', {numbers: ticked});
});
