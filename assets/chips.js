// A chip is a button of the page's own; Gradio hears of it by an event that names the case.
element.addEventListener('click', e => {
  const chip = e.target.closest('button[data-name]');
  if (chip) trigger('pick', {kind: chip.dataset.kind, name: chip.dataset.name});
});
