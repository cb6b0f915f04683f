"""Wavelengths of a model's pairs against its contexts, from the document of ``whorl inspect``.

A pair above the line of a context does not rotate fully within it. With an extension, rings show
the wavelengths before it.
"""

import math
from collections.abc import Mapping
from typing import Any

from whorl._support.extras import import_extra

from ._series import GREY, move_apart
from .theme import PALETTE

__all__ = ["inspection"]

_STATUSES = {
    "kept": PALETTE["green"],
    "blended": PALETTE["orange"],
    "interpolated": PALETTE["blue"],
}
_WIDTH, _HEIGHT = 560, 320
_LABEL_HEIGHT = 14


def inspection(document: Mapping[str, Any]) -> Any:
    """A panel for each layer group that has rotary positions along a text."""
    alt = import_extra("altair", by="whorl.plots", extra="plots")
    groups = [group for group in document["groups"] if group["description"] is not None]
    if not groups:
        raise ValueError(
            "plots.inspection: there is nothing to draw, because no layers have rotary positions"
            " along a text."
        )
    who = document["model_type"] or document["source"]
    charts = [_draw_panel(alt, document, group, who) for group in groups]
    if len(charts) == 1:
        return charts[0]
    apart = {"x": "independent", "y": "independent", "color": "independent"}
    return alt.vconcat(*charts, spacing=36).resolve_scale(**apart)


def _draw_panel(alt: Any, document: Mapping[str, Any], group: Mapping[str, Any], who: str) -> Any:
    extension = group["extension"]
    now = (extension["after"] if extension else group["description"])["pairs"]
    points = [
        {"pair": pair["index"], "wavelength": pair["new_wavelength"], "status": pair["status"]}
        for pair in now
        if pair["new_wavelength"] is not None and pair["status"] in _STATUSES
    ]
    before = group["description"]["pairs"] if extension is None else extension["before"]["pairs"]
    field = "wavelength" if extension is None else "new_wavelength"
    rings = [
        {"pair": old["index"], "wavelength": old[field]}
        for old, new in zip(before, now, strict=True)
        if old[field] is not None and old[field] != new["new_wavelength"]
    ]
    lines = _collect_lengths(document, group)
    values = [row["wavelength"] for row in (*points, *rings, *lines)]
    y = _build_y_axis(alt, min(values, default=1.0), max(values, default=10.0))
    layers = [
        *_draw_length_lines(alt, lines, y),
        *_draw_rings(alt, rings, y),
        _draw_points(alt, points, len(now), y),
    ]
    title = alt.TitleParams(
        _build_title(group, who), subtitle=[_build_subtitle(group, bool(rings))]
    )
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=title)


def _build_title(group: Mapping[str, Any], who: str) -> str:
    return (
        f"{who}: wavelengths" if group["name"] is None else f"{who}, {group['name']}: wavelengths"
    )


def _build_subtitle(group: Mapping[str, Any], rings: bool) -> str:
    extension = group["extension"]
    words = f"{group['rotated']} of {group['head_channels']} channels, {group['layout']} layout"
    if extension is not None:
        name = extension["scaling"]["name"]
        return f"{words}; as extended by {name} to {extension['length']:,}, rings: as published"
    return f"{words}; rings: before scaling" if rings else words


def _collect_lengths(document: Mapping[str, Any], group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lengths to compare wavelengths with; equal ones share a line."""
    named = (
        ("trained", group["training_length"]),
        ("claimed", document["context"]),
        ("window", group["window"]),
        ("asked", document["length"]),
        ("extended", (group["extension"] or {}).get("length")),
    )
    found: dict[int, list[str]] = {}
    for word, tokens in named:
        if tokens is not None:
            found.setdefault(tokens, []).append(word)
    return [
        {"wavelength": tokens, "words": f"{', '.join(found[tokens])} {tokens:,}"}
        for tokens in sorted(found)
    ]


def _build_y_axis(alt: Any, low: float, high: float) -> Any:
    """A logarithmic axis with ticks at powers of ten."""
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    step = math.ceil(len(powers) / 9) or 1
    return alt.Y(
        "wavelength:Q",
        title="wavelength (tokens, log scale)",
        scale=alt.Scale(type="log", domain=[low, high * 1.001], nice=False),
        axis=alt.Axis(format="~s", tickCount=20, values=[10.0**n for n in powers[::step]]),
    )


def _draw_points(alt: Any, points: list[dict[str, Any]], pairs: int, y: Any) -> Any:
    present = [status for status in _STATUSES if any(p["status"] == status for p in points)]
    colour = alt.Color(
        "status:N",
        title=None,
        scale=alt.Scale(domain=present, range=[_STATUSES[status] for status in present]),
        legend=alt.Legend(orient="top", direction="horizontal") if len(present) > 1 else None,
    )
    return (
        alt.Chart(alt.Data(values=points))
        .mark_point(size=42 if pairs <= 64 else 24, opacity=1)
        .encode(
            x=alt.X(
                "pair:Q",
                title="pair (0 rotates fastest)",
                scale=alt.Scale(domain=[0, max(1, pairs - 1)], nice=False),
                axis=alt.Axis(grid=False, tickMinStep=1, format="d"),
            ),
            y=y,
            color=colour,
        )
    )


def _draw_rings(alt: Any, rings: list[dict[str, Any]], y: Any) -> list[Any]:
    if not rings:
        return []
    chart = alt.Chart(alt.Data(values=rings))
    mark = chart.mark_point(size=30, filled=False, strokeWidth=1, color=GREY)
    return [mark.encode(x="pair:Q", y=y)]


def _draw_length_lines(alt: Any, lines: list[dict[str, Any]], y: Any) -> list[Any]:
    """Dashed lines of the lengths, with labels beside the chart that do not overlap."""
    if not lines:
        return []
    low, high = map(math.log, y.to_dict()["scale"]["domain"])
    step = _LABEL_HEIGHT * (high - low) / _HEIGHT
    falling = lines[::-1]
    positions = move_apart([math.log(line["wavelength"]) for line in falling], step, low)
    words = [
        {"words": line["words"], "wavelength": math.exp(position)}
        for line, position in zip(falling, positions, strict=True)
    ]
    rule = alt.Chart(alt.Data(values=lines)).mark_rule(strokeDash=[4, 3], strokeWidth=1.2)
    text = alt.Chart(alt.Data(values=words)).mark_text(
        align="left", baseline="middle", dx=6, fontSize=11, color=GREY
    )
    return [rule.encode(y=y), text.encode(y=y, x=alt.value(_WIDTH), text="words:N")]
