"""The tensors of one rotation cell, and the check of a contestant's results.

All contestants share the inputs and the preallocated outputs, because eight copies of the longest
prefill would not fit into memory.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from whorl.kernels import reference

from .plan import DTYPES, Cell

__all__ = ["BASE", "RotationCase"]

BASE = 10_000.0
# How many positions of a long sequence are compared with the expected result, evenly spaced.
_ROWS = 64


class RotationCase:
    """Inputs and outputs of a cell, its angles, and the expected results in float64.

    q, k: random [B, H, T, D] and [B, G, T, D]. q_grad, k_grad: gradients of their rotations, in
    training. q_out, k_out: preallocated results. q_inplace, k_inplace: copies to overwrite.
    angles: float64 [T, P].
    """

    def __init__(self, cell: Cell, seed: int = 0) -> None:
        self.cell = cell
        self.dtype = DTYPES[cell.dtype]
        self.training = cell.shape.kind == "training"
        generator = torch.Generator().manual_seed(seed)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=generator).to(self.dtype)

        self.q, self.k = normal(cell.shape.q), normal(cell.shape.k)
        if self.training:
            self.q_grad, self.k_grad = normal(cell.shape.q), normal(cell.shape.k)
        self.q_out, self.k_out = torch.zeros_like(self.q), torch.zeros_like(self.k)
        self.q_inplace, self.k_inplace = self.q.clone(), self.k.clone()
        first, pairs = cell.shape.first, cell.shape.head_dim // 2
        self.positions = torch.arange(first, first + cell.shape.length)
        exponents = -torch.arange(pairs, dtype=torch.float64) / pairs
        self.angles = self.positions.double()[:, None] * BASE**exponents  # [T, P]

    def expand_angles(self) -> Tensor:
        """The angle of every channel, in the cell's layout: [T, D]."""
        if self.cell.layout == "half":
            return torch.cat((self.angles, self.angles), dim=-1)
        return self.angles.repeat_interleave(2, dim=-1)

    def reset(self, fill: float = torch.nan) -> None:
        """Undo what a contestant wrote, and fill the outputs: NaN shows what is not written."""
        self.q_out.fill_(fill)
        self.k_out.fill_(fill)
        self.q_inplace.copy_(self.q)
        self.k_inplace.copy_(self.k)

    def find_problem(self, results: Sequence[Tensor], *, own_angles: bool) -> str | None:
        """What is wrong with ``results``; None if they are right.

        results: rotated q and k, in training also the gradients of q and k. They may be off by
        3 eps max |x|, from rounding table, products and sum to the cell's dtype.
        own_angles: the contestant computes angles in float32, which may add 2^-20 of the last
        position.
        """
        sources = [(self.q, False), (self.k, False)]
        if self.training:
            sources += [(self.q_grad, True), (self.k_grad, True)]
        if len(results) != len(sources):
            return f"gave {len(results)} results instead of {len(sources)}"
        slack = 3 * torch.finfo(self.dtype).eps
        if own_angles:
            slack += 2.0**-20 * float(self.positions[-1])
        names = ("q", "k", "gradient of q", "gradient of k")
        for name, result, (x, inverse) in zip(names, results, sources, strict=False):
            if result.shape != x.shape or result.dtype != x.dtype:
                return f"{name} is {result.dtype} {list(result.shape)}, not {x.dtype} {[*x.shape]}"
            error, limit = self._measure_error(result, x, inverse), slack * float(x.abs().max())
            if not error <= limit:  # also when NaN
                return f"{name} is off by {error:.2g}, more than {limit:.2g}"
        return None

    def _measure_error(self, result: Tensor, x: Tensor, inverse: bool) -> float:
        """Largest difference from the expected result, over the rows that are compared."""
        length = x.shape[2]
        rows = torch.linspace(0, length - 1, min(length, _ROWS)).round().long()
        table = reference.compute_table(self.angles[rows])
        x = x[:, :, rows].double()
        expected = reference.rotate(x, table, layout=self.cell.layout, transpose=inverse)
        return float((result.detach()[:, :, rows].double() - expected).abs().max())
