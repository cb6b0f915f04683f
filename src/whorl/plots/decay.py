"""Charts of RoPE's scores by distance: envelope, scores, bases, aliases."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from whorl._support.words import shorten

from . import _numbers
from ._draw import add_title, apply_log_scale, format_number, import_altair, make_chart
from ._entry import chart
from ._series import Axes, CurvePoint, Series, draw_series
from .theme import PALETTE

#: Scores go up and down; means are taken over distances up to so many times the first of them.
_WINDOW = 1.25


@chart("decay", group="RoPE", numbers=_numbers.compute_decay)
def decay(found: Mapping[str, Any]) -> Any:
    """How scores fall with distance, up to the model's context.

    The envelope f(m) / f(0) and mean sizes of scores, in a colour for each method.
    """
    plain = found["unscaled"]
    methods = {"": found} if plain is None else {"with scaling": found, "without": plain}
    lines = []
    for method, numbers in methods.items():
        first = numbers["envelope"][0]
        curves = {"f(m) / f(0)": [value / first for value in numbers["envelope"]]}
        curves |= {case["name"]: case["mean_size"] for case in numbers["scores"]}
        for dash, (quantity, values) in enumerate(curves.items()):
            name = f"{quantity}, {method}" if method else quantity
            lines.append(_smooth(name, method, dash, numbers["distances"], values))
    last = found["distances"][-1]
    return draw_series(
        lines,
        Axes(
            title=f"Decay with distance, up to {format_number(last)}",
            subtitle=f"{shorten(found['encoding'], 90)}\n"
            "f(m): of the frequencies alone; others: mean |score| / (|q| |k|), so at most 1\n"
            "lines are means over near distances, areas the range of the values",
            x="distance m - n (tokens, log scale)",
            y="relative size",
            ticks=_list_ticks(last),
            height=300,
        ),
    )


@chart("bases", group="RoPE", numbers=_numbers.compute_bases)
def bases(found: Mapping[str, Any]) -> Any:
    """What the base does to decay.

    f(m) relative to f(0), and the similarity of positions, for each base.
    """
    names = [f"base {format_number(base)}" for base in found["bases"]]
    panels = []
    for title, curves in (
        ("envelope f(m) / f(0)", [[f / each[0] for f in each] for each in found["envelopes"]]),
        ("similarity: mean of cos(m theta_i)", found["similarities"]),
    ):
        lines = [
            _smooth(name, name, 0, found["distances"], curve)
            for name, curve in zip(names, curves, strict=True)
        ]
        ticks = _list_ticks(found["distances"][-1])
        x = "distance (tokens, log scale)"
        panel = draw_series(lines, Axes(title, "", x=x, y="", ticks=ticks, height=190))
        heading = import_altair().TitleParams(title, fontSize=13, fontWeight=500, offset=8)
        panels.append(panel.properties(title=heading))
    slow = [f"{w:,.0f}" for w in found["longest"]]
    return add_title(
        import_altair().vconcat(*panels, spacing=20),
        f"The effect of the base, head_dim {found['head_dim']}",
        "a larger base slows the pairs down, so that scores fall later",
        f"longest wavelength: {slow[0]} at {names[0]}, {slow[-1]} at {names[-1]}",
        "lines are means over near distances, areas the range of the values",
    )


def _smooth(
    name: str, hue: str, dash: int, distances: Sequence[int], values: Sequence[float]
) -> Series:
    """A line of means over windows of near distances, with the range of the values in each."""
    points: list[CurvePoint] = []
    inside: list[tuple[int, float]] = []
    for n, (distance, value) in enumerate(zip(distances, values, strict=True)):
        if distance > 0:
            inside.append((distance, value))
        if inside and (n + 1 == len(values) or distances[n + 1] > _WINDOW * inside[0][0]):
            known = [each for _, each in inside]
            middle = math.sqrt(inside[0][0] * inside[-1][0])
            mean = sum(known) / len(known)
            points.append(CurvePoint(middle, mean, min(known), max(known)))
            inside = []
    return Series(name, hue, dash, tuple(points))


def _list_ticks(last: int) -> tuple[int, ...]:
    """Powers of ten up to the last distance, which is a tick too."""
    powers = [10**n for n in range(16) if 10**n <= last / 2]
    return (*powers, last)


@chart("aliasing", group="RoPE", numbers=_numbers.compute_aliasing)
def aliasing(found: Mapping[str, Any]) -> Any:
    """Far distances that look near again.

    Range of similarity in each bin of distances, the alias if there is one, and the returns.
    """
    alt = import_altair()
    rows = [
        {"distance": d, "lowest": low, "highest": high}
        for d, low, high in zip(found["distances"], found["lowest"], found["highest"], strict=True)
    ]
    x = alt.X("distance:Q", title="distance (tokens, log scale)")
    x = apply_log_scale(x, rows, format="~s", grid=False)
    y = alt.Y("lowest:Q", title="likeness, mean of cos(m theta_i)").scale(nice=False)
    base = make_chart(rows).encode(x, tooltip=["distance:Q", "highest:Q"])
    band = base.mark_area(opacity=0.3).encode(y, y2="highest:Q")
    line = base.mark_line(strokeWidth=1.4).encode(alt.Y("highest:Q"))
    near = make_chart([{"near": found["near"]}])
    layers = [
        near.mark_rule(strokeDash=[4, 3], strokeWidth=1.4).encode(y="near:Q"),
        band,
        line,
        *(_draw_dots(each, x) for each in (found["returns"], [found["alias"]]) if each and each[0]),
    ]
    return add_title(
        alt.layer(*layers).properties(width=540, height=280),
        f"Aliasing: do far tokens look near, up to {format_number(found['length'])}?",
        found["encoding"],
        *_describe_aliasing(found),
    )


def _draw_dots(points: list[dict[str, Any]], x: Any) -> Any:
    """Rings for returns, or a full dot for an alias."""
    alt = import_altair()
    alias = "near" in points[0]
    dots = make_chart(points).mark_point(
        size=90 if alias else 52, opacity=1, filled=alias, color=PALETTE["vermilion"]
    )
    return dots.encode(x, alt.Y("similarity:Q"), tooltip=["distance:Q", "similarity:Q"])


def _describe_aliasing(found: Mapping[str, Any]) -> list[str]:
    alias, returns = found["alias"], found["returns"]
    if alias:
        first = f"yes: {format_number(alias['distance'])} apart looks {alias['similarity']:.3g}"
        first += f" alike, 2 apart {found['near']:.3g} (full dot, dashed)"
    else:
        first = f"no: past its fall, nothing looks as near as 2 apart, {found['near']:.3g} (dashed)"
    if not returns:
        return [first, "the further away a token is, the less alike it looks"]
    best = returns[0]
    second = f"greatest return: from {best['lowest']:.3g} at {format_number(best['lowest_at'])} to"
    return [
        first,
        f"{second} {best['similarity']:.3g} at {format_number(best['distance'])} (rings)",
    ]
