// Where a shape does not fit, the refusal offers the nearest one that does.
element.addEventListener('click', e => {
  const offer = e.target.closest('[data-mend]');
  if (offer) trigger('mend', {dim: offer.dataset.mend, size: Number(offer.dataset.to)});
});
tp.watch(element);
