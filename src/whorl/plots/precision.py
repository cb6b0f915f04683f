"""The chart of errors of tables by position, for whorl and its peers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from . import _numbers
from ._draw import add_title, apply_log_scale, import_altair, make_chart
from ._entry import chart
from ._series import GREY
from .theme import PALETTE

#: Colours of the theme, those first that words can be read in; then wine and olive of Tol (2021),
#: "Colour schemes".
_NAMES = ("blue", "vermilion", "green", "purple", "orange", "sky blue")
_HUES = [*(PALETTE[name] for name in _NAMES), GREY, "#882255", "#999933"]
_WIDTH, _HEIGHT = 420, 300
_LABEL_HEIGHT = 15
_BETWEEN = "\n"  # names of lines that share a label
#: Lines that differ by less than this factor everywhere cannot be distinguished in the chart.
_SAME = 1.5


@chart("precision", group="RoPE", numbers=_numbers.compute_precision)
def precision(found: Mapping[str, Any]) -> Any:
    """Error of tables by position; peers=yes adds peers.

    The largest error of cos and sin, on logarithmic scales.
    """
    return add_title(
        draw_errors(found),
        "Error of tables by position",
        found["encoding"],
        "against a reference of fifty digits; lower is better",
    )


def draw_errors(found: Mapping[str, Any]) -> Any:
    """Lines of errors by position, found["errors"][name][n]; those that coincide share a label."""
    alt = import_altair()
    groups = _group_lines(found["errors"])
    labels = [_BETWEEN.join(group) for group in groups]
    rows = [
        # Position 0 and an error of 0 have no logarithm.
        {"position": position, "error": error, "who": who, "group": label}
        for group, label in zip(groups, labels, strict=True)
        for who in group
        for position, error in zip(found["positions"], found["errors"][who], strict=True)
        if position > 0 and error and error > 0
    ]
    x = alt.X("position:Q", title="position (tokens, log scale)")
    y = alt.Y("error:Q", title="largest error of cos and sin (absolute, log scale)")
    base = make_chart(rows).encode(
        apply_log_scale(x, rows, format="~s", grid=False),
        apply_log_scale(y, rows, format=".0e"),
        alt.Color("group:N", legend=None, sort=labels).scale(
            domain=labels, range=[_HUES[n % len(_HUES)] for n in range(len(labels))]
        ),
        detail="who:N",
        tooltip=["who:N", "position:Q", "error:Q"],
    )
    line, dots = base.mark_line(strokeWidth=1.5), base.mark_point(opacity=1, size=24)
    layers = alt.layer(line, dots, *_label_lines(rows, y))
    return layers.properties(width=_WIDTH, height=_HEIGHT)


def _group_lines(errors: Mapping[str, Sequence[float | None]]) -> list[list[str]]:
    """Names in groups: errors of a group differ by less than ``_SAME`` times at every position.

    >>> _group_lines({"a": [0.0, 1e-8], "b": [0.0, 3e-4], "c": [None, 3.1e-4]})
    [['a'], ['b', 'c']]
    """
    groups: list[list[str]] = []
    for name, values in errors.items():
        for group in groups:
            pairs = zip(errors[group[0]], values, strict=True)
            known = [(a, b) for a, b in pairs if a and b]
            if known and all(max(a, b) < _SAME * min(a, b) for a, b in known):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _label_lines(rows: list[dict[str, Any]], y: Any) -> list[Any]:
    """Names at the ends of lines, one under the other where several libraries share one."""
    last = {row["group"]: row for row in rows}
    if not last:
        return []
    low, high = (math.log10(f(row["error"] for row in rows)) for f in (min, max))
    step = _LABEL_HEIGHT * ((high - low) or 1.0) / _HEIGHT
    texts = []
    ceiling = math.inf
    for label, row in sorted(last.items(), key=lambda each: -each[1]["error"]):
        names = label.split(_BETWEEN)
        top = min(math.log10(row["error"]), ceiling)
        texts += [
            {"error": 10 ** (top - n * step), "words": name, "group": label}
            for n, name in enumerate(names)
        ]
        ceiling = top - (len(names) + 0.4) * step
    text = make_chart(texts).mark_text(align="left", dx=10, baseline="middle")
    return [text.encode(y=y, x=import_altair().value(_WIDTH), text="words:N", color="group:N")]
