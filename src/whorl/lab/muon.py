"""Muon in float32: momentum whose matrices are made orthogonal before each update.

    momentum = 0.95 momentum + 0.05 gradient
    update   = orthogonal(0.05 gradient + 0.95 momentum)        Nesterov
    weight  -= rate * sqrt(max(1, rows / columns)) * update

``torch.optim.Muon`` computes the same in bfloat16, which most CPUs do not have: there a step of the
lab's model spent half of its time in it (LOG.md). Here matrices of the same shape are also made
orthogonal together, and weights may be in shards (FSDP2), of which a part is no matrix of its own.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from whorl.processes import join_parts, split_like

__all__ = ["Muon"]

_MOMENTUM = 0.95
# Five steps of this odd polynomial bring all singular values near 1, as in torch.optim.Muon.
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
_ITERATIONS = 5
_EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon for parameters that are matrices, with decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float = 1e-2,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[weight.shape].append(weight)
            for (rows, columns), weights in by_shape.items():
                # Of weights in shards, every process makes the whole matrix orthogonal.
                mixes = [join_parts(self._add_momentum(weight)) for weight in weights]
                updates = torch.stack(mixes)
                rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for weight, update in zip(weights, orthogonalize(updates), strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(split_like(update.to(weight.dtype), weight), alpha=rate)

    def _add_momentum(self, weight: Tensor) -> Tensor:
        """Update the momentum of a weight; returns Nesterov's mix of it and the gradient."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum = state["momentum_buffer"].lerp_(weight.grad, 1 - _MOMENTUM)
        return weight.grad.lerp(momentum, _MOMENTUM).float()


def orthogonalize(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of ``matrices`` [N, rows, columns].

    Singular values end between 0.7 and 1.2 or so, by Newton-Schulz iterations.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(_EPS)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x
