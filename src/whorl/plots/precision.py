"""The chart of errors of tables by position, for whorl and its peers."""

from collections.abc import Mapping
from typing import Any

from . import _numbers
from ._draw import add_title, import_altair, list_powers
from ._entry import chart
from ._series import GREY
from .theme import PALETTE

#: Colours of the theme, then wine and olive of Tol (2021), "Colour schemes".
_HUES = [*list(PALETTE.values())[:6], GREY, "#882255", "#999933"]
_SOLID = 7  # lines past these are dashed


@chart(
    "precision",
    group="RoPE",
    summary="error of tables by position; peers=yes adds peers",
    numbers=_numbers.compute_precision,
)
def precision(found: Mapping[str, Any]) -> Any:
    """Largest error of cos and sin by position, on logarithmic scales."""
    alt = import_altair()
    names = list(found["errors"])
    rows = [
        # Position 0 and an error of 0 have no logarithm.
        {"position": position, "error": error, "who": who}
        for who, errors in found["errors"].items()
        for position, error in zip(found["positions"], errors, strict=True)
        if position > 0 and error and error > 0
    ]
    x = alt.X("position:Q", title="position (tokens, log scale)").scale(type="log", nice=False)
    y = alt.Y("error:Q", title="largest error of cos and sin (absolute, log scale)")
    y = y.scale(type="log", nice=False).axis(
        format=".0e", values=list_powers([row["error"] for row in rows])
    )
    base = alt.Chart(alt.Data(values=rows)).encode(
        x.axis(format="~s", grid=False, values=list_powers([row["position"] for row in rows])),
        y,
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
    return add_title(
        alt.layer(line, dots).properties(width=460, height=300),
        "Error of tables by position",
        found["encoding"],
        "against a reference of fifty digits; lower is better",
    )
