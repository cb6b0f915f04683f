"""Charts of a benchmark report: speed compared with copying, and error by position.

They read the plain numbers of ``whorl.bench.Report.to_dict()``, or of a file that it saved.
"""

from collections.abc import Mapping
from typing import Any

from ._draw import add_title, import_altair
from .precision import draw_errors

__all__ = ["accuracy", "bench", "speed"]

# Other modes are not shown: "bound" is measured on tensors whose addresses never change, which
# other programs do not have, and the rest are calls past the table and of other rotations.
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


def speed(report: Mapping[str, Any], *, titles: Mapping[str, str] | None = None) -> Any:
    """Time of every contestant in multiples of ``copy_``, in its fastest mode for new tensors.

    Shows the smallest number of threads of the report; others depend on the load of the machine.
    """
    alt = import_altair()
    threads = min((cell["cell"]["threads"] for cell in report["cells"]), default=1)
    rows = _collect_times(report, threads, titles or {})
    if not rows:
        raise ValueError("plots.speed: the report has no timings; measure at least one cell.")
    who = list(dict.fromkeys(row["who"] for row in rows))
    who.sort(key=lambda name: not name.startswith("whorl"))
    base = alt.Chart().encode(
        alt.X("ratio:Q", title="time (multiples of copy_, log scale)")
        .scale(type="log", nice=True)
        .axis(format="~g"),
        alt.Y("who:N", title=None, sort=who).axis(grid=True),
    )
    points = base.mark_point(size=60, opacity=0.85).encode(
        alt.Color("dtype:N", title="dtype", sort=None),
        alt.Shape("layout:N", title="layout", sort=None),
        tooltip=["who:N", "mode:N", "dtype:N", "layout:N", "microseconds:Q", "ratio:Q"],
    )
    limit = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(alt.XDatum(1))
    panels = alt.layer(limit, points, data=alt.Data(values=rows)).properties(
        width=300, height=alt.Step(18)
    )
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    plural = "" if threads == 1 else "s"
    where = f"{threads} thread{plural}, {report['environment'].get('cpu', 'unknown CPU')}"
    facet = alt.Facet("shape:N", title=None, sort=shapes).header(labelAnchor="start")
    panels = panels.facet(facet, columns=2, spacing={"row": 28, "column": 36})
    # With shared x axes an empty cell of the last row would have one.
    panels = panels.resolve_scale(y="independent").resolve_axis(x="independent")
    words = f"multiples of copy_'s time, fastest form for new tensors; {where}"
    return add_title(panels, "Rotating queries and keys", words)


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
