"""The style of all charts, light and dark, as a Vega-Lite configuration.

Series have the colours of Okabe and Ito (2008), "Color Universal Design", which people with the
common kinds of colour blindness can distinguish. Their order is kept with two changes: the neutral
(black, or a light grey on a dark page) comes after the colours, and yellow, which is hard to see on
white, comes last. Sizes are for a chart that is 600 pixels wide.
"""

from typing import Any, Literal, get_args

from whorl._support.words import quote

__all__ = ["PALETTE", "Theme", "theme"]

Theme = Literal["light", "dark"]

PALETTE = {
    "orange": "#E69F00",
    "sky blue": "#56B4E9",
    "green": "#009E73",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "neutral": "#000000",
    "yellow": "#F0E442",
}

_FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"

# background, text, secondary text, grid and axis lines
_COLORS = {
    "light": ("#FFFFFF", "#1A1D21", "#50565E", "#E3E6EA", "#8B929B"),
    "dark": ("#15181C", "#ECEEF1", "#B4BAC2", "#2C3138", "#6C747E"),
}
_NEUTRAL = {"light": PALETTE["neutral"], "dark": "#D9DCE1"}


def theme(name: Theme = "light") -> dict[str, Any]:
    """The Vega-Lite ``config`` of "light" or "dark", a new dictionary in each call.

    >>> theme("dark")["background"]
    '#15181C'
    """
    if name not in _COLORS:
        choices = " or ".join(map(repr, get_args(Theme)))
        raise ValueError(f"theme: the name must be {choices}; got {quote(name)}.")
    return {**_style_frame(name), **_style_text(name), **_style_marks(name)}


def _style_frame(name: Theme) -> dict[str, Any]:
    """Background, and colours of series."""
    return {
        "background": _COLORS[name][0],
        "font": _FONT,
        "padding": 16,
        "view": {"stroke": None, "continuousWidth": 560, "continuousHeight": 320},
        "range": {
            "category": list({**PALETTE, "neutral": _NEUTRAL[name]}.values()),
            "heatmap": {"scheme": "viridis"},
            "ramp": {"scheme": "viridis"},
            "ordinal": {"scheme": "viridis"},
            "diverging": {"scheme": "blueorange"},
        },
    }


def _style_text(name: Theme) -> dict[str, Any]:
    """Titles, axes and legends."""
    _, text, quiet, grid, line = _COLORS[name]
    words = {"labelColor": quiet, "titleColor": text, "labelFontSize": 12, "titleFontSize": 13}
    return {
        "title": {
            "color": text,
            "subtitleColor": quiet,
            "fontSize": 16,
            "subtitleFontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "frame": "group",
            "offset": 14,
            "subtitlePadding": 5,
        },
        "axis": {
            **words,
            "titleFontWeight": 500,
            "titlePadding": 10,
            "labelPadding": 5,
            "gridColor": grid,
            "domainColor": line,
            "tickColor": line,
            "tickSize": 4,
            "labelFlush": False,
            "labelSeparation": 8,
        },
        # Few ticks also give a logarithmic axis powers of ten only, not nine lines per decade.
        "axisQuantitative": {"tickCount": 6},
        "axisBand": {"grid": False, "ticks": False, "domain": False},
        "legend": {
            **words,
            "titleFontWeight": 500,
            "symbolSize": 110,
            "symbolBaseFillColor": quiet,
            "symbolBaseStrokeColor": quiet,
            "symbolStrokeWidth": 2.5,
            "rowPadding": 4,
            "labelLimit": 260,
        },
        "header": {**words, "labelFontSize": 13, "titleFontWeight": 500, "labelFontWeight": 500},
    }


def _style_marks(name: Theme) -> dict[str, Any]:
    """Lines, dots and bars."""
    _, text, _, _, line = _COLORS[name]
    return {
        "text": {"color": text, "fontSize": 12},
        "mark": {"color": PALETTE["blue" if name == "light" else "sky blue"]},
        "line": {"strokeWidth": 2.2},
        "trail": {"size": 2.2},
        "point": {"size": 55, "filled": True},
        "rule": {"color": line},
        "bar": {"cornerRadiusEnd": 2},
        "rect": {"cornerRadius": 0},
    }
