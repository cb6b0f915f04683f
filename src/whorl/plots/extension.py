"""Charts of methods of extension tried on weights: loss by length and position, and retrieval.

They read the document that ``whorl.extend.evaluation.evaluate_methods`` returns.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ._draw import add_title, import_altair
from ._series import Axes, ChartWidth, CurvePoint, Series, choose_axis_end, draw_series, get_finite

__all__ = ["extension", "extension_lengths", "extension_positions", "extension_retrieval"]

# Methods of one kind share a colour; the dashes tell them apart.
_HUES = {
    "none": "nope",  # the baseline, grey
    "sliding_window": "sliding window",
    "linear": "linear",
    "dynamic_linear": "linear",
    "ntk": "ntk",
    "raised_base": "ntk",
    "dynamic_ntk": "ntk",
    "ntk_by_parts": "by parts",
    "yarn": "by parts",
    "dynamic_yarn": "by parts",
    "llama3": "llama3",
}


def extension(document: Mapping[str, Any]) -> Any:
    """All charts below each other: by length, by position, and retrieval if it was measured."""
    charts = [extension_lengths(document), extension_positions(document)]
    if (document["retrieval"] or {}).get("forms"):
        charts.append(extension_retrieval(document))
    separate = dict.fromkeys(("x", "y", "color", "strokeDash"), "independent")
    return import_altair().vconcat(*charts, spacing=44).resolve_scale(**separate)


def extension_lengths(document: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Loss of the same tokens with more or less text before them, by method."""
    lengths = document["lengths"]
    found = {
        row["name"]: tuple(
            CurvePoint(n, value)
            for n in lengths
            if (value := get_finite((row["by_length"].get(str(n)) or {}).get("loss"))) is not None
        )
        for row in document["rows"]
    }
    axes = Axes(
        title="Loss by length of the text",
        subtitle=f"{document['model']}: the same {document['scored']} tokens of"
        f" {document['windows']} windows at every length",
        x="length of the text (tokens, log scale)",
        y="loss (nats per token)",
        ticks=tuple(lengths),
        mark=(document["trained"], f"trained at {document['trained']:,}"),
        height=380,
        width=width,
    )
    return _draw(found, axes, "extension_lengths")


def extension_positions(document: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Loss along texts of the target length, by method."""
    found = {}
    for row in document["rows"]:
        curve = row.get("by_position") or {"end": [], "loss": []}
        ends, losses = curve["end"], curve["loss"]
        middles = [(a + b) / 2 for a, b in zip([0, *ends], ends, strict=False)]
        points = zip(middles, losses, strict=True)
        found[row["name"]] = tuple(CurvePoint(x, y) for x, y in points if get_finite(y) is not None)
    target = document["target"]
    axes = Axes(
        title=f"Loss by position in texts of {target:,} tokens",
        subtitle=f"{document['model']}: means over intervals of {target // 32:,} positions",
        x="position (tokens)",
        y="loss (nats per token)",
        ticks=tuple(round(target * n / 4) for n in range(5)),
        mark=(document["trained"], f"trained to {document['trained']:,}"),
        log=False,
        width=width,
    )
    return _draw(found, axes, "extension_positions")


def extension_retrieval(document: Mapping[str, Any]) -> Any:
    """Share of right answers by depth and length: a row for each method, a column for each form."""
    alt = import_altair()
    found = document["retrieval"] or {}
    rows = [
        {
            "form": form.replace("_", " "),
            "method": name,
            "length": f"{int(length):,}",
            "depth": f"{depth:.0%}",
            "share": share,
        }
        for form, methods in found.get("forms", {}).items()
        for name, cells in methods.items()
        for length, shares in cells.items()
        for depth, share in zip(found["depths"], shares, strict=True)
    ]
    if not rows:
        raise ValueError("plots.extension_retrieval: the document has no results of retrieval.")
    lengths = [f"{n:,}" for n in document["lengths"] if n >= document["trained"]]
    base = alt.Chart().encode(
        alt.X("length:O", title="tokens", sort=lengths).axis(labelAngle=0),
        alt.Y("depth:O", title=None, sort=[f"{depth:.0%}" for depth in found["depths"]]),
    )
    cells = base.mark_rect().encode(
        alt.Color("share:Q", title="right answers", scale=_make_share_scale()).legend(format=".0%"),
        tooltip=["method:N", "form:N", "length:N", "depth:N", alt.Tooltip("share:Q", format=".0%")],
    )
    numbers = base.mark_text(fontSize=10).encode(
        text=alt.Text("share:Q", format=".0%"),
        color=alt.condition("datum.share > 0.55", alt.value("white"), alt.value("#1a1d21")),
    )
    panel = alt.layer(cells, numbers, data=alt.Data(values=rows)).properties(
        width=max(120, 46 * len(lengths)), height=16 * len(found["depths"])
    )
    order = list(dict.fromkeys(row["method"] for row in rows))
    chart = panel.facet(
        row=alt.Row("method:N", title=None, sort=order).header(
            labelAngle=0, labelAlign="left", labelFontSize=12
        ),
        column=alt.Column("form:N", title=None, sort=list(dict.fromkeys(r["form"] for r in rows))),
        spacing={"row": 6, "column": 14},
    )
    return add_title(
        chart,
        "Retrieval by depth and length",
        f"{document['model']}: right answers of {found['texts']} texts in each cell; depth 0 % is"
        " the start of the text",
    )


def _make_share_scale() -> Any:
    return import_altair().Scale(domain=[0, 1], range=["#F3EFE4", "#1F6FB0"], interpolate="rgb")


def _draw(found: Mapping[str, tuple[CurvePoint, ...]], axes: Axes, who: str) -> Any:
    series: list[Series] = []
    hues: list[str] = []
    for name, points in found.items():
        hue = _HUES.get(name, name)
        if points:
            series.append(Series(name, hue, hues.count(hue), points))
        hues.append(hue)
    if not series:
        raise ValueError(f"plots.{who}: no row of the document has numbers for this chart.")
    top = choose_axis_end((p.y for line in series for p in line.points), 3.0)
    return draw_series(series, replace(axes, top=top))
