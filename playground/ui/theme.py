"""Design tokens, the Gradio theme and the Plotly template of Triton Playground.

Four channels, four meanings, never mixed:
  hue            a provider (Triton, eager, ...)
  depth of teal  a memory level, light at the registers, dark at DRAM
  green and red  a verdict, nothing else
  shape          where a figure comes from (measured, interpreted, ...)

The tokens live here once; css() writes them as custom properties for style.css. Contrast and colour-vision
distances are held by tests/ui/test_palette.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import gradio as gr
import plotly.graph_objects as go

SANS = "'Hyperlegible', system-ui, sans-serif"
MONO = "'Hyperlegible Mono', ui-monospace, monospace"

TYPE = {
    "micro": "0.8125rem",
    "small": "0.875rem",
    "body": "1rem",
    "lead": "1.125rem",
    "title": "1.25rem",
    "head": "1.625rem",
    "figure": "2rem",
}  # 13 14 16 18 20 26 32 px
SPACE = {"1": "4px", "2": "8px", "3": "12px", "4": "16px", "5": "24px", "6": "32px", "7": "48px"}
RADIUS = {"s": "3px", "m": "6px", "pill": "99px"}

LIGHT = {
    "paper": "#F2F5F7",
    "panel": "#FFFFFF",
    "sunken": "#E8EDF1",
    "line": "#CDD7DE",
    "line-2": "#7F909C",
    "ink": "#0B1C27",
    "ink-2": "#435563",
    "accent": "#343CDB",
    "accent-text": "#2F36C9",
    "on-accent": "#FFFFFF",
    "accent-soft": "#E6E8FD",
    "right": "#0B7A50",
    "right-text": "#086741",
    "right-soft": "#DFF3E9",
    "wrong": "#C01F3A",
    "wrong-text": "#AD1631",
    "wrong-soft": "#FBE5E8",
    "sea": "#0B2533",
    "on-sea": "#E8F4F6",
    "on-sea-2": "#A5C0CA",
}
DARK = {
    "paper": "#0A141B",
    "panel": "#111E27",
    "sunken": "#0C171F",
    "line": "#2A3C48",
    "line-2": "#6F8492",
    "ink": "#EAF2F5",
    "ink-2": "#A9BBC6",
    "accent": "#8A94FF",
    "accent-text": "#A5ADFF",
    "on-accent": "#0A1026",
    "accent-soft": "#20284F",
    "right": "#3CC48C",
    "right-text": "#5FD6A4",
    "right-soft": "#0F3328",
    "wrong": "#FF7286",
    "wrong-text": "#FF92A1",
    "wrong-soft": "#451A24",
    "sea": "#0B2533",
    "on-sea": "#E8F4F6",
    "on-sea-2": "#A5C0CA",
}

# Charts carry the light value; in the dark, CSS repaints it (see repaint()).
PROVIDERS = {
    "Triton": "#3A43EE",
    "eager": "#C87A22",
    "torch.compile": "#76107A",
    "Liger": "#746000",
    "cuBLAS / cuDNN": "#5C6E80",
    "FlagGems": "#119ED0",
    "flash-attn": "#5E2E12",
}
PROVIDERS_DARK = {
    "Triton": "#8A94FF",
    "eager": "#D08427",
    "torch.compile": "#FFB0F2",
    "Liger": "#EFEB8A",
    "cuBLAS / cuDNN": "#707A82",
    "FlagGems": "#50A2B6",
    "flash-attn": "#F9AB81",
}
SYMBOLS = {
    "Triton": "circle",
    "eager": "square",
    "torch.compile": "diamond",
    "Liger": "triangle-up",
    "cuBLAS / cuDNN": "x",
    "FlagGems": "cross",
    "flash-attn": "star",
}
DASHES = {
    "Triton": "solid",
    "eager": "dash",
    "torch.compile": "dashdot",
    "Liger": "dot",
    "cuBLAS / cuDNN": "longdash",
    "FlagGems": "longdashdot",
    "flash-attn": "5px,2px",
}

MEMORY = {"registers": "#B5F0E5", "sram": "#6FD3CB", "l2": "#36AEB2", "hbm": "#1B7488", "dram": "#0F4A63"}
ON_MEMORY = {"registers": "#0B1C27", "sram": "#0B1C27", "l2": "#0B1C27", "hbm": "#FFFFFF", "dram": "#FFFFFF"}

# What a baseline that has no colour of its own yet is drawn with.
OTHER = "cuBLAS / cuDNN"

# Stand-ins that repaint() swaps in both modes.
INK, MUTED, FAINT, GROUND = "#010203", "#010204", "#010205", "#010206"


def _rgb(colour: str) -> str:
    return ", ".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))


def repaint() -> str:
    """CSS that recolours Plotly's inline SVG styles: one figure serves light and dark, without a redraw."""
    swaps = [
        ("", INK, "var(--ink)"),
        ("", MUTED, "var(--line-2)"),
        ("", FAINT, "var(--line)"),
        ("", GROUND, "var(--panel)"),
    ]
    swaps += [(".dark ", PROVIDERS[name], PROVIDERS_DARK[name]) for name in PROVIDERS]
    plot = ".js-plotly-plot"
    return "\n".join(
        f'{mode}{plot} :is([style*="{prop}: rgb({_rgb(old)})"], [{prop}="rgb({_rgb(old)})"])'
        f" {{ {prop}: {new} !important; }}"
        for mode, old, new in swaps
        for prop in ("fill", "stroke")
    )


def slug(provider: str) -> str:
    """The provider's name as the custom property of its colour carries it; one that has no colour yet is "other"."""
    return provider.split(" ")[0].replace(".", "-").lower() if provider in PROVIDERS else "other"


def css(fonts: Mapping[str, str]) -> str:
    """Fonts (family -> URL), the tokens as custom properties, and the swaps of the charts' colours."""
    fixed = {f"text-{k}": v for k, v in TYPE.items()} | {f"s{k}": v for k, v in SPACE.items()}
    fixed |= {f"r-{k}": v for k, v in RADIUS.items()} | {f"mem-{k}": v for k, v in MEMORY.items()}
    fixed |= {f"on-{k}": v for k, v in ON_MEMORY.items()} | {"sans": SANS, "mono": MONO}
    light = LIGHT | {f"p-{slug(k)}": v for k, v in PROVIDERS.items()}
    dark = DARK | {f"p-{slug(k)}": v for k, v in PROVIDERS_DARK.items()}
    light["p-other"], dark["p-other"] = PROVIDERS[OTHER], PROVIDERS_DARK[OTHER]
    tokens = (
        f"{selector} {{ {' '.join(f'--{k}: {v};' for k, v in values.items())} }}"
        for selector, values in ((":root", fixed | light), (".dark", dark))
    )
    faces = (
        f"@font-face {{ font-family: '{family}'; font-weight: 200 800; font-display: block; "
        f"src: url('{url}') format('woff2'); }}"
        for family, url in fonts.items()
    )
    return "\n".join((*faces, *tokens, repaint()))


# Gradio's variables that follow our tokens in both modes.
FOLLOW = {
    "body_background_fill": "var(--paper)",
    "body_text_color": "var(--ink)",
    "body_text_color_subdued": "var(--ink-2)",
    "background_fill_primary": "var(--panel)",
    "background_fill_secondary": "var(--sunken)",
    "border_color_primary": "var(--line)",
    "border_color_accent": "var(--accent)",
    "color_accent_soft": "var(--accent-soft)",
    "link_text_color": "var(--accent-text)",
    "link_text_color_hover": "var(--ink)",
    "block_background_fill": "transparent",
    "block_border_width": "0px",
    "block_title_text_color": "var(--ink-2)",
    "block_label_text_color": "var(--ink-2)",
    "block_info_text_color": "var(--ink-2)",
    "block_shadow": "none",
    "input_background_fill": "var(--panel)",
    "input_background_fill_focus": "var(--panel)",
    "input_border_color": "var(--line-2)",
    "input_border_color_focus": "var(--accent)",
    "input_placeholder_color": "var(--ink-2)",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "checkbox_label_background_fill": "var(--panel)",
    "checkbox_label_border_color": "var(--line-2)",
    "checkbox_label_background_fill_hover": "var(--sunken)",
    "checkbox_label_background_fill_selected": "var(--ink)",
    "checkbox_label_text_color_selected": "var(--panel)",
    "checkbox_label_text_color": "var(--ink)",
    "checkbox_background_color": "var(--panel)",
    "checkbox_border_color": "var(--line-2)",
    "checkbox_background_color_selected": "var(--accent)",
    "slider_color": "var(--accent)",
    "button_primary_background_fill": "var(--accent)",
    "button_primary_text_color": "var(--on-accent)",
    "button_primary_background_fill_hover": "var(--accent-text)",
    "button_primary_border_color": "var(--accent)",
    "button_secondary_background_fill": "var(--panel)",
    "button_secondary_text_color": "var(--ink)",
    "button_secondary_background_fill_hover": "var(--panel)",
    "button_secondary_border_color_hover": "var(--accent)",
    "button_secondary_border_color": "var(--line-2)",
    "error_text_color": "var(--wrong-text)",
    "error_background_fill": "var(--wrong-soft)",
    "error_border_color": "var(--wrong)",
    "table_text_color": "var(--ink)",
    "block_border_color": "var(--line-2)",
    "loader_color": "var(--accent)",
}


def gradio_theme() -> gr.themes.Base:
    """Gradio's own variables pointed at our tokens, so that stock components follow."""
    sizes = gr.themes.Size(
        name="tp",
        xxs="0.8125rem",
        xs="0.8125rem",
        sm="0.875rem",
        md="1rem",
        lg="1.125rem",
        xl="1.25rem",
        xxl="1.625rem",
    )
    radii = gr.themes.Size(name="tp", xxs="3px", xs="3px", sm="3px", md="6px", lg="6px", xl="6px", xxl="6px")
    theme = gr.themes.Base(
        text_size=sizes,
        radius_size=radii,
        spacing_size="md",
        font=["Hyperlegible", "system-ui", "sans-serif"],
        font_mono=["Hyperlegible Mono", "ui-monospace", "monospace"],
    )
    both = dict(FOLLOW)
    known = gr.themes.Base.set.__code__.co_varnames
    both |= {f"{k}_dark": v for k, v in both.items() if f"{k}_dark" in known}
    return theme.set(
        **both,
        block_title_text_size="0.875rem",
        block_title_text_weight="500",
        block_label_text_size="0.875rem",
        chatbot_text_size="1rem",
        block_padding="0px",
        block_radius="6px",
        input_radius="6px",
        button_large_radius="6px",
        button_medium_radius="6px",
        button_small_radius="6px",
        button_large_text_weight="600",
        button_medium_text_weight="500",
        input_border_width="1px",
        input_border_width_dark="1px",
        button_border_width="1px",
        button_border_width_dark="1px",
        layout_gap="16px",
        form_gap_width="0px",
        color_accent="var(--accent)",
        button_primary_shadow="none",
        button_secondary_shadow="none",
        button_transition="none",
        checkbox_label_shadow="none",
    )


def template() -> go.layout.Template:
    """Plotly layout for both modes: clear paper, ink from CSS, one type size, no toolbar noise."""
    axis = {
        "showgrid": True,
        "gridcolor": FAINT,
        "gridwidth": 1,
        "zeroline": False,
        "linecolor": MUTED,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": MUTED,
        "automargin": True,
        "showline": True,
        "separatethousands": True,
        "title": {"standoff": 8, "font": {"size": 14}},
    }
    return go.layout.Template(
        layout={
            "font": {"family": SANS, "size": 14, "color": INK},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(PROVIDERS.values()),
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
            "bargap": 0.35,
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "bgcolor": "rgba(0,0,0,0)",
                "itemsizing": "constant",
                "itemwidth": 40,
            },
            "hoverlabel": {
                "bgcolor": "#0B2533",
                "bordercolor": "#36AEB2",
                "font": {"family": SANS, "size": 14, "color": "#FFFFFF"},
            },
            "hovermode": "closest",
            "dragmode": False,
        }
    )
