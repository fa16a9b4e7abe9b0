// The line that says what a case has changed offers to put it away.
element.addEventListener('click', e => {
  if (e.target.closest('[data-away]')) trigger('away', {});
});
