"""Charts of many lines: up to ten in one panel with labels at their ends, or a panel for each.

In one panel, all lines of an encoding have one colour, and those with scalings are dashed, so seven
colours are enough for seven encodings; NoPE, the baseline, is grey. Labels at the ends of lines are
moved apart. More lines get a small panel each, with all other lines in grey behind it.

A line that diverges must not flatten the others: the vertical axis ends where most values do, and
the label of a line that leaves the chart gives its last value.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ._draw import import_altair, make_chart

__all__ = [
    "GREY",
    "Axes",
    "ChartWidth",
    "CurvePoint",
    "Series",
    "choose_axis_end",
    "draw_series",
    "get_finite",
    "move_apart",
    "widen_range",
]

GREY = "#8B929B"
_LABEL_HEIGHT = 15
_LABEL_LETTERS = 23  # in a line above a panel
#: A whole page, one of two columns beside each other, or the screen of a phone.
ChartWidth = Literal["page", "column", "phone"]
_PIXELS: dict[ChartWidth, int] = {"page": 540, "column": 330, "phone": 170}
_PANELS: dict[ChartWidth, int] = {"page": 4, "column": 3, "phone": 2}
_TITLE_LETTERS: dict[ChartWidth, int] = {"page": 200, "column": 72, "phone": 48}
_DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 1.5], [1, 3], [12, 4], [7, 2, 1, 2, 1, 2]]


class CurvePoint(NamedTuple):
    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line. hue: name of its colour, shared by lines of one colour. dash: 0 for a solid line."""

    name: str
    hue: str
    dash: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class Axes:
    """Titles, axes and size of a chart.

    mark: a vertical line at this x, with these words. top: end of the vertical axis; None shows
    all values. accuracy: whether values are shares from 0 to 1, and more is better. order: of
    panels, by the last value, or by the x at which a line reaches a value that all lines reach.
    """

    title: str
    subtitle: str
    x: str
    y: str
    ticks: tuple[float, ...]
    log: bool = True
    mark: tuple[int, str] | None = None
    top: float | None = None
    accuracy: bool = False
    height: int = 330
    width: ChartWidth = "page"
    order: Literal["last value", "first to reach"] = "last value"

    @property
    def number_format(self) -> str:
        return ".0%" if self.accuracy else ".3~g"

    def format_value(self, value: float) -> str:
        return f"{value:.0%}" if self.accuracy else f"{value:.2f}"


def get_finite(value: Any) -> float | None:
    """A number that can be drawn, or None: runs that diverged have NaN, infinity or null."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def choose_axis_end(values: Iterable[float], spread: float = 3.0) -> float | None:
    """End of the vertical axis that leaves out outliers, or None if all values should be shown.

    Outliers are further above the smallest value than ``spread`` times the distance from there to
    the third quartile. All values are shown if they need at most one and a half times the axis.

    >>> choose_axis_end([2.0, 2.1, 2.2, 2.3, 9.0])
    2.3
    >>> choose_axis_end([2.0, 2.1, 2.2, 2.3, 2.4])
    """
    ordered = sorted(values)
    if not ordered:
        return None
    least, upper = ordered[0], ordered[(3 * len(ordered)) // 4]
    limit = least + spread * (upper - least)
    top = max(value for value in ordered if value <= limit)
    return top if ordered[-1] - least > 1.5 * (top - least) > 0 else None


def widen_range(low: float, high: float, span: float = 0.2) -> tuple[float, float]:
    """Ends of an axis, at least ``span`` nats apart, because smaller differences are noise.

    >>> widen_range(2.0, 2.5), widen_range(2.0, 2.0)
    ((2.0, 2.5), (1.9, 2.1))
    """
    missing = max(0.0, span - (high - low)) / 2
    return low - missing, high + missing


def draw_series(series: Sequence[Series], axes: Axes) -> Any:
    """One panel if its lines can be distinguished there, else a panel for each line."""
    if axes.top is not None:
        axes = replace(axes, subtitle=f"{axes.subtitle}; cut off above {axes.top:.3g}")
    hues = {line.hue for line in series} - {"nope"}
    return (
        _draw_together(series, axes)
        if len(series) <= 10 and len(hues) <= 7
        else _draw_panels(series, axes)
    )


def _compute_domain(series: Sequence[Series], axes: Axes) -> tuple[float, float]:
    if axes.accuracy:
        return 0.0, 1.0
    points = [point for line in series for point in line.points]
    shown = [point.y for point in points if axes.top is None or point.y <= axes.top]
    low, high = widen_range(min(shown), max(shown))
    span = high - low
    # Bands of few seeds are wide; they may extend the axis by 15 % only.
    lows = [point.low for point in points if point.low is not None]
    highs = [point.high for point in points if point.high is not None]
    low = max(min([low, *lows]), low - 0.15 * span)
    high = min(max([high, *highs]), high + 0.15 * span) if axes.top is None else high
    return low - 0.04 * span, high + 0.04 * span


def _list_rows(series: Iterable[Series]) -> list[dict[str, Any]]:
    return [
        {"name": line.name, "hue": line.hue, "dash": str(line.dash), **point._asdict()}
        for line in series
        for point in line.points
    ]


def _draw_together(series: Sequence[Series], axes: Axes) -> Any:
    alt = import_altair()
    domain = _compute_domain(series, axes)
    hues = [hue for hue in dict.fromkeys(line.hue for line in series) if hue != "nope"]
    colour = alt.condition(
        "datum.hue == 'nope'",
        alt.value(GREY),
        alt.Color("hue:N", legend=None).scale(domain=hues),
    )
    dashes = sorted({str(line.dash) for line in series})
    scale = alt.Scale(domain=domain, nice=False)
    few = axes.width == "phone"  # every second tick
    base = make_chart(_list_rows(series)).encode(
        _build_x_axis(axes, series, axes.ticks[::-1][::2] if few else axes.ticks),
        alt.Y("y:Q", title=axes.y, scale=scale).axis(format=axes.number_format),
        color=colour,
        detail="name:N",
    )
    band = base.mark_area(opacity=0.14, clip=True).encode(
        alt.Y("low:Q", title=axes.y, scale=scale).axis(format=axes.number_format), y2="high:Q"
    )
    lines = base.mark_line(clip=True, strokeWidth=2).encode(
        alt.StrokeDash("dash:N", legend=None).scale(
            domain=dashes, range=[_DASHES[int(dash) % len(_DASHES)] for dash in dashes]
        ),
        tooltip=["name:N", "x:Q", "y:Q"],
    )
    layers = [band] if any(p.low is not None for line in series for p in line.points) else []
    if max(len(line.points) for line in series) <= 8:
        # Not clipped, so dots at the edge are whole; dots beyond it are left out.
        inside = [row for row in _list_rows(series) if row["y"] <= domain[1]]
        dots = base.mark_point(size=28, opacity=1).properties(data=alt.Data(values=inside))
        lines = alt.layer(lines, dots)
    ends = make_chart(_arrange_labels(series, axes, domain))
    leader = ends.mark_rule(xOffset=4, x2Offset=22, strokeWidth=1.2).encode(
        x="x:Q", x2="end:Q", y="y:Q", y2="label:Q", color=colour
    )
    text = ends.mark_text(align="left", dx=26).encode(x="end:Q", y="label:Q", text="words:N")
    return alt.layer(*layers, lines, leader, text, *_draw_mark(axes)).properties(
        width=_PIXELS[axes.width],
        height=axes.height,
        title=_build_title(axes),
    )


def _draw_panels(series: Sequence[Series], axes: Axes) -> Any:
    """A panel for each line, the best first."""
    alt = import_altair()
    domain = _compute_domain(series, axes)
    heads, order = _order_panels(series, axes)
    wrapped = any("\n" in head for head in heads.values())
    rows = _list_rows(series)
    first = axes.mark[0] if axes.mark else axes.ticks[0]  # few ticks: at the mark, and at the end
    ticks = tuple(dict.fromkeys((first, axes.ticks[-1])))
    x = _build_x_axis(axes, series, ticks, flush=True).title(None)
    vertical = {"title": None, "scale": alt.Scale(domain=domain, nice=False)}
    vertical["axis"] = alt.Axis(format=axes.number_format, tickCount=3)
    y = alt.Y("y:Q", **vertical)
    behind = make_chart(_join_paths(series)).mark_line(
        clip=True, strokeWidth=0.8, color=GREY, opacity=0.4, invalid="break-paths-show-domains"
    )
    front = alt.Chart().mark_line(clip=True, strokeWidth=2.4)
    layers = [behind.encode(x, y, order="n:Q"), front.encode(x, y)]
    if any(point.low is not None for line in series for point in line.points):
        band = alt.Chart().mark_area(opacity=0.25, clip=True)
        layers.insert(1, band.encode(x, alt.Y("low:Q", **vertical), y2="high:Q"))
    layers += _draw_mark(axes)[:1]
    for row in rows:
        row["head"] = heads[row["name"]]
    return (
        alt.layer(*layers, data=alt.Data(values=rows))
        .properties(width=132, height=84)
        .facet(
            alt.Facet("head:N", title=None, sort=list(heads.values())).header(
                labelAnchor="start",
                labelFontSize=11,
                labelPadding=4,
                labelLimit=150,
                **({"labelExpr": "split(datum.label, '\\n')"} if wrapped else {}),
            ),
            columns=_PANELS[axes.width],
            spacing={"row": 14, "column": 16},
        )
        .properties(title=_build_title(axes, f"{axes.y} against {axes.x}; {order}"))
    )


def _order_panels(series: Sequence[Series], axes: Axes) -> tuple[dict[str, str], str]:
    """Heads of panels by the names of lines, in their order, and what the order is."""
    end = max(line.points[-1].x for line in series)
    if axes.order == "first to reach":
        value = max(line.points[-1].y for line in series)
        reached = {line.name: _find_reaching(line, value) for line in series}
        ordered = sorted(series, key=lambda line: reached[line.name])
        ends = {line.name: f": {reached[line.name]:,.0f}" for line in series}
        order = f"fewest {axes.x} to reach {axes.format_value(value)} first"
    else:
        sign = -1 if axes.accuracy else 1
        ordered = sorted(series, key=lambda line: (-line.points[-1].x, sign * line.points[-1].y))
        ends = {line.name: f" {axes.format_value(line.points[-1].y)}" for line in series}
        order = "best at the end first"
    heads = {line.name: _wrap_label(_label_line(line, end, ends[line.name])) for line in ordered}
    return heads, order


def _find_reaching(line: Series, value: float) -> float:
    """The x at which a falling line first reaches ``value``, between its points."""
    before = line.points[0]
    for point in line.points:
        if point.y <= value:
            share = 1.0 if before.y <= point.y else (before.y - value) / (before.y - point.y)
            return before.x + (point.x - before.x) * min(1.0, max(0.0, share))
        before = point
    return before.x


def _join_paths(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Points of all lines as one path with gaps, which makes smaller files than many paths."""
    rows: list[dict[str, Any]] = []
    for line in series:
        rows += [{"x": point.x, "y": point.y} for point in line.points]
        rows.append({"x": line.points[-1].x, "y": None})
    return [{**row, "n": n} for n, row in enumerate(rows)]


def _build_x_axis(
    axes: Axes, series: Sequence[Series], ticks: Sequence[float], flush: bool = False
) -> Any:
    alt = import_altair()
    positions = [point.x for line in series for point in line.points]
    positions += [axes.ticks[0], axes.ticks[-1], *(axes.mark or ())[:1]]
    scale = alt.Scale(
        domain=[min(positions), max(positions)],
        nice=False,
        **({"type": "log", "base": 2} if axes.log else {}),
    )
    form = "d" if all(tick == round(tick) for tick in ticks) else "~g"
    axis = alt.Axis(values=list(ticks), format=form, grid=False, labelFlush=flush)
    return alt.X("x:Q", title=axes.x, scale=scale, axis=axis)


def _arrange_labels(
    series: Sequence[Series], axes: Axes, domain: tuple[float, float]
) -> list[dict[str, Any]]:
    """A label for each line, with its position in data units; labels do not overlap."""
    low, high = domain
    step = _LABEL_HEIGHT * (high - low) / axes.height
    latest = max(line.points[-1].x for line in series)
    end = max(latest, axes.ticks[-1])
    rows: list[dict[str, Any]] = []
    for line in sorted(series, key=lambda line: -line.points[-1].y):
        last = line.points[-1]
        words = _label_line(
            line, latest, f" \u2191 {axes.format_value(last.y)}" if last.y > high else ""
        )
        rows.append(
            {"name": line.name, "hue": line.hue, "words": words, "end": end}
            | {"x": last.x, "y": min(last.y, high)}
        )
    positions = move_apart([row["y"] for row in rows], step, low)
    return [row | {"label": position} for row, position in zip(rows, positions, strict=True)]


def _label_line(line: Series, end: float, value: str) -> str:
    """Name and value of a line; if it ends early, because it diverged, also where."""
    last = line.points[-1].x
    return f"{line.name}{value}" + (f" (to {last:g})" if last < end else "")


def _wrap_label(label: str) -> str:
    """A label on lines that fit above a panel; a name with options may be long."""
    if len(label) <= _LABEL_LETTERS + 3:  # spaces and digits are narrow
        return label
    return "\n".join(textwrap.wrap(label, _LABEL_LETTERS, break_on_hyphens=False))


def move_apart(positions: Sequence[float], step: float, low: float) -> list[float]:
    """Descending numbers, moved to be at least ``step`` apart and not below ``low``.

    >>> move_apart([3.0, 2.9, 0.1], step=1.0, low=0.0)
    [3.0, 2.0, 0.1]
    >>> move_apart([0.5, 0.4, 0.0], step=1.0, low=0.0)
    [2.0, 1.0, 0.0]
    """
    found = list(positions)
    for n in range(1, len(found)):
        found[n] = min(found[n], found[n - 1] - step)
    floor: float = low
    for n in reversed(range(len(found))):
        found[n] = max(found[n], floor)
        floor = found[n] + step
    return found


def _draw_mark(axes: Axes) -> list[Any]:
    """The vertical line of a mark, and its words."""
    if axes.mark is None:
        return []
    position, words = axes.mark
    chart = make_chart([{"x": position, "words": words}]).encode(x="x:Q")
    rule = chart.mark_rule(strokeDash=[3, 3], strokeWidth=1.2)
    text = chart.mark_text(align="left", baseline="top", dx=6, dy=4, fontSize=12, color=GREY)
    return [rule, text.encode(text="words:N", y=import_altair().value(0))]


def _build_title(axes: Axes, *more: str) -> Any:
    lines = [*axes.subtitle.split("\n"), *more]
    letters = _TITLE_LETTERS[axes.width]
    lines = [part for line in lines for part in textwrap.wrap(line, letters)]
    return import_altair().TitleParams(axes.title, subtitle=lines)
