"""The two layers between the matrices of a small Transformer, each in one pass over its rows.

    rms_norm(x, w) = x r w,  r = 1 / sqrt(mean(x^2) + eps)
    swiglu([gate | up]) = gate sigmoid(gate) up

Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467; Shazeer 2020,
https://arxiv.org/abs/2002.05202. Kernel: csrc/layers.c, for float32 on a CPU; anything else is
composed of PyTorch's operators, which on a CPU go through memory several times, above all in the
backward pass.
"""

import struct
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import native

__all__ = ["rms_norm", "swiglu"]

_RMS_NORM, _SWIGLU = 0, 1
_BLOCK = 256  # WHORL_LAYER_BLOCK
_pack = struct.Struct("6qd6q").pack


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., E] over its root mean square, times weight [E]; in float32, the result as ``x``."""
    if _takes(x, weight):
        y: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
        return y
    wide = x if x.dtype == torch.float64 else x.float()
    return F.rms_norm(wide, (x.shape[-1],), weight.to(wide.dtype), eps).to(x.dtype)


def swiglu(x: Tensor) -> Tensor:
    """silu of the first half of the channels, times the second: [..., 2 I] to [..., I]."""
    if _takes(x):
        y: Tensor = _SwiGLU.apply(x)  # type: ignore[no-untyped-call]
        return y
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _takes(*tensors: Tensor) -> bool:
    """Whether the kernel can do it."""
    return (
        native.problem() is None
        and not torch.compiler.is_compiling()
        and all(
            type(x) in (Tensor, nn.Parameter) and x.is_cpu and x.dtype == torch.float32
            for x in tensors
        )
    )


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        y, roots = torch.empty_like(x), x.new_empty(x.shape[:-1])
        _run(_RMS_NORM, 0, x, y, weight=weight, roots=roots, eps=eps)
        ctx.save_for_backward(x, weight, roots)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, roots = ctx.saved_tensors
        dx = torch.empty_like(x)
        sums = x.new_empty(-(-roots.numel() // _BLOCK), x.shape[-1])
        gradient = gradient.contiguous()
        _run(_RMS_NORM, 1, x, dx, weight=weight, roots=roots, gradient=gradient, sums=sums)
        return dx, sums.sum(0), None


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
        _run(_SWIGLU, 0, x, y)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        _run(_SWIGLU, 1, x, dx, gradient=gradient.contiguous())
        return dx


def _run(
    kind: int,
    back: int,
    x: Tensor,
    out: Tensor,
    *,
    weight: Tensor | None = None,
    roots: Tensor | None = None,
    gradient: Tensor | None = None,
    sums: Tensor | None = None,
    eps: float = 0.0,
) -> None:
    width = x.shape[-1]
    rows = x.numel() // width if width else 0
    sizes = (kind, back, rows, width, torch.get_num_threads(), 0)
    operands = (x, weight, gradient, roots, out, sums)
    native.run_layer(_pack(*sizes, eps, *(0 if t is None else t.data_ptr() for t in operands)))
