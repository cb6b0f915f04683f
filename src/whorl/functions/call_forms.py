"""Forms of a call of a rotary function: arrays, dtype, positions, and tables of cos and sin.

Tables have one of the arrangements

    tiled      [f0 .. fn, f0 .. fn]      for layout "half" (Hugging Face)
    repeated   [f0, f0, f1, f1, ..]      for layout "interleaved"
    pairs      [f0 .. fn]                one entry for each pair

with angles p f_i, f_i = 10,000 ^ (-2 i / width).
"""

import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = [
    "DTYPES",
    "LIBRARIES",
    "TABLE_BASE",
    "CallForm",
    "Kind",
    "TableForm",
    "build_tables",
    "list_call_forms",
]

Kind = Literal["x", "qk", "cos_sin"]
Library = Literal["torch", "numpy"]
Arrangement = Literal["tiled", "repeated", "pairs"]
TableShape = Literal["BTW", "TW", "B1TW"]
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
TABLE_BASE = 10_000.0
LIBRARIES: dict[Library, str] = {"torch": "torch tensors", "numpy": "NumPy arrays"}
_COLUMNS = {"tiled": "[f, f]", "repeated": "[f0, f0, f1, f1, ..]", "pairs": "[f]"}
_POSITION_FORMS = (("int", 1), ("int", 2), ("float", 1), ("float", 2))


@dataclass(frozen=True)
class TableForm:
    """How cos and sin are arranged; scale multiplies both."""

    arrangement: Arrangement
    shape: TableShape
    width: int = 0
    scale: float = 1.0

    @property
    def is_batched(self) -> bool:
        return self.shape != "TW"

    def __str__(self) -> str:
        columns = self.width // 2 if self.arrangement == "pairs" else self.width
        shape = {"BTW": "[B, T, {}]", "TW": "[T, {}]", "B1TW": "[B, 1, T, {}]"}[self.shape]
        return (
            f"cos and sin {shape.format(columns)}, {self.arrangement} {_COLUMNS[self.arrangement]}"
        )


@dataclass(frozen=True)
class CallForm:
    """Arrays, dtype, positions and tables with which a function can be called."""

    library: Library
    dtype: str
    positions: tuple[str, int] = ("int", 1)  # whole or float positions, [T] or [B, T]
    tables: TableForm | None = None

    def scale_tables(self, scale: float) -> "CallForm":
        """The form with tables multiplied by ``scale``, for kind "cos_sin"."""
        assert self.tables is not None
        return replace(self, tables=replace(self.tables, scale=scale))

    def __str__(self) -> str:
        parts = [LIBRARIES[self.library], self.dtype]
        if self.tables is None:
            whole = "whole" if self.positions[0] == "int" else "float"
            parts.append(f"{whole} positions {'[T]' if self.positions[1] == 1 else '[B, T]'}")
        else:
            parts.append(str(self.tables))
        return ", ".join(parts)


def list_call_forms(kind: Kind, head_dim: int) -> Iterator[CallForm]:
    """All forms of a call, in the order in which they are tried."""
    for library, dtype in itertools.product(LIBRARIES, DTYPES):
        if library == "numpy" and (dtype == "bfloat16" or not importlib.util.find_spec("numpy")):
            continue
        if kind == "cos_sin":
            tables = _list_table_forms(head_dim)
            yield from (CallForm(library, dtype, tables=form) for form in tables)
        else:
            yield from (CallForm(library, dtype, positions) for positions in _POSITION_FORMS)


def _list_table_forms(head_dim: int) -> list[TableForm]:
    """All forms of tables, in the order in which they are tried.

    Tables with one column per pair of the whole head are as wide as tiled tables of half the head,
    and a function that takes the former keeps norms with both. So wide tables come first.
    """
    widths = range(head_dim // 2 * 2, 0, -2)
    return [
        TableForm(arrangement, shape, width)
        for shape in get_args(TableShape)
        for width in widths
        for arrangement in get_args(Arrangement)
    ]


def build_tables(form: TableForm, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Tables of cos and sin in the dtype of x [B, H, T, D], computed in float64."""
    steps = torch.arange(0, form.width, 2, dtype=torch.float64) / form.width
    angles = positions.double().unsqueeze(-1) * TABLE_BASE**-steps  # [T, P] or [B, T, P]
    if form.arrangement == "tiled":
        angles = torch.cat((angles, angles), dim=-1)
    elif form.arrangement == "repeated":
        angles = angles.repeat_interleave(2, dim=-1)
    if form.is_batched:
        angles = angles.expand(x.shape[0], *angles.shape[-2:])
    if form.shape == "B1TW":
        angles = angles.unsqueeze(1)
    return (angles.cos() * form.scale).to(x.dtype), (angles.sin() * form.scale).to(x.dtype)
