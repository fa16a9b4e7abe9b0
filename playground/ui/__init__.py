"""The page: what a person sees of the engine, in Gradio. It runs no kernel and makes no tensor with values.

gradio and plotly are imported here and nowhere else. theme, charts, panels, words and view are pure (values in,
HTML or a figure out); answer and sweep talk to the engine and know no Gradio; page, bench and tabs join the two.
"""

from playground.ui import no_stubs

no_stubs.install()
