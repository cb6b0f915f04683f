"""Charts of methods of extension tried on weights: loss by length and by position.

They read the document that ``whorl.extend.evaluation.evaluate_methods`` returns.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ._draw import import_altair
from ._series import Axes, CurvePoint, Series, choose_axis_end, draw_series, get_finite

__all__ = ["extension", "extension_lengths", "extension_positions"]

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
    """Both charts: by length, and below it by position."""
    charts = [extension_lengths(document), extension_positions(document)]
    separate = dict.fromkeys(("x", "y", "color", "strokeDash"), "independent")
    return import_altair().vconcat(*charts, spacing=44).resolve_scale(**separate)


def extension_lengths(document: Mapping[str, Any]) -> Any:
    """Loss of the same tokens with more or less text before them, by method."""
    lengths = document["lengths"]
    found = {
        row["name"]: tuple(
            CurvePoint(n, value)
            for n in lengths
            if (value := get_finite(row["by_length"][str(n)]["loss"])) is not None
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
    )
    return _draw(found, axes, "extension_lengths")


def extension_positions(document: Mapping[str, Any]) -> Any:
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
    )
    return _draw(found, axes, "extension_positions")


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
