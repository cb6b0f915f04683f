"""Charts of one training: frequencies before and after it, and gradient norms by step."""

import math
from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import (
    add_title,
    draw_empty,
    format_number,
    import_altair,
    list_colors,
    list_powers,
    make_chart,
)
from ._entry import chart
from ._series import GREY, move_apart
from .theme import PALETTE

_START, _END = "at the start", "after training"
_WIDTH = 500
_HEIGHT = 320  # of the chart of gradient norms
_FACTORS = (0.1, 0.2, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)


@chart("trained-frequencies", group="a model", numbers=_numbers.compute_trained_frequencies)
def trained_frequencies(found: Mapping[str, Any]) -> Any:
    """Frequencies before and after training.

    Above: each pair at the start and at the end. Below: its frequency by step, divided by that at
    the start.
    """
    alt = import_altair()
    title = "Frequencies before and after training"
    last = found["values"][-1]
    rows = [
        {"group": group, "pair": pair, "start": a, "end": b}
        for group, starts, ends in zip(found["groups"], found["start"], last, strict=True)
        for pair, (a, b) in enumerate(zip(starts, ends, strict=True))
        if a > 0 and b > 0
    ]
    if not rows:
        return draw_empty(title, "no pair rotates")
    panels = [_draw_pairs(found, rows)]
    if len(found["steps"]) > 1:
        panels.append(_draw_factors(found))
    steps = format_number(found["steps"][-1])
    most = max(rows, key=lambda row: abs(math.log(row["end"] / row["start"])))
    where = f" of {most['group']}" if len(found["groups"]) > 1 else ""
    return add_title(
        alt.vconcat(*panels, spacing=26).resolve_scale(color="independent"),
        title,
        f"{found['name']}, {steps} steps",
        f"pair {most['pair']}{where} changed most: {most['start']:.3g} to {most['end']:.3g}"
        f" radians per position ({most['end'] / most['start']:.3g}x)",
    )


def _draw_pairs(found: Mapping[str, Any], rows: list[dict[str, Any]]) -> Any:
    """Two dots for each pair and a line between them; a panel for each group."""
    alt = import_altair()
    several = len(found["groups"]) > 1
    width = 225 if several else _WIDTH
    bound = math.tau / found["length"]
    values = [row[key] for row in rows for key in ("start", "end")] + [bound]
    low, high = min(values) / 1.3, max(values) * 1.3
    x = alt.X("pair:O", title="pair i").axis(labelAngle=0, grid=False, labelOverlap=True)

    def scale_frequency(field: str) -> Any:
        y = alt.Y(f"{field}:Q", title="radians per position (log scale)")
        y = y.scale(type="log", domain=[low, high], nice=False)
        return y.axis(values=list_powers([low, high]), format="~g", grid=True)

    colour = alt.Color("when:N", title=None, sort=[_START, _END]).scale(
        domain=[_START, _END], range=[GREY, PALETTE["vermilion"]]
    )
    shown = alt.Chart().transform_filter("isValid(datum.start)")
    dots = [
        shown.transform_calculate(when=f"'{when}'")
        .mark_point(size=size, opacity=1)
        .encode(
            x,
            scale_frequency(key),
            colour.legend(orient="top", padding=0, offset=4),
            tooltip=["group:N", "pair:O", "start:Q", "end:Q"],
        )
        for when, key, size in ((_START, "start", 100), (_END, "end", 45))
    ]
    marked = alt.Chart().transform_filter("isValid(datum.bound)").encode(scale_frequency("bound"))
    text = marked.mark_text(align="right", baseline="bottom", dy=-3, fontSize=11)
    layers = [
        marked.mark_rule(strokeDash=[4, 3], strokeWidth=1.2),
        text.encode(x=alt.value(width), text="words:N"),
        shown.mark_rule(strokeWidth=2, color=GREY, opacity=0.6).encode(
            x, scale_frequency("start"), y2="end:Q"
        ),
        *dots,
    ]
    words = f"one rotation in {format_number(found['length'])} tokens"
    marks = [{"group": group, "bound": bound, "words": words} for group in found["groups"]]
    panel = alt.layer(*layers, data=alt.Data(values=[*rows, *marks]))
    if not several:
        return panel.properties(width=width, height=260)
    head = alt.Facet("group:N", title=None, sort=found["groups"]).header(labelAnchor="start")
    return panel.properties(width=width, height=190).facet(head, columns=2)


def _draw_factors(found: Mapping[str, Any]) -> Any:
    """Frequencies by step over those at the start, a line for each pair."""
    alt = import_altair()
    rows = [
        {"group": group, "pair": pair, "step": step, "factor": value / start}
        for step, groups in zip(
            [0, *found["steps"]], [found["start"], *found["values"]], strict=True
        )
        for group, starts, values in zip(found["groups"], found["start"], groups, strict=True)
        for pair, (start, value) in enumerate(zip(starts, values, strict=True))
        if start > 0 and value > 0
    ]
    pairs = sorted({row["pair"] for row in rows})
    # A factor of 1.1 up and down at least, so that rounding does not look like a change.
    ends = [row["factor"] for row in rows]
    low, high = min(1 / 1.1, *ends) / 1.03, max(1.1, *ends) * 1.03
    y = alt.Y("factor:Q", title="frequency / start (log scale)")
    y = y.scale(type="log", domain=[low, high], nice=False)
    ticks = [tick for tick in _FACTORS if low <= tick <= high]
    crowded = high / low > 10
    y = y.axis(values=ticks, format="~g", grid=True, labelOverlap=crowded, tickCount=len(ticks))
    base = make_chart(rows)
    lines = base.mark_line(strokeWidth=1.8).encode(
        alt.X("step:Q", title="step").scale(nice=False).axis(format="d", grid=False, tickMinStep=1),
        y,
        alt.Color("pair:O", title="pair i").scale(domain=pairs, range=list_colors(len(pairs))),
        detail="group:N",
        tooltip=["group:N", "pair:O", "step:Q", "factor:Q"],
    )
    return lines.properties(width=_WIDTH, height=200)


@chart("gradient-norms", group="a model", numbers=_numbers.compute_gradient_norms)
def gradient_norms(found: Mapping[str, Any]) -> Any:
    """Gradient norms of a model's parts by step of training."""
    alt = import_altair()
    rows = [
        {"part": part, "step": step, "norm": norm}
        for part, norms in found["values"].items()
        for step, norm in zip(found["steps"], norms, strict=True)
        if norm is not None
    ]
    title = "Gradient norms of each part"
    if not rows:
        return draw_empty(title, "all gradients are 0")
    known = {row["part"]: row for row in rows}  # the last point of each part
    parts = sorted(known, key=lambda part: -known[part]["norm"])
    norms = [row["norm"] for row in rows]
    low, high = min(norms) / 1.15, max(norms) * 1.15
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("norm:Q", title="gradient norm (log scale)", scale=scale)
    y = y.axis(values=list_powers([low, high]), format="~g")
    colour = alt.Color("part:N", legend=None).scale(domain=sorted(found["values"]))
    lines = (
        make_chart(rows)
        .mark_line(strokeWidth=2)
        .encode(
            alt.X("step:Q", title="step").scale(nice=False).axis(format="d", grid=False),
            y,
            colour,
            tooltip=["part:N", alt.Tooltip("step:Q", format=".0f"), "norm:Q"],
        )
    )
    end = max(row["step"] for row in rows)
    heights = move_apart(
        [math.log(known[part]["norm"]) for part in parts],
        16 * math.log(high / low) / _HEIGHT,
        math.log(low),
    )
    ends = make_chart(
        [
            {**known[part], "end": end, "label": math.exp(at)}
            for part, at in zip(parts, heights, strict=True)
        ]
    )
    leader = ends.mark_rule(xOffset=4, x2Offset=18, strokeWidth=1.2).encode(
        x="step:Q", x2="end:Q", y="norm:Q", y2="label:Q", color=colour
    )
    text = ends.mark_text(align="left", dx=22).encode(x="end:Q", y="label:Q", text="part:N")
    per = found["per_point"]
    means = "each step" if per == 1 else f"geometric means of {per} steps"
    return add_title(
        alt.layer(lines, leader, text).properties(width=520, height=_HEIGHT),
        title,
        found["name"],
        f"{means}, before clipping",
        f"{found['clipped']:.0%} of the steps had a total norm above {found['clip']:g} and were"
        " clipped to it",
    )
