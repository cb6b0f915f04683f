"""Charts of context extension: how scalings change pairs, and attention scales entropy."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import add_title, draw_empty, format_number, import_altair, make_chart
from ._entry import chart
from ._series import GREY, Axes, CurvePoint, Series, draw_series
from .theme import PALETTE

ChartRows = list[dict[str, Any]]

_STATUSES = {
    "kept": PALETTE["blue"],
    "blended": PALETTE["sky blue"],
    "interpolated": PALETTE["orange"],
    "unused": GREY,
}


@chart("scalings", group="context extension", numbers=_numbers.compute_scalings)
def scalings(found: Mapping[str, Any]) -> Any:
    """Which pairs every scaling keeps, blends, interpolates.

    Every scaling as a row of pairs: kept, blended, interpolated or unused.
    """
    title = f"Which pairs an extension changes: {format_number(found['original_context'])} to"
    title += f" {format_number(found['original_context'] * found['factor'])} tokens"
    rows, ends = _collect_rows(found)
    if not rows:
        return draw_empty(title, "no scaling could be made from a factor and a context alone")
    names = [end["name"] for end in ends]
    columns = [_draw_column(ends, names, "reach", "effective context")]
    columns.append(_draw_column(ends, names, "scale", "attention scale"))
    left_out = f"; left out: {', '.join(found['left_out'])}" if found["left_out"] else ""
    return add_title(
        import_altair().hconcat(
            _draw_strips(rows, names, len(found["wavelengths"])), *columns, spacing=14
        ),
        title,
        f"R = {found['rotary_dim']}, base {format_number(found['base'])}, factor"
        f" {format_number(found['factor'])}{left_out}",
        "effective context: tokens before a pair gets an angle that was not in training",
    )


def _collect_rows(found: Mapping[str, Any]) -> tuple[ChartRows, ChartRows]:
    """A row for each pair of each scaling, and one for the text at the end of each scaling."""
    rows: ChartRows = []
    ends: ChartRows = []
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
        context = "any" if each["reach"] is None else f"{each['reach']:,}"
        ends.append({"name": name, "reach": context, "scale": f"{each['attention_scale']:.3f}"})
    return rows, ends


def _draw_strips(rows: ChartRows, names: list[str], pairs: int) -> Any:
    alt = import_altair()
    shown = [status for status in _STATUSES if any(row["status"] == status for row in rows)]
    return (
        make_chart(rows)
        .mark_bar(height=15, cornerRadiusEnd=0)
        .encode(
            alt.X("pair:Q", title="pair i (0 rotates fastest)")
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


def _draw_column(ends: ChartRows, names: list[str], field: str, head: str) -> Any:
    """A column of text, one field for each scaling, under a heading."""
    alt = import_altair()
    return (
        make_chart(ends)
        .mark_text(align="left", x=0)
        .encode(alt.Y("name:N", sort=names).axis(None), text=f"{field}:N")
        .properties(
            width=110,
            height=alt.Step(22),
            title=alt.TitleParams(head, fontSize=12, fontWeight=500, offset=6),
        )
    )


@chart("attention-scale", group="context extension", numbers=_numbers.compute_attention_scale)
def attention_scale(found: Mapping[str, Any]) -> Any:
    """What attention scales do to entropy.

    Entropy of attention by length, for each rule of the attention scale.
    """
    rules = [name.partition(": ") for name in found["values"]]
    curves = {who: found["values"][f"{who}{colon}{rule}"] for who, colon, rule in rules}
    return _draw_entropies(
        {**curves, "uniform: ln n": found["uniform"]},
        found["lengths"],
        "What an attention scale does to entropy",
        f"YaRN's frequencies, head_dim {found['head_dim']}, random scores that spread by"
        f" {found['spread']:g}; s = n / L\n"
        + "; ".join(f"{who}: {rule}" for who, _, rule in rules),
        mark=(found["context"], f"L = {format_number(found['context'])}"),
    )


@chart("entropy", group="any encoding", numbers=_numbers.compute_entropy)
def entropy(found: Mapping[str, Any]) -> Any:
    """How widely attention spreads, by length.

    Entropy of the last token's attention by length, for each encoding.
    """
    curves = {**found["values"], "uniform: ln n": found["uniform"]}
    return _draw_entropies(
        curves,
        found["lengths"],
        "How widely attention spreads",
        "the last token's attention to random tokens; trained numbers as they start",
    )


def _draw_entropies(
    curves: Mapping[str, Any],
    lengths: list[int],
    title: str,
    note: str,
    mark: tuple[int, str] | None = None,
) -> Any:
    series = []
    for name, values in curves.items():
        points = [CurvePoint(n, v) for n, v in zip(lengths, values, strict=True) if v is not None]
        if points:
            hue = "nope" if name.startswith("uniform") else name
            series.append(Series(name, hue, int(name.startswith("uniform")), tuple(points)))
    return draw_series(
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
