"""``noise``: how well a position can be recovered from a noisy rotated vector.

It asks whether more channels help and whether it is the number of different frequencies that does
(docs/analysis.md has the formulas). Nothing is trained: a row is a head width and a base, and
``whorl.analysis.recoverability`` computes its numbers. A table shows which pairs get a gradient, by
the distance of the key that a query should find: ``whorl.analysis.pair_gradients``.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import whorl
from whorl._support.words import quote
from whorl.analysis import pair_gradients, recoverability
from whorl.lab.trainer import TrainingProgress

from .definition import CurveLabels, Experiment, MeasureLabel, ResultTable, RowRequest, Tables
from .results import RowMeasurement, RowResults

__all__ = ["EXPERIMENT"]

NOISES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_RANGES = ((1, 2), (8, 16), (64, 128))
_PAIRS = (0, 8, 16, 24, 31)
_OPTIONS = {"rotation": ("head_dim", "base", "distinct"), "samples": ("length", "count")}


def run_row(request: RowRequest) -> RowMeasurement:
    """Shares of recovered positions by the strength of the noise, with one seed."""
    rotation, samples = request.tables["rotation"], request.tables["samples"]
    start, values, errors = time.monotonic(), dict[str, float](), list[float]()
    for done, noise in enumerate(NOISES):
        request.show(TrainingProgress("recovering positions", done, len(NOISES)))
        (found,) = recoverability(
            (rotation["head_dim"],),
            (rotation["base"],),
            (noise,),
            (samples["length"],),
            distinct=rotation.get("distinct"),
            samples=samples["count"],
            seed=request.seed,
        ).rows
        values[f"recovered@{noise:g}"] = found.accuracy
        errors.append(found.mean_error)
    curves = {"error": {"x": NOISES, "y": errors}}
    return RowMeasurement(values, curves=curves, facts={"seconds": time.monotonic() - start})


def check_row(tables: Tables) -> None:
    """Raise ValueError unless a row has the options that it needs, and no others."""
    for table, known in _OPTIONS.items():
        options = tables.get(table, {})
        strange = [name for name in options if name not in known]
        missing = [name for name in known if name not in options and name != "distinct"]
        if strange or missing:
            raise ValueError(
                f"noise: [{table}] must have the options {', '.join(known)}; got"
                f" {quote(sorted(options))}."
            )


def list_errors(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """A table of the mean distance between the recovered and the true position."""
    body = []
    for row in rows:
        columns = zip(*(one.curves["error"]["y"] for one in row.seeds.values()), strict=True)
        body.append((row.name, *(f"{sum(column) / len(column):.1f}" for column in columns)))
    heads = ("", *(f"noise {noise:g}" for noise in NOISES))
    errors = ResultTable("Mean error in tokens", heads, tuple(body), "Means over seeds.")
    return [errors, build_gradients()]


def build_gradients() -> ResultTable:
    """Gradients of some pairs by distance: their size, and the part that distances share."""
    found = pair_gradients(whorl.RoPE(2 * _PAIRS[-1] + 2), 128, ranges=_RANGES, contents=32)
    mean = fmean(size for sizes in found.mean_squares for size in sizes)
    body = [
        (
            f"{low} to {high - 1}" if high - low > 1 else str(low),
            *(f"{sizes[n] / mean:.2f}, {abs(shared[n]):.2f}" for n in _PAIRS),
        )
        for (low, high), sizes, shared in zip(
            found.ranges, found.mean_squares, found.shared, strict=True
        )
    ]
    heads = ("distance of the target", *(f"pair {n}" for n in _PAIRS))
    note = (
        "Mean squared gradient relative to that of all pairs and distances, and the part of it that"
        " examples at different distances share. Pair 0 of 32 rotates fastest; base 10,000, random"
        " queries and 128 random keys, before any training. One example gives every pair a gradient"
        " of the same size; what cancels for fast pairs is the mean over many distances."
    )
    return ResultTable("Gradient of pairs by distance", heads, tuple(body), note)


EXPERIMENT = Experiment(
    name="noise",
    run_row=run_row,
    check_row=check_row,
    measures=tuple(
        MeasureLabel(
            f"recovered@{noise:g}",
            f"share of recovered positions at noise {noise:g}",
            x=noise,
            tied=0.02,
            accuracy=True,
        )
        for noise in NOISES
    ),
    quantities={
        "recovered": CurveLabels(
            "Positions recovered from noisy vectors",
            "noise relative to the length of the vector (log scale)",
            "share of positions recovered",
            accuracy=True,
            log=True,
        )
    },
    curves={
        "error": CurveLabels(
            "Distance from the true position",
            "noise relative to the length of the vector (log scale)",
            "mean error (tokens)",
            log=True,
        )
    },
    list_tables=list_errors,
)
