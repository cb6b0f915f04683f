"""Charts of what distance does to RoPE's scores: envelope, bound, bases, aliases."""

from collections.abc import Mapping
from typing import Any

from ._draw import altair, number, powers, titled
from ._series import GREY
from .theme import PALETTE

__all__ = ["aliasing", "bases", "decay"]


def decay(found: Mapping[str, Any]) -> Any:
    """f(m) above; below it, sizes of scores under Abel's bound."""
    alt = altair()
    distances = found["distances"]
    log = distances[-1] > 2000
    x = alt.X("distance:Q", title=f"distance m - n (tokens{', log scale' if log else ''})").axis(
        grid=False, format="~s" if log else ",d"
    )
    x = x.scale(type="log", nice=False) if log else x.scale(nice=False)
    known = [(d, n) for n, d in enumerate(distances) if d > 0 or not log]
    top = alt.Chart(alt.Data(values=[{"distance": d, "f": found["envelope"][n]} for d, n in known]))
    above = top.mark_line().encode(
        x, alt.Y("f:Q", title="envelope f"), tooltip=["distance:Q", "f:Q"]
    )
    above = above.properties(width=540, height=190)
    rows = []
    for scores in found["scores"]:
        for key, words in (("mean_size", "mean |score|"), ("bound", "bound")):
            rows += [
                {"distance": d, "value": scores[key][n], "of": scores["name"], "what": words}
                for d, n in known
                if scores[key][n] and scores[key][n] > 0
            ]
    names = [scores["name"] for scores in found["scores"]]
    below = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=1.8)
        .encode(
            x,
            alt.Y("value:Q", title="relative to |q| |k| (log scale)")
            .scale(type="log", nice=False)
            .axis(format="~g", values=powers([row["value"] for row in rows])),
            alt.Color("of:N", title=None, sort=names).legend(orient="bottom"),
            alt.StrokeDash("what:N", title=None, sort=["mean |score|", "bound"])
            .scale(domain=["mean |score|", "bound"], range=[[1, 0], [5, 3]])
            .legend(orient="bottom"),
            tooltip=["of:N", "what:N", "distance:Q", "value:Q"],
        )
        .properties(width=540, height=190)
    )
    note = "f(m) = mean of |S_j|; the Abel bound is f times a factor of each q, k"
    return titled(
        alt.vconcat(above, below, spacing=24).resolve_scale(
            color="independent", strokeDash="independent"
        ),
        f"Decay with distance, up to {number(distances[-1])}",
        found["encoding"],
        note,
    )


def bases(found: Mapping[str, Any]) -> Any:
    """f(m) relative to f(0), and the similarity of positions, for each base."""
    alt = altair()
    names = [number(base) for base in found["bases"]]
    rows = [
        {"distance": d, "value": value[n] / first, "base": name, "what": what}
        for what, key in (("envelope f(m) / f(0)", "envelopes"), ("similarity", "similarities"))
        for name, value in zip(names, found[key], strict=True)
        for first in [value[0] if key == "envelopes" else 1.0]
        for n, d in enumerate(found["distances"])
        if d > 0
    ]
    base = (
        alt.Chart()
        .mark_line(strokeWidth=1.8)
        .encode(
            alt.X("distance:Q", title="distance (tokens, log scale)")
            .scale(type="log", nice=False)
            .axis(format="~s", grid=False),
            alt.Y("value:Q", title=None),
            alt.Color("base:N", title="base", sort=names),
            tooltip=["base:N", "distance:Q", "value:Q"],
        )
        .properties(width=540, height=180)
    )
    panels = base.facet(
        alt.Facet("what:N", title=None, header=alt.Header(labelAnchor="start")),
        columns=1,
        data=alt.Data(values=rows),
        spacing=16,
    ).resolve_scale(y="independent").resolve_axis(x="independent")  # fmt: skip
    slow = [f"{w:,.0f}" for w in found["longest"]]
    return titled(
        panels,
        f"The effect of the base, head_dim {found['head_dim']}",
        "a larger base slows the pairs down, so that scores fall later",
        f"longest wavelength: {slow[0]} at base {names[0]}, {slow[-1]} at base {names[-1]}",
    )


def aliasing(found: Mapping[str, Any]) -> Any:
    """The range of similarity in each bin of distance, and where it returns from its lowest."""
    alt = altair()
    rows = [
        {"distance": d, "lowest": low, "highest": high}
        for d, low, high in zip(found["distances"], found["lowest"], found["highest"], strict=True)
    ]
    x = alt.X("distance:Q", title="distance (tokens, log scale)")
    x = x.scale(type="log", nice=False).axis(
        format="~s", grid=False, values=powers([row["distance"] for row in rows])
    )
    y = alt.Y("lowest:Q", title="similarity, mean of cos(m theta_i)").scale(nice=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x, tooltip=["distance:Q", "highest:Q"])
    band = base.mark_area(opacity=0.3).encode(y, y2="highest:Q")
    line = base.mark_line(strokeWidth=1.4).encode(alt.Y("highest:Q"))
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(color=GREY, strokeWidth=0.8)
    layers = [zero.encode(alt.YDatum(0)), band, line]
    title = f"Aliases: far tokens that look nearer, up to {number(found['length'])}"
    aliases = found["aliases"]
    if not aliases:
        note = "none: the further away a token is, the less alike it looks"
        return titled(
            alt.layer(*layers).properties(width=540, height=280), title, found["encoding"], note
        )
    dots = alt.Chart(alt.Data(values=aliases)).mark_point(
        size=64, opacity=1, color=PALETTE["vermilion"]
    )
    layers.append(dots.encode(x, alt.Y("similarity:Q"), tooltip=["distance:Q", "similarity:Q"]))
    best = aliases[0]
    note = f"greatest return: from {best['lowest']:.3g} at {number(best['lowest_at'])} to"
    note += f" {best['similarity']:.3g} at {number(best['distance'])}; dots: the greatest ones"
    return titled(
        alt.layer(*layers).properties(width=540, height=280), title, found["encoding"], note
    )
