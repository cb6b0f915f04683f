"""What encodings that score by content and distance share.

A score against a vector of each distance, x_i . r_(i-j), needs no T x S x D tensor: x is multiplied
with every row of a table, and each pair (i, j) reads its own entry of that product. Where positions
count up by one, the table has a row for each distance, in their order, and ``shift_rows`` reads it.
"""

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl.kernels.tables import choose_table_dtype
from whorl.positions import resolve

from .rotary.checks import check_pair

__all__ = [
    "add_head_axis",
    "check_positions",
    "check_score_inputs",
    "check_whole",
    "find_first_distance",
    "repeat_heads",
    "score_by_index",
    "shift_rows",
    "widen",
]


def check_score_inputs(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    key_positions: Tensor,
    num_heads: int,
    head_dim: int,
    where: str,
) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys, int64 or float64; refuse q, k that cannot be scored."""
    for what, x in (("q", q), ("k", k)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            came = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{where}: {what} must be a floating-point tensor [B, H, T, D]; got {came}."
            )
        if x.dim() != 4 or x.shape[3] != head_dim:
            raise ValueError(
                f"{where}: {what} must be [B, H, T, D] with D = head_dim = {head_dim};"
                f" got {list(x.shape)}. Reshape a [B, T, H * D] tensor with"
                f" {what}.unflatten(-1, (-1, {head_dim})).transpose(1, 2)."
            )
    if q.shape[1] != num_heads:
        raise ValueError(
            f"{where}: q must have num_heads = {num_heads} heads, because each has vectors or"
            f" scores of its own; got {q.shape[1]}. Build the encoding for {q.shape[1]} heads."
        )
    if not k.shape[1] or num_heads % k.shape[1]:
        raise ValueError(
            f"{where}: the heads of k must divide the {num_heads} of q, because each serves equally"
            f" many queries; got {k.shape[1]}."
        )
    check_pair(q, k, key_positions, where)
    return (
        check_positions(positions, q.shape[0], q.shape[2], q.device, where, "positions"),
        check_positions(key_positions, k.shape[0], k.shape[2], k.device, where, "key_positions"),
    )


def check_positions(
    given: Tensor, batch: int, length: int, device: torch.device, where: str, what: str
) -> Tensor:
    """Checked positions [T] or [B, T], int64 or float64."""
    if given is None:
        raise TypeError(
            f"{where}: {what} must be a tensor, because a score needs to know where both tokens"
            f" are; got None. Use torch.arange({length}) for a whole sequence."
        )
    positions, _ = resolve(given, 0, batch, length, device, f"{where}, {what}")
    assert positions is not None  # as it came as a tensor
    return positions


def check_whole(positions: Tensor, where: str) -> None:
    """Refuse fractional positions where distances choose a row of a table."""
    if positions.is_floating_point():
        raise TypeError(
            f"{where}: positions must be integers, because a distance chooses a vector;"
            f" got {positions.dtype}. Use positions.long() if they are whole."
        )


def add_head_axis(t: Tensor) -> Tensor:
    """Something of each pair, [T, S] or [B, T, S], with an axis for heads after the batch."""
    return t.unsqueeze(1) if t.dim() == 3 else t


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """[..., G, T, D] -> [..., H, T, D]: head h reads head h // (H / G)."""
    times = heads // x.shape[-3]
    return x if times == 1 else x.repeat_interleave(times, dim=-3)


def widen(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Half precision as float32, so that scores that attention sums up are not rounded before."""
    return q.to(choose_table_dtype(q)), k.to(choose_table_dtype(k))


def score_by_index(x: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """x_i . rows[index_ij], [B, H, T, S]: x [B, H, T, D], rows [(H,) N, D], index [(B,) T, S]."""
    scores = x @ rows.mT  # [B, H, T, N]
    # Contiguous, because gather takes more than twice as long along a transposed index.
    index = add_head_axis(index.contiguous()).expand(*scores.shape[:3], index.shape[-1])
    return scores.gather(-1, index)


def shift_rows(product: Tensor, late: int, size: int) -> Tensor:
    """Entries [..., N, size] of product [..., N, L]: [n, m] is of column m + late - n.

    late <= N and size < L. Columns outside 0 .. L - 1 give entries of neighbouring rows.
    """
    N, L = product.shape[-2:]
    # Rows one entry shorter than they are start one entry earlier each.
    flat = product.flatten(-2)[..., late : late + N * (L - 1)]
    return flat.view(*product.shape[:-1], L - 1)[..., :size]


def find_first_distance(query_positions: Tensor, key_positions: Tensor) -> int | None:
    """Distance of query 0 to key 0 if positions are consecutive in all rows, else None."""
    if (
        not query_positions.numel()
        or not key_positions.numel()
        or not (has_values(query_positions) and has_values(key_positions))
    ):
        return None
    if query_positions.is_floating_point() or key_positions.is_floating_point():
        return None
    start = query_positions[..., 0] - key_positions[..., 0]
    first = start.flatten()[0]
    regular = (
        (query_positions.diff() == 1).all()
        & (key_positions.diff() == 1).all()
        & (start == first).all()
    )
    return int(first) if bool(regular) else None
