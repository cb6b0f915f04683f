"""Inputs for the tests of RoPE, and the definition to compare with."""

import torch
from torch import Tensor

import whorl
from whorl.kernels import native, reference

LAYOUTS = ("half", "interleaved")
IMPLS: list[whorl.Impl] = ["reference"] if native.find_problem() else ["native", "reference"]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def oracle(x: Tensor, positions: Tensor, base: float, layout: str, rotary_dim: int) -> Tensor:
    """The definition in float64, from the complex form; the rest of the head passes through."""
    theta = reference.compute_inv_freq(rotary_dim, base)
    angles = positions.double().unsqueeze(-1) * theta
    if angles.dim() == 3:
        angles = angles.unsqueeze(1)
    rotated = reference.rotate_complex(x[..., :rotary_dim].double(), angles, layout=layout)
    return torch.cat((rotated, x[..., rotary_dim:].double()), dim=-1)
