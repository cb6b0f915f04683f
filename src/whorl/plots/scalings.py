"""Charts of context extension: what happens to each pair, and what attention scales do."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import altair, empty, number, titled
from ._entry import chart
from ._series import GREY, Axes, Point, Series, draw
from .theme import PALETTE

Rows = list[dict[str, Any]]

_STATUSES = {
    "kept": PALETTE["blue"],
    "blended": PALETTE["sky blue"],
    "interpolated": PALETTE["orange"],
    "unused": GREY,
}


@chart(
    "scalings",
    group="context extension",
    summary="which pairs every scaling keeps, blends, interpolates",
    numbers=_numbers.scalings,
)
def scalings(found: Mapping[str, Any]) -> Any:
    """Every scaling as a strip of pairs: kept, blended, interpolated or standing still."""
    title = f"Which pairs an extension changes: {number(found['original_context'])} to"
    title += f" {number(found['original_context'] * found['factor'])} tokens"
    rows, ends = _pairs_and_ends(found)
    if not rows:
        return empty(title, "no scaling could be made from a factor and a context alone")
    names = [end["name"] for end in ends]
    columns = [_column(ends, names, "reach", "reach")]
    columns.append(_column(ends, names, "scale", "attention scale"))
    left_out = f"; left out: {', '.join(found['left_out'])}" if found["left_out"] else ""
    return titled(
        altair().hconcat(_strips(rows, names, len(found["wavelengths"])), *columns, spacing=14),
        title,
        f"R = {found['rotary_dim']}, base {number(found['base'])}, factor"
        f" {number(found['factor'])}{left_out}",
        "reach: tokens until a pair meets an angle that it never took in training, if it does",
    )


def _pairs_and_ends(found: Mapping[str, Any]) -> tuple[Rows, Rows]:
    """A row for each pair of each scaling, and one for what stands at the end of its strip."""
    rows: Rows = []
    ends: Rows = []
    for each in found["extensions"]:
        name = f"{each['name']} ({each['note']})" if each["note"] else each["name"]
        rows += [
            {
                "name": name,
                "pair": i,
                "end": i + 1,
                "status": status,
                "divided by": factor,
                "wavelength": found["wavelengths"][i],
            }
            for i, (status, factor) in enumerate(
                zip(each["statuses"], each["factors"], strict=True)
            )
        ]
        reach = "any" if each["reach"] is None else f"{each['reach']:,}"
        ends.append({"name": name, "reach": reach, "scale": f"{each['attention_scale']:.3f}"})
    return rows, ends


def _strips(rows: Rows, names: list[str], pairs: int) -> Any:
    alt = altair()
    shown = [status for status in _STATUSES if any(row["status"] == status for row in rows)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=15, cornerRadiusEnd=0)
        .encode(
            alt.X("pair:Q", title="pair i (0 turns fastest)")
            .scale(domain=[0, pairs], nice=False)
            .axis(format="d", grid=False),
            alt.Y("name:N", title=None, sort=names).axis(labelLimit=220),
            alt.Color("status:N", title=None, sort=shown)
            .scale(domain=shown, range=[_STATUSES[s] for s in shown])
            .legend(orient="top", offset=4, symbolType="square", symbolOpacity=1),
            x2="end:Q",
            tooltip=["name:N", "pair:Q", "status:N", "divided by:Q", "wavelength:Q"],
        )
        .properties(width=pairs * max(1, round(400 / pairs)), height=alt.Step(22))
    )


def _column(ends: Rows, names: list[str], field: str, head: str) -> Any:
    """What a field says of each strip, under a heading."""
    alt = altair()
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_text(align="left", x=0)
        .encode(alt.Y("name:N", sort=names).axis(None), text=f"{field}:N")
        .properties(
            width=74,
            height=alt.Step(22),
            title=alt.TitleParams(head, fontSize=12, fontWeight=500, offset=6),
        )
    )


@chart(
    "attention-scale",
    group="context extension",
    summary="what attention scales do to entropy",
    numbers=_numbers.attention_scale,
)
def attention_scale(found: Mapping[str, Any]) -> Any:
    """Entropy by length with each rule for the attention scale."""
    rules = [name.partition(": ") for name in found["values"]]
    curves = {who: found["values"][f"{who}{colon}{rule}"] for who, colon, rule in rules}
    return _entropies(
        {**curves, "uniform: ln n": found["uniform"]},
        found["lengths"],
        "What an attention scale does to entropy",
        f"YaRN's frequencies, head_dim {found['head_dim']}, random scores that spread by"
        f" {found['spread']:g}; s = n / L\n"
        + "; ".join(f"{who}: {rule}" for who, _, rule in rules),
        mark=(found["context"], f"L = {number(found['context'])}"),
    )


@chart(
    "entropy",
    group="any encoding",
    summary="how widely attention spreads, by length",
    numbers=_numbers.entropy,
)
def entropy(found: Mapping[str, Any]) -> Any:
    """Entropy of the last token's attention by length, for each encoding."""
    curves = {**found["values"], "uniform: ln n": found["uniform"]}
    return _entropies(
        curves,
        found["lengths"],
        "How widely attention spreads",
        "the last token's attention to random tokens; trained numbers as they start",
    )


def _entropies(
    curves: Mapping[str, Any],
    lengths: list[int],
    title: str,
    note: str,
    mark: tuple[int, str] | None = None,
) -> Any:
    series = []
    for name, values in curves.items():
        points = [Point(n, v) for n, v in zip(lengths, values, strict=True) if v is not None]
        if points:
            hue = "nope" if name.startswith("uniform") else name
            series.append(Series(name, hue, int(name.startswith("uniform")), tuple(points)))
    return draw(
        series,
        Axes(
            title=title,
            subtitle=note,
            x="keys (tokens, log scale)",
            y="entropy (nats)",
            ticks=tuple(lengths),
            mark=mark,
        ),
    )
