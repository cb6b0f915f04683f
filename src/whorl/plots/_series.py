"""Many lines in one chart that can be told apart: labelled at their ends, or each in a panel.

Up to ten lines share a panel. An encoding keeps one hue and a scaling of it is dashed, so colours
last for seven encodings; NoPE, the bare baseline, is grey. Labels stand at the line ends and are
moved apart. More lines get a small panel each, with all the others in grey behind it.

A line that diverges must not flatten the rest: the vertical axis ends where most of the values do,
lines leave through the top, and their labels give the value where they end.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from whorl._support.extras import import_extra

__all__ = ["GREY", "Axes", "Point", "Series", "at_least", "ceiling", "draw", "finite", "spread"]

GREY = "#8B929B"
_LABEL_HEIGHT = 15
_COLUMNS = 4
_NARROW = 185
_DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 1.5], [1, 3], [12, 4], [7, 2, 1, 2, 1, 2]]


class Point(NamedTuple):
    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line; ``hue`` is shared by lines of one colour, ``dash`` is 0 for a solid one."""

    name: str
    hue: str
    dash: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Axes:
    """What a chart says beside its lines.

    mark: a vertical rule at this x, with these words. top: where the vertical axis ends; None
    shows all values. accuracy: values are shares from 0 to 1 and more is better. narrow: for the
    screen of a phone, with the labels inside it.
    """

    title: str
    subtitle: str
    x: str
    y: str
    ticks: tuple[int, ...]
    log: bool = True
    mark: tuple[int, str] | None = None
    top: float | None = None
    accuracy: bool = False
    height: int = 330
    narrow: bool = False

    @property
    def format(self) -> str:
        return ".0%" if self.accuracy else ".3~g"

    def words(self, value: float) -> str:
        return f"{value:.0%}" if self.accuracy else f"{value:.2f}"


def finite(value: Any) -> float | None:
    """A number that can be drawn, or None: a run that diverged has NaN, infinity or null."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def ceiling(values: Iterable[float], spread: float = 3.0) -> float | None:
    """Where to end the axis: the largest value not far above three quarters of them.

    Far is ``spread`` times the distance from the least value to the third quartile. None if all
    values fit into one and a half times the axis, because cutting then hides more than it shows.

    >>> ceiling([2.0, 2.1, 2.2, 2.3, 9.0])
    2.3
    >>> ceiling([2.0, 2.1, 2.2, 2.3, 2.4])
    """
    ordered = sorted(values)
    if not ordered:
        return None
    least, upper = ordered[0], ordered[(3 * len(ordered)) // 4]
    limit = least + spread * (upper - least)
    top = max(value for value in ordered if value <= limit)
    return top if ordered[-1] - least > 1.5 * (top - least) > 0 else None


def at_least(low: float, high: float, span: float = 0.2) -> tuple[float, float]:
    """The ends of an axis, moved apart to ``span`` nats, because less is noise and not a picture.

    >>> at_least(2.0, 2.5), at_least(2.0, 2.0)
    ((2.0, 2.5), (1.9, 2.1))
    """
    missing = max(0.0, span - (high - low)) / 2
    return low - missing, high + missing


def draw(series: Sequence[Series], axes: Axes) -> Any:
    """One panel if its lines can be told apart there, else a panel for each."""
    if axes.top is not None:
        axes = replace(axes, subtitle=f"{axes.subtitle}; cut off above {axes.top:.3g}")
    hues = {line.hue for line in series} - {"nope"}
    return _together(series, axes) if len(series) <= 10 and len(hues) <= 7 else _apart(series, axes)


def _domain(series: Sequence[Series], axes: Axes) -> tuple[float, float]:
    if axes.accuracy:
        return 0.0, 1.0
    points = [point for line in series for point in line.points]
    shown = [point.y for point in points if axes.top is None or point.y <= axes.top]
    low, high = at_least(min(shown), max(shown))
    span = high - low
    # Bands are shown as far as they do not flatten the lines: few seeds make wide ones.
    lows = [point.low for point in points if point.low is not None]
    highs = [point.high for point in points if point.high is not None]
    low = max(min([low, *lows]), low - 0.15 * span)
    high = min(max([high, *highs]), high + 0.15 * span) if axes.top is None else high
    return low - 0.04 * span, high + 0.04 * span


def _rows(series: Iterable[Series]) -> list[dict[str, Any]]:
    return [
        {"name": line.name, "hue": line.hue, "dash": str(line.dash), **point._asdict()}
        for line in series
        for point in line.points
    ]


def _together(series: Sequence[Series], axes: Axes) -> Any:
    alt = import_extra("altair", by="whorl.plots", extra="plots")
    domain = _domain(series, axes)
    hues = [hue for hue in dict.fromkeys(line.hue for line in series) if hue != "nope"]
    colour = alt.condition(
        "datum.hue == 'nope'",
        alt.value(GREY),
        alt.Color("hue:N", legend=None).scale(domain=hues),
    )
    dashes = sorted({str(line.dash) for line in series})
    scale = alt.Scale(domain=domain, nice=False)
    base = alt.Chart(alt.Data(values=_rows(series))).encode(
        _x(alt, axes, series, axes.ticks[::-1][::2] if axes.narrow else axes.ticks),
        alt.Y("y:Q", title=axes.y, scale=scale).axis(format=axes.format),
        color=colour,
        detail="name:N",
    )
    band = base.mark_area(opacity=0.14, clip=True).encode(
        alt.Y("low:Q", title=axes.y, scale=scale).axis(format=axes.format), y2="high:Q"
    )
    lines = base.mark_line(clip=True, strokeWidth=2).encode(
        alt.StrokeDash("dash:N", legend=None).scale(
            domain=dashes, range=[_DASHES[int(dash) % len(_DASHES)] for dash in dashes]
        ),
        tooltip=["name:N", "x:Q", "y:Q"],
    )
    layers = [band] if any(p.low is not None for line in series for p in line.points) else []
    if max(len(line.points) for line in series) <= 8:
        # Not clipped, so that those at the edge are whole; those beyond it are left out instead.
        inside = [row for row in _rows(series) if row["y"] <= domain[1]]
        dots = base.mark_point(size=28, opacity=1).properties(data=alt.Data(values=inside))
        lines = alt.layer(lines, dots)
    ends = alt.Chart(alt.Data(values=_labels(series, axes, domain)))
    leader = ends.mark_rule(xOffset=4, x2Offset=22, strokeWidth=1.2).encode(
        x="x:Q", x2="end:Q", y="y:Q", y2="label:Q", color=colour
    )
    text = ends.mark_text(align="left", dx=26).encode(x="end:Q", y="label:Q", text="words:N")
    return alt.layer(*layers, lines, leader, text, *_mark(alt, axes, 12)).properties(
        width=_NARROW if axes.narrow else 540, height=axes.height, title=_title(alt, axes)
    )


def _apart(series: Sequence[Series], axes: Axes) -> Any:
    """Panels in order of the last value, best first."""
    alt = import_extra("altair", by="whorl.plots", extra="plots")
    domain = _domain(series, axes)
    end = max(line.points[-1].x for line in series)
    sign = -1 if axes.accuracy else 1
    ordered = sorted(series, key=lambda line: (-line.points[-1].x, sign * line.points[-1].y))
    heads = {line.name: _words(line, end, f" {axes.words(line.points[-1].y)}") for line in ordered}
    rows = _rows(series)
    x = _x(alt, axes, series, _few(axes), flush=True).title(None)
    vertical = {"title": None, "scale": alt.Scale(domain=domain, nice=False)}
    vertical["axis"] = alt.Axis(format=axes.format, tickCount=3)
    y = alt.Y("y:Q", **vertical)
    behind = alt.Chart(alt.Data(values=_one_path(series))).mark_line(
        clip=True, strokeWidth=0.8, color=GREY, opacity=0.4, invalid="break-paths-show-domains"
    )
    front = alt.Chart().mark_line(clip=True, strokeWidth=2.4)
    layers = [behind.encode(x, y, order="n:Q"), front.encode(x, y)]
    if any(point.low is not None for line in series for point in line.points):
        band = alt.Chart().mark_area(opacity=0.25, clip=True)
        layers.insert(1, band.encode(x, alt.Y("low:Q", **vertical), y2="high:Q"))
    layers += _mark(alt, replace(axes, mark=axes.mark and (axes.mark[0], "")), 0)
    for row in rows:
        row["head"] = heads[row["name"]]
    title = _title(alt, axes)
    order = f"{axes.y} against {axes.x}; best at the end first"
    title.subtitle = [*title.subtitle, *_wrapped(order, axes)]
    return (
        alt.layer(*layers, data=alt.Data(values=rows))
        .properties(width=138, height=84)
        .facet(
            alt.Facet("head:N", title=None, sort=list(heads.values())).header(
                labelAnchor="start", labelFontSize=11, labelPadding=4, labelLimit=150
            ),
            columns=2 if axes.narrow else _COLUMNS,
            spacing={"row": 14, "column": 16},
        )
        .properties(title=title)
    )


def _one_path(series: Sequence[Series]) -> list[dict[str, Any]]:
    """All lines as one path with gaps: a path for each in each panel makes files of megabytes."""
    rows: list[dict[str, Any]] = []
    for line in series:
        rows += [{"x": point.x, "y": point.y} for point in line.points]
        rows.append({"x": line.points[-1].x, "y": None})
    return [{**row, "n": n} for n, row in enumerate(rows)]


def _few(axes: Axes) -> tuple[int, ...]:
    """The ticks of a small panel: where the rule stands, and the end."""
    first = axes.mark[0] if axes.mark else axes.ticks[0]
    return tuple(dict.fromkeys((first, axes.ticks[-1])))


def _x(
    alt: Any, axes: Axes, series: Sequence[Series], ticks: Sequence[int], flush: bool = False
) -> Any:
    places = [point.x for line in series for point in line.points]
    places += [axes.ticks[0], axes.ticks[-1], *(axes.mark or ())[:1]]
    scale = alt.Scale(
        domain=[min(places), max(places)],
        nice=False,
        **({"type": "log", "base": 2} if axes.log else {}),
    )
    axis = alt.Axis(values=list(ticks), format="d", grid=False, labelFlush=flush)
    return alt.X("x:Q", title=axes.x, scale=scale, axis=axis)


def _labels(
    series: Sequence[Series], axes: Axes, domain: tuple[float, float]
) -> list[dict[str, Any]]:
    """A label for each line, its place in data units, none closer than a line of text."""
    low, high = domain
    step = _LABEL_HEIGHT * (high - low) / axes.height
    latest = max(line.points[-1].x for line in series)
    end = max(latest, axes.ticks[-1])
    rows: list[dict[str, Any]] = []
    for line in sorted(series, key=lambda line: -line.points[-1].y):
        last = line.points[-1]
        words = _words(line, latest, f" \u2191 {axes.words(last.y)}" if last.y > high else "")
        rows.append(
            {"name": line.name, "hue": line.hue, "words": words, "end": end}
            | {"x": last.x, "y": min(last.y, high)}
        )
    places = spread([row["y"] for row in rows], step, low)
    return [row | {"label": place} for row, place in zip(rows, places, strict=True)]


def _words(line: Series, end: float, value: str) -> str:
    """The line's name and value; one that stops early, having diverged, says where."""
    last = line.points[-1].x
    return f"{line.name}{value}" + (f" (to {last:g})" if last < end else "")


def spread(places: Sequence[float], step: float, low: float) -> list[float]:
    """Descending places moved down to be ``step`` apart, then up again where they left the chart.

    >>> spread([3.0, 2.9, 0.1], step=1.0, low=0.0)
    [3.0, 2.0, 0.1]
    >>> spread([0.5, 0.4, 0.0], step=1.0, low=0.0)
    [2.0, 1.0, 0.0]
    """
    found = list(places)
    for n in range(1, len(found)):
        found[n] = min(found[n], found[n - 1] - step)
    floor: float = low
    for n in reversed(range(len(found))):
        found[n] = max(found[n], floor)
        floor = found[n] + step
    return found


def _mark(alt: Any, axes: Axes, size: int) -> list[Any]:
    if axes.mark is None:
        return []
    place, words = axes.mark
    chart = alt.Chart(alt.Data(values=[{"x": place, "words": words}])).encode(x="x:Q")
    rule = chart.mark_rule(strokeDash=[3, 3], strokeWidth=1.2)
    if not words:
        return [rule]
    text = chart.mark_text(align="left", baseline="top", dx=6, dy=4, fontSize=size, color=GREY)
    return [rule, text.encode(text="words:N", y=alt.value(0))]


def _title(alt: Any, axes: Axes) -> Any:
    lines = [line for text in axes.subtitle.split("\n") for line in _wrapped(text, axes)]
    return alt.TitleParams(axes.title, subtitle=lines)


def _wrapped(text: str, axes: Axes) -> list[str]:
    return textwrap.wrap(text, 48) if axes.narrow else [text]
