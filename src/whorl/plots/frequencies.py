"""Charts of RoPE's pairs: frequencies, wavelengths, angles, and points on the circle.

Each takes the ``to_dict`` of a result of ``whorl.analysis``.
"""

import math
from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import (
    add_title,
    apply_log_scale,
    format_number,
    import_altair,
    make_chart,
    make_color_scale,
)
from ._entry import chart
from .theme import PALETTE


@chart("frequencies", group="RoPE", numbers=_numbers.compute_frequencies)
def frequencies(found: Mapping[str, Any]) -> Any:
    """How fast each pair rotates.

    Radians per position of each pair, on a log scale, with their mean.
    """
    alt = import_altair()
    rows = [{"pair": i, "theta": f} for i, f in enumerate(found["inv_freq"]) if f > 0]
    stopped = len(found["inv_freq"]) - len(rows)
    base = make_chart(rows)
    y = alt.Y("theta:Q", title="inverse frequency (radians per position, log scale)")
    points = base.mark_point(size=36, opacity=1).encode(
        alt.X("pair:Q", title="pair i (0 rotates fastest)").axis(format="d", grid=False),
        apply_log_scale(y, rows, format="~g"),
        tooltip=["pair:Q", "theta:Q"],
    )
    mean = make_chart([{"mean": found["mean"], "words": "mean"}])
    rule = mean.mark_rule(strokeDash=[4, 3], strokeWidth=1.4).encode(y="mean:Q")
    text = mean.mark_text(align="right", dx=-4, dy=-8).encode(
        y="mean:Q", text="words:N", x=alt.value(540)
    )
    note = f"mean {found['mean']:.6f}, least {found['minimum']:.6f}"
    note += f"; {stopped} pairs do not rotate and are not shown" if stopped else ""
    chart = alt.layer(rule, points, text).properties(width=540, height=300)
    return add_title(chart, "How fast each pair rotates", found["encoding"], note)


@chart("wavelengths", group="RoPE", numbers=_numbers.compute_wavelengths)
def wavelengths(found: Mapping[str, Any]) -> Any:
    """Positions per rotation of each pair, against a context.

    Wavelength of each pair, against the context.
    """
    alt = import_altair()
    context = found["context"]
    inside, outside = "rotates fully within the context", "wavelength longer than the context"
    rows = [
        {"pair": i, "wavelength": w, "state": inside if w <= (context or w) else outside}
        for i, w in enumerate(found["wavelengths"])
        if w is not None
    ]
    x = alt.X("pair:Q", title="pair i (0 rotates fastest)").axis(format="d", grid=False)
    y = alt.Y("wavelength:Q", title="wavelength (positions per rotation, log scale)")
    y = apply_log_scale(y, [*rows, {"wavelength": context or math.tau}], format="~s")
    base = make_chart(rows).encode(x, y)
    if context is None:
        points = base.mark_point(size=36, opacity=1).encode(tooltip=["pair:Q", "wavelength:Q"])
        return add_title(
            points.properties(width=540, height=300), "Wavelengths of the pairs", found["encoding"]
        )
    hues = {inside: PALETTE["sky blue"], outside: PALETTE["vermilion"]}
    shown = [state for state in hues if any(row["state"] == state for row in rows)]
    colour = alt.Color("state:N", title=None, sort=shown).scale(
        domain=shown, range=[hues[state] for state in shown]
    )
    points = base.mark_point(size=36, opacity=1).encode(
        colour.legend(orient="top", offset=2), tooltip=["pair:Q", "wavelength:Q", "state:N"]
    )
    words = f"context {format_number(context)}"
    mark = make_chart([{"context": context, "words": words}])
    rule = mark.mark_rule(strokeDash=[4, 3], strokeWidth=1.4).encode(y="context:Q")
    # At the top of the chart the words are below their line, because the legend is above it.
    top = context >= max(row["wavelength"] for row in rows)
    text = mark.mark_text(align="left", dx=4, dy=10 if top else -8).encode(
        y="context:Q", text="words:N", x=alt.value(0)
    )
    count = len(found["wavelengths"])
    note = f"{found['full_turns']} of {count} pairs rotate fully within"
    note += f" {format_number(context)} tokens"
    chart = alt.layer(rule, points, text).properties(width=540, height=300)
    return add_title(chart, "Wavelengths against the context", found["encoding"], note)


@chart("angles", group="RoPE", numbers=_numbers.compute_angles)
def angles(found: Mapping[str, Any]) -> Any:
    """Angles by pair at some positions."""
    alt = import_altair()
    rows = [
        {"position": position, "pair": i, "radians": r, "wrapped": w}
        for position, line, wrapped in zip(
            found["positions"], found["radians"], found["wrapped"], strict=True
        )
        for i, r, w in zip(found["pairs"], line, wrapped, strict=True)
    ]
    base = make_chart(rows).encode(
        alt.X("pair:O", title="pair i").axis(labelAngle=0, grid=False, labelOverlap=True),
        alt.Y("radians:Q", title="angle (radians)"),
        alt.Color("position:N", title="position", sort=found["positions"]),
        tooltip=["position:Q", "pair:Q", "radians:Q", "wrapped:Q"],
    )
    chart = alt.layer(
        base.mark_line(strokeWidth=1.6), base.mark_point(size=46, opacity=1)
    ).properties(width=540, height=300)
    return add_title(
        chart,
        "Angles by pair and position",
        found["encoding"],
        "angle = position x theta_i: the first pairs rotate fast, the last ones slowly",
    )


@chart("circle", group="RoPE", numbers=_numbers.compute_circle)
def circle(found: Mapping[str, Any]) -> Any:
    """Paths of pairs on the circle.

    The vector (1, 0) of each pair, rotated to positions 0, 1, 2, ...: a circle for each pair.
    """
    alt = import_altair()
    heads = [f"pair {pair}" for pair in found["pairs"]]
    rows = [
        {"head": head, "position": p, "x": x, "y": y}
        for head, xs, ys in zip(heads, found["x"], found["y"], strict=True)
        for p, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    scale = {"domain": [-1.15, 1.15], "nice": False}
    axis = {"values": [-1, 0, 1], "grid": True, "format": "d"}
    few = found["length"] <= 64
    base = alt.Chart().encode(
        alt.X("x:Q", title="cos").scale(**scale).axis(**axis),
        alt.Y("y:Q", title="sin").scale(**scale).axis(**axis),
        order="position:Q",
    )
    path = base.mark_line(strokeWidth=0.8, opacity=0.5 if few else 0.15)
    points = base.mark_point(size=42 if few else 14, opacity=1).encode(
        alt.Color("position:Q", title="position", scale=make_color_scale()),
        tooltip=["head:N", "position:Q", "x:Q", "y:Q"],
    )
    panels = (
        alt.layer(path, points, data=alt.Data(values=rows))
        .properties(width=215, height=215)
        .facet(alt.Facet("head:N", title=None, sort=heads), columns=2 if len(heads) > 1 else 1)
    )
    last = found["length"] - 1
    return add_title(
        panels,
        f"The pairs on the circle, positions 0 to {format_number(last)}",
        found["encoding"],
        "the vector (1, 0) of each pair, rotated; every step rotates a pair by the same angle",
    )
