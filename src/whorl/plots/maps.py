"""Charts of pairs of positions, and of positions in the plane."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import (
    add_title,
    draw_heat_map,
    format_number,
    import_altair,
    make_chart,
    make_color_scale,
)
from ._entry import chart

_METHODS = {"pca": "principal components", "tsne": "t-SNE"}


@chart("similarity", group="any encoding", numbers=_numbers.compute_similarity)
def similarity(found: Mapping[str, Any]) -> Any:
    """Similarity of all pairs of positions."""
    vectors = found["kind"] == "vectors"
    values = found["values"]
    flat = [v for row in values for v in row if v is not None]
    chart = draw_heat_map(
        values,
        found["positions"],
        legend="cosine" if vectors else "logits",
        diverging=vectors or (min(flat) < 0 < max(flat)),
        limit=1.0 if vectors else None,
    )
    note = (
        "cosine between the vectors of two positions"
        if vectors
        else "scores of equal tokens, mean over heads"
    )
    notes = [note + _describe_sampling(found)]
    if max(flat) - min(flat) < 1e-9:
        notes.append(f"all are {flat[0]:.3g}: it does not tell positions apart")
    if len(flat) < len(values) ** 2:
        notes.append("no score for later keys: it is for causal attention only")
    return add_title(chart, "Similarity of positions", found["encoding"], *notes)


@chart("scores", group="RoPE", numbers=_numbers.compute_scores)
def inner_products(found: Mapping[str, Any]) -> Any:
    """Scores of one query and one key at all positions.

    Scores of one query and one key at all positions: equal along diagonals.
    """
    chart = draw_heat_map(found["values"], found["positions"], legend="score (logits)")
    return add_title(
        chart,
        "One query and one key at all positions",
        found["encoding"],
        f"equal distances m - n give equal scores, to {found['spread']:.0e}"
        f"{_describe_sampling(found)}",
    )


def _describe_sampling(found: Mapping[str, Any]) -> str:
    """Which positions are left out, in words, if not all are shown."""
    step = found["positions"][1] - found["positions"][0]
    return f"; one position in {format_number(step)}" if step > 1 else ""


@chart("map", group="any encoding", numbers=_numbers.compute_map)
def position_map(found: Mapping[str, Any]) -> Any:
    """Positions in the plane, by PCA or t-SNE.

    Every position as a point in the plane, joined in order.
    """
    alt = import_altair()
    rows = [
        {"position": p, "x": x, "y": y}
        for p, x, y in zip(found["positions"], found["x"], found["y"], strict=True)
    ]
    share = found["explained"]
    label = "component" if found["method"] == "pca" else "t-SNE"
    base = make_chart(rows).encode(
        alt.X("x:Q", title=f"{label} 1").axis(tickCount=5).scale(zero=False),
        alt.Y("y:Q", title=f"{label} 2").axis(tickCount=5).scale(zero=False),
        order="position:Q",
    )
    line = base.mark_line(strokeWidth=0.7, opacity=0.4)
    points = base.mark_point(size=34, opacity=1).encode(
        alt.Color("position:Q", title="position", scale=make_color_scale()),
        tooltip=["position:Q"],
    )
    note = f"{_METHODS[found['method']]} of the vectors of {format_number(len(rows))} positions"
    if share is not None:
        note += f"; two of them hold {share:.0%} of the variance"
    return add_title(
        alt.layer(line, points).properties(width=420, height=380),
        "Positions in the plane",
        found["encoding"],
        note,
    )


@chart("terms", group="any encoding", numbers=_numbers.compute_terms)
def terms(found: Mapping[str, Any]) -> Any:
    """A score as the sum of its terms.

    A score as the sum of its terms: a map for each, with the same colours.
    """
    alt = import_altair()
    maps = {**found["terms"], "score (sum)": found["score"]}
    limit = max(abs(v) for grid in maps.values() for row in grid for v in row) or 1.0
    panels = []
    for name, grid in maps.items():
        size = found["sizes"].get(name)
        panel = draw_heat_map(grid, found["positions"], legend="logits", size=190, limit=limit)
        words = name if size is None else f"{name}, rms {size:.2g}"
        panels.append(panel.properties(title=alt.TitleParams(words, fontSize=13, offset=6)))
    chart = alt.concat(*panels, columns=2 if len(panels) in (2, 4) else 3, spacing=18)
    return add_title(
        chart.resolve_scale(color="shared"),
        "A score, term by term",
        found["encoding"],
        "random tokens, and random numbers in place of trained ones; head"
        f" {found['head']}, in logits",
    )
