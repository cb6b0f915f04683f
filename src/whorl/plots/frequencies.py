"""Charts of RoPE's pairs: frequencies, wavelengths, angles, and points on the circle.

Each takes the ``to_dict`` of a result of ``whorl.analysis``.
"""

from collections.abc import Mapping
from typing import Any

from whorl._support.words import shorten

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
from ._series import GREY
from .theme import PALETTE

_INSIDE, _OUTSIDE = "rotates fully within the context", "wavelength longer than the context"
_STATE_COLORS = {
    _INSIDE: PALETTE["sky blue"],
    _OUTSIDE: PALETTE["vermilion"],
    "before": GREY,
    "after": PALETTE["blue"],
}


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

    With a scaling, before and after it, against the trained length and the context.
    """
    plain, context = found["unscaled"], found["context"]
    tables = [("before", plain), ("after", found)] if plain else [(_INSIDE, found)]
    rows = [
        {
            "pair": i,
            "wavelength": w,
            "state": _OUTSIDE if not plain and w > (context or w) else name,
        }
        for name, table in tables
        for i, w in enumerate(table["wavelengths"])
        if w is not None
    ]
    names = {"trained length": plain["context"] if plain else None, "context": context}
    marks = [
        {"wavelength": tokens, "words": f"{name} {format_number(tokens)}"}
        for name, tokens in names.items()
        if tokens and (name == "context" or tokens != context)
    ]
    title = "Wavelengths against the context" if marks else "Wavelengths of the pairs"
    notes = [
        f"{name + ': ' if plain else ''}{table['full_turns']} of {len(table['wavelengths'])} pairs"
        f" rotate fully within {format_number(table['context'])} tokens"
        for name, table in tables
        if table["context"]
    ]
    return add_title(_draw_wavelengths(rows, marks), title, shorten(found["encoding"], 90), *notes)


def _draw_wavelengths(rows: list[dict[str, Any]], marks: list[dict[str, Any]]) -> Any:
    """A dot for each pair in each state, and a dashed line with words for each length."""
    alt = import_altair()
    states = [state for state in _STATE_COLORS if any(row["state"] == state for row in rows)]
    x = alt.X("pair:Q", title="pair i (0 rotates fastest)").axis(format="d", grid=False)
    y = alt.Y("wavelength:Q", title="wavelength (positions per rotation, log scale)")
    y = apply_log_scale(y, [*rows, *marks], format="~s")
    points = (
        make_chart(rows)
        .mark_point(size=36, opacity=1)
        .encode(
            x,
            y,
            alt.Color("state:N", title=None, sort=states)
            .scale(domain=states, range=[_STATE_COLORS[state] for state in states])
            .legend(alt.Legend(orient="top", offset=2) if marks else None),
            tooltip=["pair:Q", "wavelength:Q", "state:N"],
        )
    )
    lines = make_chart(marks)
    rule = lines.mark_rule(strokeDash=[4, 3], strokeWidth=1.4).encode(y="wavelength:Q")
    # At the top of the chart the words are below their line, because the legend is above it.
    top = max(row["wavelength"] for row in rows)
    text = lines.transform_calculate(shift=f"datum.wavelength >= {top} ? 10 : -8").mark_text(
        align="left", dx=4, dy=alt.expr("datum.shift")
    )
    text = text.encode(y="wavelength:Q", text="words:N", x=alt.value(0))
    layers = [rule, points, text] if marks else [points]
    return alt.layer(*layers).properties(width=540, height=300)


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
