"""The tensors of one cell, the right answer for them, and the judge of a contestant's answer.

Contestants share the inputs and the preallocated outputs, because eight copies of the longest
prefill would not fit in memory.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from whorl.kernels import reference

from .plan import DTYPES, Cell

__all__ = ["BASE", "Case"]

BASE = 10_000.0
# Positions of a long sequence that are compared with the oracle: as many, evenly spread.
_ROWS = 64


class Case:
    """Inputs of a cell, tables of its positions in any form, and the float64 oracle.

    q, k: [B, H, T, D] and [B, G, T, D], normal. q_grad, k_grad: their cotangents in training.
    q_out, k_out: preallocated results. q_inplace, k_inplace: copies to be overwritten.
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

    def angles_by_channel(self) -> Tensor:
        """Angles repeated for both channels of each pair, in the cell's layout: [T, D]."""
        if self.cell.layout == "half":
            return torch.cat((self.angles, self.angles), dim=-1)
        return self.angles.repeat_interleave(2, dim=-1)

    def reset(self, fill: float = torch.nan) -> None:
        """Undo what a contestant wrote; results become NaN so that a missing write shows."""
        self.q_out.fill_(fill)
        self.k_out.fill_(fill)
        self.q_inplace.copy_(self.q)
        self.k_inplace.copy_(self.k)

    def problem(self, results: Sequence[Tensor], *, own_angles: bool) -> str | None:
        """None if ``results`` are what they should be, else what is wrong with them.

        results: rotated q and k; in training also the gradients of q and k. A result may differ by
        the rounding of table, products and sum to the cell's dtype: at most 3 eps max |x|. A
        contestant that forms angles itself in float32 may add 2^-20 of its last position.
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
            error, limit = self._error(result, x, inverse), slack * float(x.abs().max())
            if not error <= limit:  # also when NaN
                return f"{name} is off by {error:.2g}, more than {limit:.2g}"
        return None

    def _error(self, result: Tensor, x: Tensor, inverse: bool) -> float:
        """Largest difference from the oracle over the rows that are compared."""
        length = x.shape[2]
        rows = torch.linspace(0, length - 1, min(length, _ROWS)).round().long()
        table = reference.compute_table(self.angles[rows])
        x = x[:, :, rows].double()
        expected = reference.rotate(x, table, layout=self.cell.layout, transpose=inverse)
        return float((result.detach()[:, :, rows].double() - expected).abs().max())
