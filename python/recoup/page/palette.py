"""The colours of a page. Both palettes suit all common kinds of colour blindness."""

from typing import Final

# The eight colours of Okabe and Ito, with grey for their black. The order is that of the stack:
# the kinds that change least are at the bottom.
KINDS: Final = {
    "parameters": "#0072b2",
    "buffers": "#f0e442",
    "optimizer": "#009e73",
    "gradients": "#e69f00",
    "inputs": "#cc79a7",
    "activations": "#56b4e9",
    "workspace": "#d55e00",
    "other": "#999999",
}

# Matplotlib's viridis at even steps, for modules in the order in which they first run.
VIRIDIS: Final = (
    "#440154",
    "#482878",
    "#3e4989",
    "#31688e",
    "#26828e",
    "#1f9e89",
    "#35b779",
    "#6ece58",
    "#b5de2b",
    "#fde725",
)

# Colours of the lanes below the picture, in their order, from the same eight.
EVENTS: Final = {
    "op": "#56b4e9",
    "replay": "#e69f00",
    "evict": "#d55e00",
    "spill": "#cc79a7",
    "fetch": "#009e73",
    "move": "#0072b2",
}
