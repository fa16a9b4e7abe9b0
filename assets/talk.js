// Gradio calls its suggestions a list, though each is a button and none an item: a group is what they are.
const panel = element.closest('.chatpanel');
const named = () => panel.querySelector('.examples[role=list]')?.setAttribute('role', 'group');
new MutationObserver(named).observe(panel, {childList: true, subtree: true});
named();
