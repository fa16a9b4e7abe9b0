// The list of runs: a number opens its run, a tick compares it.
element.addEventListener('click', e => {
  const run = e.target.closest('[data-open]');
  if (run) trigger('open', {number: Number(run.dataset.open)});
});
// A new list is made of the old one's rows, whose boxes keep what was ticked in them.
new MutationObserver(() => {
  for (const box of element.querySelectorAll('[data-pick]')) box.checked = box.hasAttribute('checked');
}).observe(element, {childList: true, subtree: true, attributes: true, attributeFilter: ['data-pick', 'checked']});
element.addEventListener('change', e => {
  if (!e.target.matches('[data-pick]')) return;
  const ticked = [...element.querySelectorAll('[data-pick]:checked')].map(box => Number(box.dataset.pick));
  trigger('compare', {numbers: ticked});
});
