"""Tables of cos and sin in the arrangements that functions of kind "cos_sin" expect.

    tiled      [f0 .. fn, f0 .. fn]      for layout "half" (Hugging Face)
    repeated   [f0, f0, f1, f1, ..]      for layout "interleaved"
    pairs      [f0 .. fn]                one entry for each pair

with angles p f_i, f_i = 10,000 ^ (-2 i / width).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "TABLE_BASE",
    "Arrangement",
    "TableForm",
    "arrange_columns",
    "build_tables",
    "list_table_forms",
]

Arrangement = Literal["tiled", "repeated", "pairs"]

TABLE_BASE = 10_000.0
_WORDS = {"tiled": "[f, f]", "repeated": "[f0, f0, f1, f1, ..]", "pairs": "[f]"}


@dataclass(frozen=True)
class TableForm:
    """How cos and sin are arranged; scale multiplies both."""

    arrangement: Arrangement
    shape: Literal["BTW", "TW", "B1TW"]
    width: int = 0
    scale: float = 1.0

    @property
    def is_batched(self) -> bool:
        return self.shape != "TW"

    def __str__(self) -> str:
        columns = self.width // 2 if self.arrangement == "pairs" else self.width
        shape = {"BTW": "[B, T, {}]", "TW": "[T, {}]", "B1TW": "[B, 1, T, {}]"}[self.shape]
        return f"cos and sin {shape.format(columns)}, {self.arrangement} {_WORDS[self.arrangement]}"


_ARRANGEMENTS: tuple[Arrangement, ...] = ("tiled", "repeated", "pairs")
_SHAPES: tuple[Literal["BTW", "TW", "B1TW"], ...] = ("BTW", "TW", "B1TW")


def list_table_forms(head_dim: int) -> list[TableForm]:
    """All forms of tables, in the order in which they are tried.

    Tables with one column per pair of the whole head are as wide as tiled tables of half the head,
    and a function that takes the former keeps norms with both. So wide tables come first.
    """
    widths = range(head_dim // 2 * 2, 0, -2)
    return [TableForm(a, s, w) for s in _SHAPES for w in widths for a in _ARRANGEMENTS]


def arrange_columns(values: Tensor, arrangement: Arrangement) -> Tensor:
    """Values of pairs [..., P] as values of the columns of a table."""
    if arrangement == "tiled":
        return torch.cat((values, values), dim=-1)
    return values.repeat_interleave(2, dim=-1) if arrangement == "repeated" else values


def build_tables(form: TableForm, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Tables of cos and sin in the dtype of x [B, H, T, D], computed in float64."""
    steps = torch.arange(0, form.width, 2, dtype=torch.float64) / form.width
    angles = positions.double().unsqueeze(-1) * TABLE_BASE**-steps  # [T, P] or [B, T, P]
    angles = arrange_columns(angles, form.arrangement)
    if form.is_batched:
        angles = angles.expand(x.shape[0], *angles.shape[-2:])
    if form.shape == "B1TW":
        angles = angles.unsqueeze(1)
    return (angles.cos() * form.scale).to(x.dtype), (angles.sin() * form.scale).to(x.dtype)
