"""Tables of cos and sin: the one place where angles are formed, and how rows are looked up.

    table[..., 0, i] = scale cos(p theta_i)      table[..., 1, i] = scale sin(p theta_i)

Angles are formed in float64 and rounded once at the end, so an unscaled entry is within 6e-8 of the
truth at every position up to 2^24. precision="float32" forms them in float32, as most models were
trained: entries then differ by 8e-4 at position 4096 and 8e-3 at 131,072.
"""

from typing import Literal

import torch
from torch import Tensor

__all__ = ["Precision", "angles", "entries", "lookup", "lookup_op", "table_dtype"]

Precision = Literal["float64", "float32"]


def table_dtype(x: Tensor) -> torch.dtype:
    """Tables for float64 inputs are float64, all others float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def angles(positions: Tensor, inv_freq: Tensor, precision: str = "float64") -> Tensor:
    """positions [T] or [B, T] times inv_freq [P] or [B, P]: [T, P], or [B, T, P]."""
    dtype = torch.float64 if precision == "float64" else torch.float32
    inv_freq = inv_freq.to(dtype)
    if inv_freq.dim() == 2:
        inv_freq = inv_freq.unsqueeze(1)  # [B, 1, P]
    return positions.to(dtype).unsqueeze(-1) * inv_freq


def entries(angles: Tensor, scale: float | Tensor, dtype: torch.dtype) -> Tensor:
    """scale cos and scale sin, [..., P] -> [..., 2, P]; scale is a number or one per row, [B]."""
    table = torch.stack((angles.cos(), angles.sin()), dim=-2)
    if isinstance(scale, Tensor):
        table = table * scale.to(table.dtype)[:, None, None, None]
    elif scale != 1.0:
        table = table * scale
    return table.to(dtype)


def lookup(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
) -> Tensor:
    """Rows for ``positions``, or first .. first + length - 1: read from ``table``, built past it.

    ``table`` holds positions 0 .. N - 1; what comes back never depends on N.
    """
    known = table.shape[0]
    if positions is None:
        if first >= 0 and first + length <= known:
            return table[first : first + length]
        positions = torch.arange(first, first + length, device=table.device)
    elif positions.numel() and not positions.is_floating_point():
        low, high = positions.aminmax()
        if int(low) >= 0 and int(high) < known:
            return table[positions]
    return entries(angles(positions, inv_freq, precision), scale, table.dtype)


# Inside torch.compile the choice between reading and building must not be traced: it would tie the
# graph to a length, or to the values of positions.
torch.library.define(
    "whorl::lookup",
    "(Tensor table, Tensor inv_freq, Tensor? positions, SymInt first, SymInt length, float scale,"
    " str precision) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


@torch.library.impl("whorl::lookup", "CompositeExplicitAutograd")
def _lookup(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
) -> Tensor:
    rows = lookup(table, inv_freq, positions, first, length, scale, precision)
    # An operator must not return a view of what it was given.
    shared = rows.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
    return rows.clone() if shared else rows


@torch.library.register_fake("whorl::lookup")  # type: ignore[untyped-decorator]
def _lookup_fake(
    table: Tensor,
    inv_freq: Tensor,
    positions: Tensor | None,
    first: int,
    length: int,
    scale: float,
    precision: str,
) -> Tensor:
    shape = (length,) if positions is None else tuple(positions.shape)
    return table.new_empty((*shape, 2, inv_freq.shape[-1]))


lookup_op = torch.ops.whorl.lookup.default
