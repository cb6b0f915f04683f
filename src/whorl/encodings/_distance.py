"""What biases by distance share: checks of distances, and a trained table."""

from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "add_distance_axes",
    "check_distance",
    "find_result_dtype",
    "select_biases",
]

# Without uint8: a difference needs a sign.
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)
_FRACTIONS = (torch.float64, torch.float32)


def check_distance(distance: Tensor, where: str, *, kind: Literal["any", "whole"]) -> Tensor:
    """Distances as int64, or as the float32 or float64 they came in unless they must be whole."""
    if not isinstance(distance, Tensor):
        raise TypeError(
            f"{where}: distance must be a tensor of query minus key positions; got"
            f" {type(distance).__name__}. Use torch.arange(1 - S, T) for T queries and S keys."
        )
    if distance.dtype in _INTEGERS:
        return distance.to(torch.int64)
    if kind == "whole":
        raise TypeError(
            f"{where}: distances must be signed integers, because each trained bias belongs to"
            f" whole distances; got {distance.dtype}. Round the positions, or take a bias that is"
            " a formula, such as ALiBi or Kerple."
        )
    if distance.dtype not in _FRACTIONS:
        half = distance.dtype in (torch.float16, torch.bfloat16)
        why = ", because half precision merges neighbours (bfloat16 from 257 on)" if half else ""
        raise TypeError(
            f"{where}: distances must be signed integers, float32 or float64{why}; got"
            f" {distance.dtype}. Subtract positions that are .long() or .float()."
        )
    return distance


def find_result_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 where a distance or parameter is, else float32."""
    wide = any(t.dtype == torch.float64 for t in tensors)
    return torch.float64 if wide else torch.float32


def add_distance_axes(values: Tensor, distance: Tensor) -> Tensor:
    """One number per head [H], shaped to go with distances of any shape: [H, 1, ..., 1]."""
    return values.to(distance.device).view(-1, *[1] * distance.dim())


def select_biases(weight: Tensor, rows: Tensor) -> Tensor:
    """Rows [...] of a trained table [N, H] as [H, ...], float32 or wider."""
    # Widened first: the gradients of all distances that share a row then add up in that type.
    columns = weight.to(find_result_dtype(weight)).t()  # [H, N]
    # index_select: on a CPU, forward and backward, two to four times as fast as indexing or
    # embedding (12 heads, 1024 x 1024 distances).
    return columns.index_select(1, rows.reshape(-1)).view(weight.shape[1], *rows.shape)
