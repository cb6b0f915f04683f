"""Parts that several charts use: titles, heat maps, colours, ticks and numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from whorl._support.extras import import_extra

__all__ = [
    "add_title",
    "apply_log_scale",
    "draw_empty",
    "draw_heat_map",
    "format_number",
    "import_altair",
    "list_colors",
    "list_powers",
    "make_chart",
    "make_color_scale",
]

#: From blue to gold, each lighter than the last. Contrast is at least 2.2 to 1 against a white
#: page and 3.3 to 1 against the dark one.
_COLORS = ("#2F6DB5", "#1F9E9A", "#5DB34A", "#D9A514")


def import_altair() -> Any:
    """The module ``altair``, or an error that says how to install it."""
    return import_extra("altair", by="whorl.plots", extra="plots")


def make_chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    """An Altair chart of these rows, without a mark yet."""
    alt = import_altair()
    return alt.Chart(alt.Data(values=rows))


def format_number(value: float) -> str:
    """A number with commas, or with four digits if it is not whole.

    >>> format_number(4096), format_number(0.25), format_number(1e6)
    ('4,096', '0.25', '1,000,000')
    """
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def add_title(chart: Any, title: str, *subtitle: str) -> Any:
    """The chart with a title and lines under it, cut after 96 characters."""
    words = [line if len(line) <= 96 else f"{line[:95]}\u2026" for line in subtitle if line]
    return chart.properties(title=import_altair().TitleParams(title, subtitle=words))


def draw_empty(title: str, why: str) -> Any:
    """A chart that says why there is nothing to draw."""
    words = make_chart([{"why": why}]).mark_text(fontSize=14, limit=520)
    return add_title(words.encode(text="why:N").properties(width=540, height=120), title, why)


def draw_heat_map(
    values: Sequence[Sequence[float | None]],
    positions: Sequence[int],
    *,
    legend: str,
    size: int = 340,
    diverging: bool = True,
    limit: float | None = None,
) -> Any:
    """values[m][n] as a square: keys from left to right, queries from top to bottom.

    size: pixels along a side.
    diverging: white at 0, and colours up to the largest absolute value, or to ``limit``.
    """
    alt = import_altair()
    step = positions[1] - positions[0] if len(positions) > 1 else 1
    rows = [
        {"n": n, "m": m, "n2": n + step, "m2": m + step, "v": _round_value(value)}
        for m, row in zip(positions, values, strict=True)
        for n, value in zip(positions, row, strict=True)
        if value is not None
    ]
    known = [abs(row["v"]) for row in rows]
    most = (limit if limit is not None else max(known, default=1.0)) or 1.0
    end = positions[-1] + step
    axis = {"grid": False, "tickCount": 5, "format": "~s" if end > 9999 else ",d"}
    colour = (
        alt.Scale(scheme="blueorange", domain=[-most, most], domainMid=0)
        if diverging
        else alt.Scale(scheme="viridis")
    )
    scale = {"nice": False, "zero": False}
    size = len(positions) * max(1, round(size / len(positions)))  # whole pixels leave no gaps
    return (
        make_chart(rows)
        .mark_rect()
        .encode(
            alt.X("n:Q", title="key position n").scale(domain=[0, end], **scale).axis(**axis),
            alt.Y("m:Q", title="query position m").scale(domain=[end, 0], **scale).axis(**axis),
            alt.Color("v:Q", title=legend, scale=colour).legend(
                gradientLength=min(size, 180), titleLimit=200, format=".3~g"
            ),
            x2="n2:Q",
            y2="m2:Q",
            tooltip=["m:Q", "n:Q", "v:Q"],
        )
        .properties(width=size, height=size)
    )


def apply_log_scale(axis: Any, rows: Sequence[Mapping[str, Any]], **options: Any) -> Any:
    """An axis with a logarithmic scale, and ticks that suit its field of the rows."""
    field = axis.shorthand.partition(":")[0]
    ticks = list_powers([row[field] for row in rows])
    return axis.scale(type="log", nice=False).axis(values=ticks, **options)


def list_powers(values: Sequence[float]) -> list[float]:
    """Ticks of a logarithmic axis: the powers of ten in the range of positive values.

    With fewer than three of them, also two and five times each.

    >>> list_powers([0.05, 3, 200]), list_powers([0.3, 4])
    ([0.1, 1.0, 10.0, 100.0], [0.5, 1.0, 2.0])
    """
    low, high = math.log10(min(values)), math.log10(max(values))
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last - first < 2:
        tenths = [float(f"{k}e{n}") for n in range(first - 1, last + 1) for k in (1, 2, 5)]
        return [tick for tick in tenths if low <= math.log10(tick) <= high]
    apart = max(1, math.ceil((last - first + 1) / 9))
    return [float(f"1e{n}") for n in range(first, last + 1, apart)]


def make_color_scale() -> Any:
    """Colour scale of an ordered quantity, visible on a light and on a dark page."""
    return import_altair().Scale(range=list(_COLORS), interpolate="rgb")


def list_colors(count: int) -> list[str]:
    """Colours of that scale, ``count`` of them, evenly spaced.

    >>> list_colors(4) == list(_COLORS), list_colors(1), len(set(list_colors(32)))
    (True, ['#2F6DB5'], 32)
    """
    stops = [[int(colour[n : n + 2], 16) for n in (1, 3, 5)] for colour in _COLORS]
    found = []
    for n in range(count):
        at = n * (len(stops) - 1) / max(1, count - 1)
        low = min(int(at), len(stops) - 2)
        mixed = (a + (b - a) * (at - low) for a, b in zip(stops[low], stops[low + 1], strict=True))
        found.append("#" + "".join(f"{round(part):02X}" for part in mixed))
    return found


def _round_value(value: float) -> float:
    """The value in four digits: enough for a colour, and half the size of the file."""
    return float(f"{value:.4g}") if math.isfinite(value) else 0.0
