"""``frequencies``: whether training RoPE's frequencies lowers the loss, and where they move.

A trained frequency is theta_i exp(alpha_i), with alpha_i trained from 0: the option of RoPE is
``frequencies="trained"``. The factors exp(alpha_i) of every pair are read from the checkpoints.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from whorl import RoPE
from whorl.lab.runs import Run

from .definition import CurveLabels, Experiment, ResultTable
from .plan import RowPlan
from .results import RowMeasurement, RowResults

__all__ = ["EXPERIMENT"]

_FACTORS = "factors"


def add_factors(rows: Sequence[RowResults], folder: Path) -> list[RowResults]:
    """The rows with the factor of each pair's frequency, as a curve by the number of the pair."""
    return [
        dataclasses.replace(
            row,
            seeds={
                seed: _add_factors(one, folder / f"{RowPlan(row.name, {}).folder_name}-seed{seed}")
                for seed, one in row.seeds.items()
            },
        )
        for row in rows
    ]


def _add_factors(measured: RowMeasurement, folder: Path) -> RowMeasurement:
    factors = read_factors(Run(folder).load_model())
    if not factors:
        return measured
    curve: dict[str, Sequence[float]] = {"x": list(range(len(factors))), "y": factors}
    return dataclasses.replace(measured, curves={**measured.curves, _FACTORS: curve})


def read_factors(model: nn.Module) -> list[float]:
    """Trained frequencies relative to where they began, the mean over layers; [] if fixed."""
    found = []
    for part in model.modules():
        if isinstance(part, RoPE) and part.config.frequencies == "trained":
            start = RoPE(**{**part.config.to_dict(), "frequencies": "fixed"})
            ratio = part.frequencies().inv_freq / start.frequencies().inv_freq
            found.append(ratio.detach().double())
    return [float(x) for x in torch.stack(found).mean(0)] if found else []


def list_factors(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """A table of the factors: a row of numbers for each row with trained frequencies."""
    body = []
    for row in rows:
        curves = [one.curves[_FACTORS]["y"] for one in row.seeds.values() if _FACTORS in one.curves]
        if curves:
            columns = torch.tensor(curves, dtype=torch.float64)
            body.append((row.name, *(f"{x:.2f}" for x in columns.mean(0).tolist())))
    if not body:
        return []
    heads = ("", *(f"pair {n}" for n in range(len(body[0]) - 1)))
    note = "Pair 0 rotates fastest. Means over seeds, and over layers that have their own."
    title = "Trained frequencies relative to where they began"
    return [ResultTable(title, heads, tuple(body), note)]


EXPERIMENT = Experiment(
    name="frequencies",
    curves={
        _FACTORS: CurveLabels(
            "Where trained frequencies move",
            "pair (0 rotates fastest)",
            "frequency relative to its start",
        )
    },
    derive=add_factors,
    list_tables=list_factors,
)
