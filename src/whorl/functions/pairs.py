"""The pairs of channels that rotate together, found in the matrices of a function.

The matrix of a rotation of pairs has at most two numbers other than 0 in every row. Two rows with
the same two inputs are a pair, and the distance between its channels tells the layout:

    half           inputs i, i + R/2        interleaved    inputs 2 i, 2 i + 1

The same holds for outputs: some models read one layout and write the other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.types import Layout

from .probe import FunctionProbe

__all__ = ["NoPairsError", "Pairs", "find_pairs", "measure_matrices"]

#: Entries smaller than this, relative to the largest of their row, are rounding.
_ROUNDING = 1e-10
_POSITIONS = tuple(range(16))


class NoPairsError(Exception):
    """The matrices are no rotation of pairs; the message says why."""


@dataclass(frozen=True)
class Pairs:
    """Input channels (a, b) and output channels (a, b) of n pairs, each [n], in order of a.

    index: the number of each pair among all R/2 pairs; pairs that do not rotate are missing.
    """

    a_in: Tensor
    b_in: Tensor
    a_out: Tensor
    b_out: Tensor
    layout: Layout | None
    out_layout: Layout | None
    start: int
    width: int
    index: Tensor

    def __len__(self) -> int:
        return len(self.a_in)

    @property
    def moved_channels(self) -> str:
        """Which channels are read and which are written if these differ, else ""."""
        read, written = (
            sorted(torch.cat(ends).tolist())
            for ends in ((self.a_in, self.b_in), (self.a_out, self.b_out))
        )
        if read == written:
            return ""
        spans = [f"{channels[0]} to {channels[-1]}" for channels in (read, written)]
        return f"channels {spans[0]} are read and {spans[1]} written"

    def fill_gaps(self, values: Tensor) -> Tensor:
        """One value for each of all R/2 pairs, 0 for those that do not rotate."""
        whole = values.new_zeros(self.width // 2)
        whole[self.index] = values
        return whole


def measure_matrices(probe: FunctionProbe) -> Tensor:
    """Matrices of the function at positions 0 .. 15: float64 [16, D, D], rows are outputs."""
    basis = torch.eye(probe.head_dim, dtype=torch.float64)
    return probe.rotate_vectors(basis, _POSITIONS).transpose(1, 2)


def find_pairs(matrices: Tensor) -> Pairs | None:
    """Pairs in matrices [T, D, D], or None if no channels mix; raises NoPairsError otherwise."""
    strength = matrices.abs().amax(0)  # [D out, D in]
    head_dim = strength.shape[0]
    most = strength.amax(1)
    if not bool((most > 0).all()):
        lost = int((most == 0).nonzero()[0])
        raise NoPairsError(f"output channel {lost} is always 0")
    mixed = strength > _ROUNDING * most[:, None]
    counts = mixed.sum(1)
    if int(counts.max()) > 2:
        row = int(counts.argmax())
        raise NoPairsError(f"output channel {row} mixes {int(counts[row])} channels, not two")
    rows: dict[tuple[int, int], list[int]] = {}
    for row in range(head_dim):
        inputs = mixed[row].nonzero().flatten().tolist()
        if len(inputs) == 2:
            rows.setdefault((inputs[0], inputs[1]), []).append(row)
    for (a, b), outputs in rows.items():
        if len(outputs) != 2:
            raise NoPairsError(
                f"channels {a} and {b} make {len(outputs)} output channel(s)"
                f" ({', '.join(map(str, outputs))}); a pair makes two"
            )
    return _build_pairs(sorted((a, b, *outputs) for (a, b), outputs in rows.items()), head_dim)


def _build_pairs(found: list[tuple[int, ...]], head_dim: int) -> Pairs | None:
    """Pairs from rows (input a, input b, output a, output b), with their layouts."""
    if not found:
        return None
    a_in, b_in, a_out, b_out = torch.tensor(found).unbind(1)
    layout, start, width, index = _find_layout(a_in, b_in, head_dim)
    out_layout, out_start, out_width, out_index = _find_layout(a_out, b_out, head_dim)
    same = (start, width) == (out_start, out_width) and torch.equal(index, out_index)
    if layout is None or out_layout is None or not same:
        width, start, index = 2 * len(found), int(a_in[0]), torch.arange(len(found))
        if layout != out_layout or not torch.equal(a_in, a_out):
            out_layout = None
    return Pairs(a_in, b_in, a_out, b_out, layout, out_layout, start, width, index)


def _find_layout(a: Tensor, b: Tensor, head_dim: int) -> tuple[Layout | None, int, int, Tensor]:
    """Layout, first channel, rotated width R, and the number of each pair."""
    apart, start = int(b[0] - a[0]), int(a[0])
    steps = a - start
    if not bool((b - a == apart).all()):
        return None, start, 2 * len(a), torch.arange(len(a))
    if apart == 1 and len(a) > 1 and bool((steps % 2 == 0).all()):
        index = steps // 2
        return "interleaved", start, 2 * int(index[-1] + 1), index
    if int(steps.max()) >= apart:  # two groups of pairs, as in axial rotations
        return None, start, 2 * len(a), torch.arange(len(a))
    if (
        start + 2 * apart > head_dim
    ):  # the fastest pairs do not rotate, so the first channel is before
        start = head_dim - 2 * apart
    return "half", start, 2 * apart, a - start
