"""How much another seed may change a loss.

seed_noise.json has the standard deviation of a loss between seeds, by multiple of the trained
length, apart for rows that keep their loss there and for rows whose loss rises, because the second
kind differs much more from seed to seed. It was measured with the lab's text and the size of the
quick budget; ``scripts/seed-noise`` measures it again from a comparison with two seeds or more.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from statistics import fmean, variance
from typing import Any

__all__ = [
    "ACCURACY_NOISE",
    "compute_noise",
    "find_deviation",
    "get_curve_deviation",
    "measure_seed_noise",
]

#: Difference of two accuracies that another seed may reverse: an assumption.
ACCURACY_NOISE = 0.1

# Rises above this count as rises. It is half of what a row that keeps its loss may rise, so that
# a row just below that bound, which another seed may lift above it, counts as one that rises.
_LEAST_RISE = 0.05
# Learning curves are compared in the second half of the training, where a target loss lies.
_LATE = 0.5


def compute_noise(parts: Iterable[tuple[float, float]], seeds: int = 1) -> float:
    """How much other seeds may change a sum of losses: two standard deviations of it.

    parts: the factor of each loss in the sum, and its standard deviation. Losses are taken to be
    independent, which is more than the differences of rows with the same seed vary.

    >>> round(compute_noise([(1.0, 0.03), (-1.0, 0.04)]), 2)
    0.1
    """
    total = math.sqrt(sum((factor * deviation) ** 2 for factor, deviation in parts))
    return 2.0 * total / math.sqrt(seeds)


def find_deviation(multiple: float, rise: float) -> float:
    """Standard deviation between seeds of a loss at ``multiple`` times the trained length.

    rise: how much higher it is than the loss of the same weights, without a scaling, at the trained
    length, or at the same length if that is shorter. A loss that is not finite has no bound.
    """
    if not math.isfinite(rise):
        return math.inf
    table = _load_noise()["steady" if rise <= _LEAST_RISE else "rising"]
    return _look_up({float(key): value for key, value in table.items()}, multiple)


def get_curve_deviation() -> float:
    """Standard deviation between seeds of a validation loss late in the training."""
    return float(_load_noise()["curve"])


def _look_up(table: Mapping[float, float], multiple: float) -> float:
    """The entry of ``multiple``; between two entries the larger one, outside them the nearest."""
    known = sorted(table)
    n = bisect_left(known, multiple)
    if n < len(known) and known[n] == multiple:
        return table[multiple]
    return max(table[key] for key in known[max(0, n - 1) : n + 1])


def _load_noise() -> dict[str, Any]:
    path = resources.files("whorl.lab.compare").joinpath("seed_noise.json")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def measure_seed_noise(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of seed_noise.json but for its origin, from a comparison with several seeds.

    Variances are averaged over the rows of a kind, with all steps and with a third of them. Rows
    with the same losses as another one count once (``mrope`` is RoPE on text).
    """
    settings = comparison["settings"]
    if len(settings["seeds"]) < 2 or settings["measure"] != "loss":
        raise ValueError("the noise of seeds needs a comparison of losses with two seeds or more.")
    variances: dict[str, dict[float, dict[tuple[float, ...], float]]] = {"steady": {}, "rising": {}}
    for key in ("by_length", "third_seeds"):
        cells = {row["name"]: _read_cells(row.get(key) or {}) for row in comparison["rows"]}
        for row in comparison["rows"]:
            for length, losses in cells[row["name"]].items():
                near = cells[row["trained_as"]].get(min(length, settings["length"]), ())
                if len(losses) < 2 or len(losses) != len(near):
                    continue
                rise = fmean(losses) - fmean(near)
                kind = "steady" if rise <= _LEAST_RISE else "rising"
                multiple = length / settings["length"]
                variances[kind].setdefault(multiple, {})[losses] = variance(losses)
    return {
        **{kind: _summarize_variances(found) for kind, found in variances.items()},
        "curve": _measure_curves(comparison["rows"]),
    }


def _read_cells(found: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    """Finite losses in each seed, by length."""
    cells = {}
    for length, cell in found.items():
        losses = cell["seeds"] if isinstance(cell, Mapping) else cell
        if all(loss is not None and math.isfinite(loss) for loss in losses):
            cells[int(length)] = tuple(losses)
    return cells


def _summarize_variances(
    found: Mapping[float, Mapping[tuple[float, ...], float]],
) -> dict[str, float]:
    """Standard deviations by multiple."""
    return {
        f"{multiple:g}": float(f"{math.sqrt(fmean(group.values())):.3g}")
        for multiple, group in sorted(found.items())
    }


def _measure_curves(rows: Sequence[Mapping[str, Any]]) -> float:
    """Standard deviation of validation losses late in the training, over trained rows."""
    found: dict[tuple[tuple[float, ...], ...], float] = {}
    for row in rows:
        curve = row.get("curve") or {}
        seeds = tuple(map(tuple, curve.get("seeds", ())))
        if len(seeds) > 1 and all(math.isfinite(x or math.nan) for one in seeds for x in one):
            points = list(zip(*seeds, strict=True))
            found[seeds] = fmean(variance(point) for point in points[int(_LATE * len(points)) :])
    if not found:
        raise ValueError("the noise of seeds needs the learning curve of each seed.")
    return float(f"{math.sqrt(fmean(found.values())):.3g}")
