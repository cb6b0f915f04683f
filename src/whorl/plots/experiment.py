"""Charts of an experiment: differences with their intervals, measures by length, and curves.

They read the document that ``whorl experiment`` saves as result.json.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whorl._support.words import quote

from ._draw import add_title, import_altair, make_chart
from ._series import (
    GREY,
    Axes,
    ChartWidth,
    CurvePoint,
    Series,
    choose_axis_end,
    draw_series,
    get_finite,
)
from .theme import PALETTE

__all__ = ["experiment", "experiment_differences", "experiment_lines", "list_experiment_lines"]

# Neither lower nor higher has a colour that says good: of a loss it is the one, of an accuracy the
# other.
_COLORS = {
    "lower": PALETTE["blue"],
    "higher": PALETTE["purple"],
    "tied": PALETTE["green"],
    "not decidable": GREY,
    "not yet": PALETTE["orange"],
}


def experiment(result: Mapping[str, Any]) -> Any:
    """All charts of a result below each other: differences first, then lines."""
    alt = import_altair()
    charts = [experiment_lines(result, key) for key in list_experiment_lines(result)]
    if result["contrasts"]:
        charts.insert(0, experiment_differences(result))
    if not charts:
        raise ValueError("plots.experiment: the result has no numbers to draw; let a run finish.")
    separate = dict.fromkeys(("x", "y", "color", "strokeDash"), "independent")
    return alt.vconcat(*charts, spacing=44).resolve_scale(**separate)


def list_experiment_lines(result: Mapping[str, Any]) -> list[str]:
    """Keys of the line charts: judged quantities with several x, then curves."""
    judged = {name.partition("@")[0] for name in result["judged"]}
    found = [key for key in result["quantities"] if key in judged]
    return [key for key in [*found, *result["curves"]] if _collect_lines(result, key)]


def experiment_lines(result: Mapping[str, Any], key: str, *, width: ChartWidth = "page") -> Any:
    """A line for each row: a quantity by its x, such as loss by length, or a curve by step."""
    lines = _collect_lines(result, key)
    if not lines:
        raise ValueError(f"plots.experiment_lines: no row has numbers for {quote(key)}.")
    labels = {**result["quantities"], **result["curves"]}[key]
    xs = sorted({point.x for line in lines for point in line.points})
    if labels["log"]:
        ticks: tuple[float, ...] = tuple(xs)
    else:
        last = round(xs[-1])
        ticks = tuple(range(0, last + 1, max(1, last // 5)))
    axes = Axes(
        title=labels["title"],
        subtitle=labels["subtitle"],
        x=labels["x"],
        y=labels["y"],
        ticks=ticks,
        log=labels["log"],
        mark=tuple(labels["mark"]) if labels["mark"] else None,
        top=None
        if labels["accuracy"]
        else choose_axis_end(point.y for line in lines for point in line.points),
        accuracy=labels["accuracy"],
        height=340,
        width=width,
    )
    return draw_series(lines, axes)


def experiment_differences(result: Mapping[str, Any], *, width: ChartWidth = "page") -> Any:
    """Differences between rows with their 95 % intervals, coloured by outcome."""
    alt = import_altair()
    labels = {one["id"]: one["label"] for one in result["measures"]}
    smoke = result["budget"] == "smoke"
    compared = sorted({one["against"] for one in result["contrasts"]})
    alone = len(compared) == 1
    rows = [
        {
            "name": one["row"] if alone else _name_contrast(one["row"], one["against"]),
            "measure": labels[one["measure"]],
            "mean": one["mean"],
            "low": one["mean"] if (low := get_finite(one["low"])) is None else low - one["noise"],
            "high": one["mean"]
            if (high := get_finite(one["high"])) is None
            else high + one["noise"],
            "outcome": "not decidable" if smoke else one["outcome"],
        }
        for one in result["contrasts"]
        if get_finite(one["mean"]) is not None
    ]
    names = list(dict.fromkeys(row["name"] for row in rows))
    counts = Counter(row["name"] for row in rows)
    y = alt.Y("name:N", title=None, sort=names).axis(grid=True, labelLimit=320)
    x = {"title": "difference"}
    used = [key for key in _COLORS if any(row["outcome"] == key for row in rows)]
    colour = alt.Color("outcome:N", title=None, sort=used).scale(
        domain=used, range=[_COLORS[key] for key in used]
    )
    base = alt.Chart().encode(y, colour.legend(orient="top", padding=0, offset=4))
    rule = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", **x), x2="high:Q")
    dots = base.mark_point(size=60, opacity=1).encode(alt.X("mean:Q", **x))
    zero = alt.Chart().mark_rule(strokeDash=[3, 3], color=GREY).encode(x=alt.datum(0))
    count = len(dict.fromkeys(row["measure"] for row in rows))
    alike = set(counts.values()) <= {count}  # every measure has the same contrasts
    size = {"page": 540, "column": 330, "phone": 170}[width]
    columns = min(2, count) if alike and width != "phone" else 1
    panel = alt.layer(zero, rule, dots, data=make_chart(rows).data).properties(
        width=(size - 40 * (columns - 1)) // columns, height=alt.Step(22)
    )
    chart = panel.facet(
        alt.Facet(
            "measure:N", title=None, sort=list(dict.fromkeys(r["measure"] for r in rows))
        ).header(labelAnchor="start", labelPadding=4, labelLimit=260),
        columns=columns,
    ).resolve_scale(x="independent", y="shared" if alike else "independent")
    seeds = result["settings"]["seeds"]
    over = f"95 % interval over {seeds} seeds" if seeds > 2 else "interval with that of other seeds"
    title = f"Differences from {compared[0]}" if alone else "Differences between rows"
    return add_title(chart, title, over)


def _name_contrast(row: str, against: str) -> str:
    """Both rows; what they have in common before a colon is written once.

    >>> _name_contrast("decoder: elu", "decoder: relu")
    'decoder: elu - relu'
    """
    kind, colon, _ = row.partition(": ")
    return f"{row} - {against.removeprefix(kind + colon) if colon else against}"


def _collect_lines(result: Mapping[str, Any], key: str) -> list[Series]:
    """Lines of a quantity or a curve; those without numbers are left out."""
    mine = [one for one in result["measures"] if one["quantity"] == key]
    measures = [one for one in mine if one["x"] is not None]
    several = result["settings"]["seeds"] > 1
    if not measures and key in result["quantities"]:
        return _join_rows(result["rows"], mine, several)
    found = []
    for row in result["rows"]:
        points = []
        if key in result["quantities"]:
            points = [
                x for x in (_read_point(row, one, one["x"], several) for one in measures) if x
            ]
        else:
            curve = row["curves"].get(key) or {"x": (), "y": ()}
            points = [
                CurvePoint(x, y)
                for x, y in zip(curve["x"], curve["y"], strict=True)
                if get_finite(y) is not None
            ]
        if points:
            style = result.get("styles", {}).get(row["name"], {"hue": row["name"], "dash": 0})
            found.append(Series(row["name"], style["hue"], style["dash"], tuple(points)))
    return found


def _join_rows(
    rows: Sequence[Mapping[str, Any]], measures: Sequence[Mapping[str, Any]], several: bool
) -> list[Series]:
    """A line for each name in "line" of the rows, through the values of its rows by their x."""
    points: dict[str, list[CurvePoint]] = {}
    for row in rows:
        for measure in measures if row.get("line") else ():
            point = _read_point(row, measure, row["line"]["x"], several)
            if point is not None:
                points.setdefault(row["line"]["name"], []).append(point)
    return [Series(name, name, 0, tuple(sorted(found))) for name, found in points.items()]


def _read_point(
    row: Mapping[str, Any], measure: Mapping[str, Any], x: float, several: bool
) -> CurvePoint | None:
    """The mean of a measure of a row, with its interval over several seeds; None without one."""
    cell = row["values"].get(measure["id"], {})
    if (value := get_finite(cell.get("mean"))) is None:
        return None
    band = (get_finite(cell["low"]), get_finite(cell["high"])) if several else ()
    return CurvePoint(x, value, *band)
