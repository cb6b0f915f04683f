"""The chart of errors of tables by position, for whorl and its peers."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import add_title, apply_log_scale, import_altair, make_chart
from ._entry import chart
from ._series import GREY
from .theme import PALETTE

#: Colours of the theme, then wine and olive of Tol (2021), "Colour schemes".
_HUES = [*list(PALETTE.values())[:6], GREY, "#882255", "#999933"]
_SOLID = 7  # lines past these are dashed


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
    """Lines of errors by position, one for each table: found["errors"][name][n]."""
    alt = import_altair()
    names = list(found["errors"])
    rows = [
        # Position 0 and an error of 0 have no logarithm.
        {"position": position, "error": error, "who": who}
        for who, errors in found["errors"].items()
        for position, error in zip(found["positions"], errors, strict=True)
        if position > 0 and error and error > 0
    ]
    x = alt.X("position:Q", title="position (tokens, log scale)")
    y = alt.Y("error:Q", title="largest error of cos and sin (absolute, log scale)")
    base = make_chart(rows).encode(
        apply_log_scale(x, rows, format="~s", grid=False),
        apply_log_scale(y, rows, format=".0e"),
        alt.Color("who:N", title=None, sort=names).scale(
            domain=names, range=[_HUES[n % len(_HUES)] for n in range(len(names))]
        ),
        tooltip=["who:N", "position:Q", "error:Q"],
    )
    # Lines of angles in float32 coincide, so dots become smaller from one to the next.
    sizes = [20 + 10 * n**1.6 for n in reversed(range(len(names)))]
    line = base.mark_line(strokeWidth=1.5).encode(
        alt.StrokeDash("who:N", sort=names).scale(
            domain=names, range=[[1, 0] if n < _SOLID else [4, 3] for n in range(len(names))]
        )
    )
    dots = base.mark_point(opacity=1).encode(
        alt.Size("who:N", sort=names, legend=None).scale(type="ordinal", range=sizes)
    )
    return alt.layer(line, dots).properties(width=460, height=300)
