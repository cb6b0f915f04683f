"""Wavelengths of a model's pairs against its contexts, from the document of ``whorl inspect``.

A pair above the line of a context does not rotate fully within it. With an extension, rings show
the wavelengths before it.
"""

import math
from collections.abc import Mapping
from typing import Any

from ._draw import add_title, import_altair, list_powers, make_chart
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
    groups = [group for group in document["groups"] if group["description"] is not None]
    if not groups:
        raise ValueError(
            "plots.inspection: there is nothing to draw, because no layers have rotary positions"
            " along a text."
        )
    charts = [_draw_panel(document, group) for group in groups]
    if len(charts) == 1:
        return charts[0]
    apart = {"x": "independent", "y": "independent", "color": "independent"}
    return import_altair().vconcat(*charts, spacing=36).resolve_scale(**apart)


def _draw_panel(document: Mapping[str, Any], group: Mapping[str, Any]) -> Any:
    alt, extension = import_altair(), group["extension"]
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
    ends = min(values, default=1.0), 1.001 * max(values, default=10.0)
    y = alt.Y(
        "wavelength:Q",
        title="wavelength (tokens, log scale)",
        scale=alt.Scale(type="log", domain=ends, nice=False),
        axis=alt.Axis(format="~s", tickCount=20, values=list_powers(ends)),
    )
    layers = [*_draw_length_lines(lines, y, ends), _draw_points(points, len(now), y)]
    if rings:
        ring = make_chart(rings).mark_point(size=30, filled=False, strokeWidth=1, color=GREY)
        layers.insert(-1, ring.encode(x="pair:Q", y=y))
    who = ", ".join(filter(None, (document["model_type"] or document["source"], group["name"])))
    chart = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)
    return add_title(chart, f"{who}: wavelengths", _build_subtitle(group, bool(rings)))


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


def _draw_points(points: list[dict[str, Any]], pairs: int, y: Any) -> Any:
    alt = import_altair()
    present = [status for status in _STATUSES if any(p["status"] == status for p in points)]
    colour = alt.Color("status:N", title=None).scale(
        domain=present, range=[_STATUSES[status] for status in present]
    )
    colour = colour.legend(
        alt.Legend(orient="top", direction="horizontal") if len(present) > 1 else None
    )
    x = alt.X("pair:Q", title="pair (0 rotates fastest)")
    x = x.scale(domain=[0, max(1, pairs - 1)], nice=False)
    x = x.axis(grid=False, tickMinStep=1, format="d")
    mark = make_chart(points).mark_point(size=42 if pairs <= 64 else 24, opacity=1)
    return mark.encode(x, y, colour)


def _draw_length_lines(lines: list[dict[str, Any]], y: Any, ends: tuple[float, float]) -> list[Any]:
    """Dashed lines of the lengths, with labels beside the chart that do not overlap."""
    if not lines:
        return []
    low, high = map(math.log, ends)
    step = _LABEL_HEIGHT * (high - low) / _HEIGHT
    falling = lines[::-1]
    positions = move_apart([math.log(line["wavelength"]) for line in falling], step, low)
    words = [
        {"words": line["words"], "wavelength": math.exp(position)}
        for line, position in zip(falling, positions, strict=True)
    ]
    rule = make_chart(lines).mark_rule(strokeDash=[4, 3], strokeWidth=1.2)
    text = make_chart(words).mark_text(
        align="left", baseline="middle", dx=6, fontSize=11, color=GREY
    )
    beside = import_altair().value(_WIDTH)
    return [rule.encode(y=y), text.encode(y=y, x=beside, text="words:N")]
