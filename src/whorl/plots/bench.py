"""Charts of a benchmark report: speed compared with copying, and error by position.

They read the plain numbers of ``whorl.bench.Report.to_dict()``, or of a file that it saved.
"""

from collections.abc import Mapping
from typing import Any

from whorl._support.words import quote

from ._draw import add_title, import_altair, list_powers
from .precision import draw_errors

__all__ = ["accuracy", "bench", "speed"]

# Other modes are not shown: "bound" is measured on tensors whose addresses never change, which
# other programs do not have, and the rest are calls past the table and of other rotations.
_EMPTY = "no mark: that library was not measured there"
_MODES = {"inplace": "in place", "out": "out=", "fresh": "fresh", "training": "fwd + bwd"}


def bench(report: Mapping[str, Any], *, titles: Mapping[str, str] | None = None) -> Any:
    """The chart of speed, and below it that of accuracy if the report has it.

    titles: names to show for contestants, by their names in the report.
    """
    if not report.get("accuracy"):
        return speed(report, titles=titles)
    alt = import_altair()
    both = alt.vconcat(speed(report, titles=titles), accuracy(report), spacing=40)
    return both.resolve_scale(color="independent", shape="independent")


def speed(
    report: Mapping[str, Any],
    *,
    titles: Mapping[str, str] | None = None,
    dtype: str | None = None,
) -> Any:
    """Time of every contestant in multiples of ``copy_``, in its fastest mode for new tensors.

    Shows the smallest number of threads of the report; others depend on the load of the machine.
    dtype: the one to show, by default the first of the report.
    """
    alt = import_altair()
    threads = min((cell["cell"]["threads"] for cell in report["cells"]), default=1)
    timed = _collect_times(report, threads, titles or {})
    if not timed:
        raise ValueError("plots.speed: the report has no timings; measure at least one cell.")
    dtype = timed[0]["dtype"] if dtype is None else dtype
    rows = [row for row in timed if row["dtype"] == dtype]
    if not rows:
        known = ", ".join(dict.fromkeys(row["dtype"] for row in timed))
        raise ValueError(f"plots.speed: dtype must be one of {known}; got {quote(dtype)}.")
    who = list(dict.fromkeys(row["who"] for row in rows))
    who.sort(key=lambda name: not name.startswith("whorl"))
    ratios = [*(row["ratio"] for row in rows), 1.0]
    base = alt.Chart().encode(
        alt.X("ratio:Q", title="multiples of copy_ (log scale)")
        .scale(type="log", nice=False, domain=[0.8 * min(ratios), 1.25 * max(ratios)])
        .axis(format="~g", grid=True, values=list_powers(ratios)),
        alt.Y("who:N", title=None, sort=who).axis(grid=True),
    )
    points = base.mark_point(size=60, opacity=0.9).encode(
        alt.Color("layout:N", title=None, sort=None).legend(
            orient="top", labelExpr="datum.label + ' layout'"
        ),
        alt.Shape("layout:N", title=None, sort=None),
        tooltip=["who:N", "mode:N", "dtype:N", "layout:N", "microseconds:Q", "ratio:Q"],
    )
    limit = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(alt.XDatum(1))
    panels = alt.layer(limit, points, data=alt.Data(values=rows)).properties(
        width=220, height=alt.Step(18)
    )
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    plural = "" if threads == 1 else "s"
    where = f"{threads} thread{plural}, {report['environment'].get('cpu', 'unknown CPU')}"
    facet = alt.Facet("shape:N", title=None, sort=shapes).header(labelAnchor="start")
    panels = panels.facet(facet, columns=2, spacing={"row": 14, "column": 18})
    words = f"time in multiples of copy_'s, fastest form for new tensors; {dtype}, {where}"
    full = len({(row["layout"], row["who"]) for row in rows}) * len(shapes)
    empty = _EMPTY if len(rows) < full else ""
    return add_title(panels, "Rotating queries and keys", words, empty)


def accuracy(report: Mapping[str, Any]) -> Any:
    """Largest error of the tables of cos and sin by position, on logarithmic scales."""
    found = report.get("accuracy")
    if not found:
        raise ValueError("plots.accuracy: the report has no accuracy; measure it with the plan.")
    note = "against a high-precision reference; lower is better"
    return add_title(draw_errors(found), "Error of the tables", note)


def _collect_times(
    report: Mapping[str, Any], threads: int, titles: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The fastest mode of every contestant in every cell, except ``copy_``, which is 1."""
    rows = []
    for cell in report["cells"]:
        if cell["cell"]["threads"] != threads:
            continue
        best: dict[str, dict[str, Any]] = {}
        for result in cell["results"]:
            name, ratio = result["name"], result.get("to_copy")
            if (
                name != "copy"
                and result["mode"] in _MODES
                and ratio
                and ratio < best.get(name, {"to_copy": float("inf")})["to_copy"]
            ):
                best[name] = result
        rows += [
            {
                "shape": cell["key"].split("/")[0],
                "dtype": cell["cell"]["dtype"],
                "layout": cell["cell"]["layout"],
                "who": titles.get(name, name),
                "mode": _MODES[result["mode"]],
                "microseconds": result["timing"]["median"] * 1e6,
                "ratio": result["to_copy"],
            }
            for name, result in best.items()
        ]
    return rows
