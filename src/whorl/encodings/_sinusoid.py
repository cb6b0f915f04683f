"""Frequencies and rows of sinusoids, for the encodings that use them as fixed vectors."""

import math
from typing import Literal

import torch
from torch import Tensor

from whorl.types import Precision

__all__ = ["First", "Order", "Spacing", "compute_frequencies", "compute_sinusoids"]

Order = Literal["interleaved", "concatenated"]
First = Literal["sin", "cos"]
Spacing = Literal["paper", "endpoints"]


def compute_frequencies(dim: int, base: float, spacing: Spacing, precision: Precision) -> Tensor:
    """base ** (-i / n), i = 0 .. dim/2 - 1; n = dim/2 for "paper", dim/2 - 1 for "endpoints".

    In float32 by the steps of the programs that were trained that way, bit for bit.
    """
    steps = dim // 2 if spacing == "paper" else dim // 2 - 1
    if precision == "float32":
        index = torch.arange(dim // 2, dtype=torch.float32, device="cpu")
        return (index * -(math.log(base) / steps)).exp()
    index = torch.arange(dim // 2, dtype=torch.float64, device="cpu")
    ladder: Tensor = float(base) ** -(index / steps)
    return ladder


def compute_sinusoids(
    angles: Tensor, order: Order, first: First, scale: float, dtype: torch.dtype
) -> Tensor:
    """scale sin and scale cos of angles [..., P], arranged to [..., 2 P]; rounded once."""
    pair = (angles.sin(), angles.cos()) if first == "sin" else (angles.cos(), angles.sin())
    if order == "interleaved":
        rows = torch.stack(pair, dim=-1).flatten(-2)
    else:
        rows = torch.cat(pair, dim=-1)
    return (rows if scale == 1.0 else rows * scale).to(dtype)
