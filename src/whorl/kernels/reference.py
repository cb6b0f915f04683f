"""The rotation in plain PyTorch, three times: as a matrix, as a complex product, element-wise.

The three must agree. Every other implementation is compared with them, so this file imports nothing
of whorl. The element-wise form also runs if the native library is missing.

Su et al. 2021, RoFormer, sections 3.2.2 and 3.4.2, https://arxiv.org/abs/2104.09864.
"""

import torch
from torch import Tensor

__all__ = [
    "compute_inv_freq",
    "compute_table",
    "merge_pairs",
    "rotate",
    "rotate_complex",
    "rotate_matrix",
    "split_pairs",
]


def compute_inv_freq(rotary_dim: int, base: float = 10_000.0) -> Tensor:
    """theta_i = base ** (-2 i / R) for i = 0 .. R/2 - 1, float64 [R/2]; pair 0 rotates fastest."""
    frequencies = [base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]
    return torch.tensor(frequencies, dtype=torch.float64)


def compute_table(angles: Tensor) -> Tensor:
    """cos and sin of ``angles`` [..., P], stacked as [..., 2, P]."""
    return torch.stack((angles.cos(), angles.sin()), dim=-2)


def rotate_matrix(x: Tensor, angles: Tensor, *, layout: str = "half") -> Tensor:
    """Multiply by the block-diagonal matrix of 2 x 2 rotations; x [..., T, R], angles [T, R/2]."""
    pairs = angles.shape[-1]
    matrix = torch.zeros(*angles.shape[:-1], 2 * pairs, 2 * pairs, dtype=x.dtype)
    for i in range(pairs):
        a, b = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
        cos, sin = angles[..., i].cos(), angles[..., i].sin()
        matrix[..., a, a], matrix[..., a, b] = cos, -sin
        matrix[..., b, a], matrix[..., b, b] = sin, cos
    return (matrix @ x.unsqueeze(-1)).squeeze(-1)


def rotate_complex(x: Tensor, angles: Tensor, *, layout: str = "half") -> Tensor:
    """Read each pair as a complex number and multiply by exp(i angle); shapes as above."""
    a, b = split_pairs(x, layout)
    rotated = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
    return merge_pairs(rotated.real, rotated.imag, layout)


def rotate(
    x: Tensor,
    table: Tensor,
    *,
    layout: str = "half",
    out_layout: str | None = None,
    start: int = 0,
    transpose: bool = False,
) -> Tensor:
    """a' = a cos - b sin, b' = b cos + a sin on channels start .. start + R.

    Shapes: x [B, H, T, D], table [T, 2, R/2] or [B, T, 2, R/2] (cos, then sin). The other channels
    pass through. The product is formed in the table's dtype and rounded once to that of x.
    ``transpose`` negates sin.
    """
    if table.dim() == 4:
        table = table.unsqueeze(1)  # [B, 1, T, 2, P]
    cos, sin = table[..., 0, :], table[..., 1, :]
    if transpose:
        sin = -sin
    width = 2 * cos.shape[-1]
    part = x if width == x.shape[-1] else x[..., start : start + width]
    a, b = split_pairs(part.to(cos.dtype), layout)
    rotated = merge_pairs(a * cos - b * sin, b * cos + a * sin, out_layout or layout)
    if width < x.shape[-1]:
        # In the table's dtype, because autocast refuses to join float16 tensors on a CPU.
        before, after = x[..., :start].to(cos.dtype), x[..., start + width :].to(cos.dtype)
        rotated = torch.cat((before, rotated, after), dim=-1)
    return rotated.to(x.dtype)


def split_pairs(x: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """First and second channel of every pair, each [..., P]."""
    if layout == "half":
        a, b = x.chunk(2, dim=-1)
        return a, b
    return x[..., 0::2], x[..., 1::2]


def merge_pairs(a: Tensor, b: Tensor, layout: str) -> Tensor:
    """Undo ``split_pairs``."""
    if layout == "half":
        return torch.cat((a, b), dim=-1)
    return torch.stack((a, b), dim=-1).flatten(-2)
