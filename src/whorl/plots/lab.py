"""Charts of a comparison of encodings: by length, by step of training, by position, and costs.

They read the document that ``whorl compare`` saves. Losses are in nats per token; if the measure is
accuracy, values are shares of right answers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._draw import add_title, import_altair, make_chart
from ._series import (
    GREY,
    Axes,
    ChartWidth,
    CurvePoint,
    Series,
    choose_axis_end,
    draw_series,
    get_finite,
    widen_range,
)
from .theme import PALETTE

__all__ = ["lab", "lab_costs", "lab_lengths", "lab_positions", "lab_training"]

# Points of a curve by position, in each octave; the rest is averaged.
_PER_OCTAVE = 2


def lab(comparison: Mapping[str, Any]) -> Any:
    """All charts for which the comparison has numbers: by length and by step, then the others."""
    alt = import_altair()
    separate = dict.fromkeys(("x", "y", "color", "strokeDash"), "independent")
    has = {key: any(row.get(key) for row in comparison["rows"]) for key in ("curve", "by_position")}
    charts = [lab_lengths(comparison), lab_costs(comparison)]
    if has["curve"]:
        pair = [draw(comparison, width="column") for draw in (lab_lengths, lab_training)]
        charts[0] = alt.hconcat(*pair, spacing=30).resolve_scale(**separate)
    if has["by_position"]:
        charts.append(lab_positions(comparison))
    return alt.vconcat(*charts, spacing=44).resolve_scale(**separate)


def lab_lengths(comparison: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Loss or accuracy by the length of the text, with bands if there are several seeds."""
    settings = comparison["settings"]
    several = len(settings["seeds"]) > 1
    found = {}
    for row in _get_rows(comparison, "lab_lengths"):
        points = []
        for length in settings["lengths"]:
            cell = row["by_length"].get(str(length), {})
            value = get_finite(cell.get("mean"))
            if value is not None:
                low, high = get_finite(cell.get("low")), get_finite(cell.get("high"))
                band = (low, high) if several else (None, None)
                points.append(CurvePoint(length, value, *band))
        found[row["name"]] = tuple(points)
    count = len(settings["seeds"])
    seeds = f"{count} seeds, bands: interval of the mean" if several else "1 seed"
    accuracy = settings["measure"] == "accuracy"
    return _draw_rows(
        comparison,
        found,
        Axes(
            title=f"{'Accuracy' if accuracy else 'Loss'} by evaluation length",
            subtitle=f"{_describe_task(comparison)}, {settings['steps']} steps, {seeds}",
            x=f"evaluation length ({_get_unit(comparison)}, log scale)",
            y=_name_measure(comparison),
            ticks=tuple(settings["lengths"]),
            mark=(settings["length"], f"trained at {settings['length']}"),
            accuracy=accuracy,
            height=380,
            width=width,
        ),
        "lab_lengths",
    )


def lab_positions(comparison: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Loss at every position of the longest text, averaged over half octaves."""
    settings = comparison["settings"]
    longest = max(settings["lengths"])
    found = {}
    for row in _get_rows(comparison, "lab_positions"):
        curve = row.get("by_position") or {}
        points = zip(curve.get("position", ()), curve.get("loss", ()), strict=True)
        found[row["name"]] = _average_octaves(points, settings["length"])
    first = min((p.x for points in found.values() for p in points), default=1)
    ticks = [longest]
    while ticks[0] / 2 >= first:
        ticks.insert(0, ticks[0] // 2)
    return _draw_rows(
        comparison,
        found,
        Axes(
            title=f"Loss by position in texts of {longest} {_get_unit(comparison)}",
            subtitle="means over half octaves",
            x=f"position ({_get_unit(comparison)}, log scale)",
            y=_name_loss(comparison),
            ticks=tuple(ticks),
            mark=(settings["length"], f"trained to {settings['length']}"),
            width=width,
        ),
        "lab_positions",
    )


def lab_training(comparison: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Validation loss by step: how fast the rows learn that have their own training."""
    settings = comparison["settings"]
    found = {}
    for row in _get_rows(comparison, "lab_training"):
        curve = row.get("curve") or {}
        if row["trained_as"] == row["name"]:
            points = zip(curve.get("step", ()), curve.get("loss", ()), strict=True)
            found[row["name"]] = tuple(
                CurvePoint(step, loss) for step, loss in points if get_finite(loss) is not None
            )
    step, unit = max(1, settings["steps"] // 5), _get_unit(comparison)
    return _draw_rows(
        comparison,
        found,
        Axes(
            title="How fast they learn",
            subtitle=f"on validation text, not the text of the table;"
            f" {settings['batch']} x {settings['length']} {unit} a step",
            x="steps",
            y=_name_loss(comparison),
            ticks=tuple(range(0, settings["steps"] + 1, step)),
            log=False,
            height=380,
            width=width,
            order="first to reach",
        ),
        "lab_training",
    )


def lab_costs(comparison: Mapping[str, Any]) -> Any:
    """Loss at the trained and the longest length, training speed and memory of each encoding."""
    settings = comparison["settings"]
    accuracy = settings["measure"] == "accuracy"
    near, far = settings["length"], max(settings["lengths"])
    rows = []
    for row in _get_rows(comparison, "lab_costs"):
        cells = row["by_length"]
        rows.append(
            {
                "name": row["name"],
                "near": get_finite(cells.get(str(near), {}).get("mean")),
                "far": get_finite(cells.get(str(far), {}).get("mean")),
                "speed": get_finite(row.get("tokens_per_second")),
                "memory": get_finite(row.get("memory_mb")),
                "trained": "" if row["trained_as"] == row["name"] else f"as {row['trained_as']}",
            }
        )
    worst = float("-inf") if accuracy else float("inf")
    rows.sort(key=lambda row: worst if row["far"] is None else row["far"], reverse=accuracy)
    heads = {"near": f"at {near} (trained)", "far": f"at {far}"}
    panels = [_draw_near_and_far(rows, heads, _name_measure(comparison), accuracy)]
    for field, title in (("speed", "tokens/s in training"), ("memory", "peak memory (MB)")):
        if any(row[field] is not None for row in rows):
            panels.append(_draw_bars(rows, field, title))
    layers = "1 layer" if settings["layers"] == 1 else f"{settings['layers']} layers"
    note = f"{layers}, width {settings['width']}; best at {far} first"
    cpu = comparison["environment"].get("cpu", "unknown CPU")
    chart = import_altair().hconcat(*panels, spacing=22)
    chart = chart.resolve_scale(y="shared", x="independent", color="independent")
    return add_title(chart, "What each encoding gives and costs", f"{note}; {cpu}")


def _draw_near_and_far(
    rows: list[dict[str, Any]], heads: Mapping[str, str], title: str, accuracy: bool
) -> Any:
    """Two dots for each row, at the trained and at the longest length, joined by a line."""
    alt = import_altair()
    values = [row[key] for row in rows for key in heads if row[key] is not None]
    top = None if accuracy else choose_axis_end(values)
    high = 1.0 if accuracy else max(values, default=1.0) if top is None else top
    low = 0.0 if accuracy else min(values, default=0.0)
    low, high = widen_range(low, high)
    dots = _list_dots(rows, heads, high, ".0%" if accuracy else ".2f")
    margin = 0.06 * (high - low)
    before = 0.16 * (high - low) if any(dot["side"] == "left" for dot in dots) else margin
    y = alt.Y("name:N", title=None, sort=[row["name"] for row in rows]).axis(
        grid=True, labelLimit=320
    )
    scale = alt.Scale(domain=[low - before, high + margin], nice=False, zero=False)
    form, ticks = (".0%", [0, 0.5, 1]) if accuracy else (".3~g", alt.Undefined)
    axis = alt.Axis(format=form, values=ticks, tickCount=4, grid=False)
    x = alt.X("value:Q", title=title, scale=scale, axis=axis)
    base = make_chart(dots).encode(x, y)
    ends = [
        {"name": row["name"], **{key: min(row[key], high) for key in heads}}
        for row in rows
        if all(row[key] is not None for key in heads)
    ]
    line = make_chart(ends).mark_rule(strokeWidth=2, color=GREY, opacity=0.6).encode(
        alt.X("near:Q").scale(scale), alt.X2("far:Q"), y
    )  # fmt: skip
    colour = alt.Color("which:N", title=None, sort=list(heads.values())).scale(
        domain=list(heads.values()), range=[PALETTE["sky blue"], PALETTE["vermilion"]]
    )
    points = base.mark_point(size=70, opacity=1).encode(
        colour.legend(orient="top", padding=0, offset=4)
    )
    # The text is on the side away from the other dot.
    texts = [
        base.mark_text(align=align, dx=dx, fontSize=11)
        .encode(text="words:N")
        .transform_filter(f"datum.side == '{side}'")
        for side, align, dx in (("right", "left", 8), ("left", "right", -8))
    ]
    return alt.layer(line, points, *texts).properties(width=250, height=alt.Step(20))


def _list_dots(
    rows: list[dict[str, Any]], heads: Mapping[str, str], high: float, form: str
) -> list[dict[str, Any]]:
    """A dot for each value; those beyond the axis are at its end, with an arrow."""
    dots = []
    for row in rows:
        for key, head in heads.items():
            if row[key] is None:
                continue
            words = format(row[key], form)
            falls = row["near"] is not None and row[key] < row["near"]
            side = "none" if key == "near" else "left" if falls else "right"
            dots.append(
                {"name": row["name"], "which": head, "value": min(row[key], high), "side": side}
                | {"words": f"{words} \u2192" if row[key] > high else words}
            )
    return dots


def _draw_bars(rows: list[dict[str, Any]], field: str, title: str) -> Any:
    """Bars with numbers; a row without its own training names the row whose weights it has."""
    alt = import_altair()
    values = [
        {
            "name": row["name"],
            "value": row[field] or 0,
            "words": f"{row[field]:,.0f}" if row[field] is not None else row["trained"],
        }
        for row in rows
    ]
    hidden = {"labels": False, "ticks": False, "grid": False, "domain": False}
    base = make_chart(values).encode(
        alt.X("value:Q", title=title).axis(orient="top", titleAnchor="start", **hidden),
        alt.Y("name:N", title=None, sort=[row["name"] for row in rows]).axis(None),
    )
    text = base.mark_text(align="left", dx=5, fontSize=11).encode(text="words:N")
    return alt.layer(base.mark_bar(height=11, opacity=0.75), text).properties(
        width=110, height=alt.Step(20)
    )


def _draw_rows(
    comparison: Mapping[str, Any], found: Mapping[str, tuple[CurvePoint, ...]], axes: Axes, who: str
) -> Any:
    """Draw all rows that have points; colours and dashes are the same in every chart."""
    series: list[Series] = []
    hues: list[str] = []
    for row in comparison["rows"]:
        if found.get(row["name"]):
            dash = hues.count(row["encoding"])
            series.append(Series(row["name"], row["encoding"], dash, found[row["name"]]))
        hues.append(row["encoding"])
    if not series:
        raise ValueError(f"plots.{who}: no row of the comparison has numbers for this chart.")
    if not axes.accuracy:
        spread = 2.0 if who == "lab_training" else 3.0
        top = choose_axis_end((p.y for line in series for p in line.points), spread)
        axes = replace(axes, top=top)
    return draw_series(series, axes)


def _get_rows(comparison: Mapping[str, Any], who: str) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = comparison["rows"]
    if not rows:
        raise ValueError(f"plots.{who}: the comparison has no rows; let one run finish.")
    return rows


def _average_octaves(points: Iterable[tuple[float, float]], length: int) -> tuple[CurvePoint, ...]:
    """Means over half octaves of the position; ``length`` is a boundary between two of them."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for position, value in points:
        number = get_finite(value)
        if number is not None and position > 0:
            group = math.floor(_PER_OCTAVE * math.log2(position / length))
            groups.setdefault(group, []).append((position, number))
    return tuple(_average_points(group) for _, group in sorted(groups.items()))


def _average_points(group: Sequence[tuple[float, float]]) -> CurvePoint:
    return CurvePoint(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))


def _get_unit(comparison: Mapping[str, Any]) -> str:
    return str((comparison.get("corpus") or {}).get("unit") or "tokens")


def _name_loss(comparison: Mapping[str, Any]) -> str:
    return f"loss (nats per {_get_unit(comparison).removesuffix('s')})"


def _name_measure(comparison: Mapping[str, Any]) -> str:
    if comparison["settings"]["measure"] == "accuracy":
        return "accuracy (share of right answers)"
    return _name_loss(comparison)


def _describe_task(comparison: Mapping[str, Any]) -> str:
    task = comparison["settings"]["task"]
    if task != "text":
        return f"task: {task}"
    title = str((comparison.get("corpus") or {}).get("title") or "text")
    title = title.encode("utf-8", "replace").decode()  # a path may hold bytes that are no text
    return title if len(title) <= 60 else f"{title[:59]}\u2026"
