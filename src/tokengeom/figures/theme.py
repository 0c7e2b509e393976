"""Colours, fonts and sizes shared by all renderers; the palettes suit colour-blind readers."""

from __future__ import annotations

# Okabe and Ito's palette; yellow comes last because it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#B3A200")
# Samples of cividis: lightness rises evenly, for readers with and without colour vision.
SEQUENTIAL = (
    "#00224E", "#123570", "#3B496C", "#575D6D", "#707173", "#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838",
)  # fmt: skip
# Blue to red through white: 0 is white, and the two signs differ in hue and not in lightness alone.
DIVERGING = (
    "#053061", "#2166AC", "#4393C3", "#92C5DE", "#D1E5F0", "#FFFFFF", "#FDDBC7", "#F4A582", "#D6604D", "#B2182B",
    "#67001F",
)  # fmt: skip

BACKGROUND = "#FFFFFF"
TEXT = "#222222"
FAINT = "#8C8C8C"
GRID = "#E6E6E6"
BREAK = "#6E6E6E"
LIGHT_BREAK = "#F2F2F2"
"""Lines between groups of a heat-map, on the diverging palette and on the darker sequential one."""
MISSING = "#D9D9D9"

FONT = "DejaVu Sans"
WEB_FONT = "'DejaVu Sans', Verdana, system-ui, sans-serif"
TITLE_SIZE = 12.0
PANEL_SIZE = 9.5
LABEL_SIZE = 8.5
TICK_SIZE = 7.5
NAME_SIZE = 6.5
"""Tick labels of a heat-map."""
POINT_NAME_SIZE = 8.0
CAPTION_SIZE = 8.5

LINE = 1.5
THIN = 0.5
BREAK_WIDTH = 0.4
DOTS_PER_INCH = 200


def colour(index: int) -> str:
    """Colour of the palette at an index; the palette repeats."""
    return COLOURS[index % len(COLOURS)]


# On a dark page: the palette made lighter, and the diverging scale with its middle dark (as in Crameri's berlin).
DARK = {
    **dict(
        zip(
            COLOURS,
            ("#5AA9E6", "#F08A4B", "#2FC29A", "#E39BC6", "#9AD4F5", "#F2B93B", "#BDBDBD", "#D9CB4A"),
            strict=True,
        )
    ),
    **dict(
        zip(
            DIVERGING,
            (
                "#A8DDFB", "#74BDEA", "#4A97CC", "#33709F", "#234A69", "#1A1E23", "#5A2F26", "#8F4433", "#C0604A",
                "#E38E76", "#FBC4B1",
            ),
            strict=True,
        )
    ),
    TEXT: "#DEDCD6",
    FAINT: "#9A9A98",
    GRID: "#31363C",
    BREAK: "#7C8288",
    MISSING: "#3A3F45",
}  # fmt: skip
"""Colour of the light theme -> its replacement on a dark page; colours that are not listed stay as they are."""
