"""Charts of RoPE's scores by distance: envelope, bound, bases, aliases."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import add_title, apply_log_scale, format_number, import_altair, make_chart
from ._entry import chart
from .theme import PALETTE


@chart("decay", group="RoPE", numbers=_numbers.compute_decay)
def decay(found: Mapping[str, Any]) -> Any:
    """Envelope, Abel's bound, scores of random or trained q, k.

    The envelope f(m), and below it mean sizes of scores with Abel's bound.
    """
    alt = import_altair()
    last = found["distances"][-1]
    log = last > 2000
    x = alt.X("distance:Q", title=f"distance m - n (tokens{', log scale' if log else ''})").axis(
        grid=False, format="~s" if log else ",d", tickMinStep=1
    )
    x = x.scale(type="log", nice=False) if log else x.scale(nice=False)
    known = [(d, n) for n, d in enumerate(found["distances"]) if d > 0 or not log]
    top = make_chart([{"distance": d, "f": found["envelope"][n]} for d, n in known])
    above = top.mark_line().encode(
        x, alt.Y("f:Q", title="envelope f(m), no unit"), tooltip=["distance:Q", "f:Q"]
    )
    panels = alt.vconcat(
        above.properties(width=540, height=190),
        _draw_scores_and_bounds(found["scores"], known, x),
        spacing=24,
    )
    return add_title(
        panels.resolve_scale(color="independent", strokeDash="independent"),
        f"Decay with distance, up to {format_number(last)}",
        found["encoding"],
        "above: f(m) = mean of |S_j|, of the frequencies alone; below: scores, Abel's bound,",
        "all divided by |q| |k|, so that 1 is the most a score can be; means over q, k",
    )


def _draw_scores_and_bounds(
    cases: list[dict[str, Any]], known: list[tuple[int, int]], x: Any
) -> Any:
    """Mean sizes of scores and their bounds, in one colour per case. known: (distance, index)."""
    alt = import_altair()
    rows = [
        {"distance": d, "value": case[key][n], "of": case["name"], "what": words}
        for case in cases
        for key, words in (("mean_size", "mean |score|"), ("bound", "bound"))
        for d, n in known
        if case[key][n] and case[key][n] > 0
    ]
    return (
        make_chart(rows)
        .mark_line(strokeWidth=1.8)
        .encode(
            x,
            apply_log_scale(
                alt.Y("value:Q", title="|score| / (|q| |k|), log scale"), rows, format="~g"
            ),
            alt.Color("of:N", title=None, sort=[case["name"] for case in cases]).legend(
                orient="bottom"
            ),
            alt.StrokeDash("what:N", title=None, sort=["mean |score|", "bound"])
            .scale(domain=["mean |score|", "bound"], range=[[1, 0], [5, 3]])
            .legend(orient="bottom"),
            tooltip=["of:N", "what:N", "distance:Q", "value:Q"],
        )
        .properties(width=540, height=190)
    )


@chart("bases", group="RoPE", numbers=_numbers.compute_bases)
def bases(found: Mapping[str, Any]) -> Any:
    """What the base does to decay.

    f(m) relative to f(0), and the similarity of positions, for each base.
    """
    alt = import_altair()
    names = [format_number(base) for base in found["bases"]]
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
        .mark_line(strokeWidth=1.2)
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
    return add_title(
        panels,
        f"The effect of the base, head_dim {found['head_dim']}",
        "a larger base slows the pairs down, so that scores fall later",
        f"longest wavelength: {slow[0]} at base {names[0]}, {slow[-1]} at base {names[-1]}",
    )


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
