"""Charts of what noise and distance do to pairs: recovered positions, and gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

from whorl.analysis.attended import label_bin

from . import _numbers
from ._draw import (
    add_title,
    format_number,
    import_altair,
    list_colors,
    list_powers,
    make_chart,
)
from ._entry import chart

_PANEL = 178  # pixels


@chart("recoverability", group="RoPE", numbers=_numbers.compute_recoverability)
def recoverability(found: Mapping[str, Any]) -> Any:
    """Can positions be recovered from noisy vectors?

    Accuracy above and mean error below by noise, a column for each base, a line for each width.
    """
    alt = import_altair()
    rows = [row for row in found["rows"] if row["noise"] > 0]
    bases = list(dict.fromkeys(row["base"] for row in rows))
    largest = max(row["mean_error"] for row in rows) or 1.0
    accuracy = {"field": "accuracy", "title": "positions found", "format": ".0%", "most": 1.0}
    error = {"field": "mean_error", "title": "mean error (tokens)", "format": "~s", "most": largest}
    columns = [
        alt.vconcat(
            *(_draw_panel(rows, base, bases, measure) for measure in (accuracy, error)), spacing=16
        )
        for base in bases
    ]
    length, distinct = rows[0]["length"], found["distinct"]
    first = f"{found['vector']} vectors rotated to one of {format_number(length)} positions;"
    repeated = f", {distinct} frequencies repeated" if distinct else ""
    return add_title(
        alt.hconcat(*columns, spacing=14),
        "Can a position be recovered from a noisy vector?",
        f"{first} {format_number(found['samples'])} samples{repeated}",
        _describe_widths(rows),
    )


def _draw_panel(
    rows: Sequence[dict[str, Any]], base: float, bases: Sequence[float], measure: Mapping[str, Any]
) -> Any:
    """One measure by noise at one base, with a line for each head width."""
    alt = import_altair()
    first, above = base == bases[0], measure["field"] == "accuracy"
    widths = sorted({row["head_dim"] for row in rows})
    y = alt.Y(f"{measure['field']}:Q", title=measure["title"] if first else None)
    # Room for the highest label keeps the titles of the columns on one line.
    y = y.scale(domain=[0, 1.04 * measure["most"]], nice=False)
    x = alt.X("noise:Q", title=None if above else "relative noise (log scale)")
    noises = sorted({row["noise"] for row in rows})
    ticks = noises if len(noises) <= 8 else list_powers(noises)
    shown = make_chart([row for row in rows if row["base"] == base]).encode(
        x.scale(type="log", nice=False).axis(
            values=ticks, format="~g", grid=False, labels=not above
        ),
        y.axis(format=measure["format"], labels=first, tickCount=5),
        alt.Color("head_dim:O", title="head width", sort=widths)
        .scale(domain=widths, range=list_colors(len(widths)))
        .legend(orient="right", symbolType="stroke"),
        tooltip=["head_dim:Q", "base:Q", "noise:Q", "accuracy:Q", "mean_error:Q"],
    )
    layers = alt.layer(shown.mark_line(strokeWidth=2), shown.mark_point(size=30, opacity=1))
    head = alt.TitleParams(f"base {format_number(base)}", fontSize=13, fontWeight=500, offset=6)
    return layers.properties(width=_PANEL, height=_PANEL, **({"title": head} if above else {}))


def _describe_widths(rows: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy of the narrowest and the widest head, at the base and the noise in the middle."""
    bases, noises = ([*dict.fromkeys(row[key] for row in rows)] for key in ("base", "noise"))
    base, noise = bases[len(bases) // 2], noises[(len(noises) - 1) // 2]
    chosen = [row for row in rows if (row["base"], row["noise"]) == (base, noise)]
    chosen.sort(key=lambda row: row["head_dim"])
    found = [f"{row['accuracy']:.0%} with {row['head_dim']} channels" for row in chosen]
    words = " and ".join(dict.fromkeys((found[0], found[-1])))
    return f"at base {format_number(base)} and noise {noise:g}: {words}"


@chart("gradients", group="RoPE", numbers=_numbers.compute_gradients)
def gradients(found: Mapping[str, Any]) -> Any:
    """Gradient of each pair by distance, and what is shared.

    The mean squared gradient of each pair, and below it the part that distances of a range share.
    """
    alt = import_altair()
    labels = [label_bin(low, high) for low, high in found["ranges"]]
    every = [value for line in found["mean_squares"] for value in line]
    mean = sum(every) / len(every)
    rows = [
        {"pair": i, "distance": label, "size": size / mean, "shared": shared, "wavelength": length}
        for label, sizes, shares in zip(labels, found["mean_squares"], found["shared"], strict=True)
        for i, (size, shared, length) in enumerate(
            zip(sizes, shares, found["wavelengths"], strict=True)
        )
    ]
    sizes = [row["size"] for row in rows]
    most = max(1.5, *sizes)
    x = alt.X("pair:Q", title="pair i (0 rotates fastest)").axis(format="d", grid=False)
    base = make_chart(rows).encode(
        x.scale(nice=False),
        alt.Color("distance:O", title="distance of the target", sort=labels).scale(
            domain=labels, range=list_colors(len(labels))
        ).legend(orient="right", symbolType="stroke"),
        tooltip=["pair:Q", "distance:N", "size:Q", "shared:Q", "wavelength:Q"],
    )  # fmt: skip
    size = alt.Y("size:Q", title="mean square / mean of all")
    shared = alt.Y("shared:Q", title="shared part")
    above = base.mark_line(strokeWidth=1.4).encode(size.scale(domain=[0, most], nice=False))
    below = base.mark_line(strokeWidth=1.8).encode(shared.axis(format=".0%"))
    return add_title(
        alt.vconcat(*(part.properties(width=500, height=170) for part in (above, below))),
        "Gradients of the pairs, by distance of the target",
        f"{found['encoding']}, {format_number(found['keys'])} random keys",
        "above: what one example gives each pair, between"
        f" {min(sizes):.2f} and {max(sizes):.2f} of the mean",
        "below: what is left of it when examples at all distances of a range are averaged",
    )
