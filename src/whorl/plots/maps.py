"""Charts of positions in pairs and in the plane: similarity, scores, terms, maps."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import altair, heat_map, number, shades, titled
from ._entry import chart

_METHODS = {"pca": "principal components", "tsne": "t-SNE"}


@chart(
    "similarity",
    group="any encoding",
    summary="how alike positions look, each with each",
    numbers=_numbers.similarity,
)
def similarity(found: Mapping[str, Any]) -> Any:
    """How alike positions look, each with each."""
    vectors = found["kind"] == "vectors"
    values = found["values"]
    flat = [v for row in values for v in row if v is not None]
    chart = heat_map(
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
    notes = [note + _sampled(found)]
    if max(flat) - min(flat) < 1e-9:
        notes.append(f"all are {flat[0]:.3g}: it does not tell positions apart")
    if len(flat) < len(values) ** 2:
        notes.append("no score for later keys: it is for causal attention only")
    return titled(chart, "How alike positions look", found["encoding"], *notes)


@chart(
    "scores",
    group="RoPE",
    summary="one query, one key, every place: equal along diagonals",
    numbers=_numbers.scores,
)
def inner_products(found: Mapping[str, Any]) -> Any:
    """Scores of one query and one key placed everywhere: equal along diagonals."""
    chart = heat_map(found["values"], found["positions"], legend="score (logits)")
    return titled(
        chart,
        "One query, one key, every place",
        found["encoding"],
        f"equal differences m - n give equal scores, to {found['spread']:.0e}{_sampled(found)}",
    )


def _sampled(found: Mapping[str, Any]) -> str:
    """What is left out, in words, where there are more positions than fit."""
    step = found["positions"][1] - found["positions"][0]
    return f"; one position in {number(step)}" if step > 1 else ""


@chart(
    "map",
    group="any encoding",
    summary="positions in the plane, by PCA or t-SNE",
    numbers=_numbers.map,
)
def position_map(found: Mapping[str, Any]) -> Any:
    """Every position as a point in the plane, in order."""
    alt = altair()
    rows = [
        {"position": p, "x": x, "y": y}
        for p, x, y in zip(found["positions"], found["x"], found["y"], strict=True)
    ]
    share = found["explained"]
    label = "component" if found["method"] == "pca" else "t-SNE"
    base = alt.Chart(alt.Data(values=rows)).encode(
        alt.X("x:Q", title=f"{label} 1").axis(tickCount=5).scale(zero=False),
        alt.Y("y:Q", title=f"{label} 2").axis(tickCount=5).scale(zero=False),
        order="position:Q",
    )
    line = base.mark_line(strokeWidth=0.7, opacity=0.4)
    points = base.mark_point(size=34, opacity=1).encode(
        alt.Color("position:Q", title="position", scale=shades()),
        tooltip=["position:Q"],
    )
    note = f"{_METHODS[found['method']]} of the vectors of {number(len(rows))} positions"
    if share is not None:
        note += f"; two of them hold {share:.0%} of the variance"
    return titled(
        alt.layer(line, points).properties(width=420, height=380),
        "Positions in the plane",
        found["encoding"],
        note,
    )


@chart(
    "terms", group="any encoding", summary="a score as the sum of its terms", numbers=_numbers.terms
)
def terms(found: Mapping[str, Any]) -> Any:
    """A score as the sum of its terms, one map each, in one scale of colours."""
    alt = altair()
    maps = {**found["terms"], "score (sum)": found["score"]}
    limit = max(abs(v) for grid in maps.values() for row in grid for v in row) or 1.0
    panels = []
    for name, grid in maps.items():
        size = found["sizes"].get(name)
        panel = heat_map(grid, found["positions"], legend="logits", size=190, limit=limit)
        words = name if size is None else f"{name}, rms {size:.2g}"
        panels.append(panel.properties(title=alt.TitleParams(words, fontSize=13, offset=6)))
    chart = alt.concat(*panels, columns=2 if len(panels) in (2, 4) else 3, spacing=18)
    return titled(
        chart.resolve_scale(color="shared"),
        "A score, term by term",
        found["encoding"],
        "random tokens, and random numbers in place of trained ones; head"
        f" {found['head']}, in logits",
    )
