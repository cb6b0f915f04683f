"""Rotation of heads that each have their own rows, by the operator that has rows per sequence."""

from collections.abc import Sequence

from torch import Tensor

from whorl.kernels import ops
from whorl.kernels.native import RotatedChannels

__all__ = ["rotate_by_head"]


def rotate_by_head(
    xs: Sequence[Tensor],
    tables: Sequence[Tensor],
    channels: RotatedChannels,
    transpose: bool,
    impl: str,
    outs: Sequence[Tensor] | None,
) -> list[Tensor]:
    """Rotate [B, H, T, D] tensors by tables [1 or B, N, T, 2, P]; N divides H.

    If all sequences share the tables, the axes of heads and batch are swapped: a view, no copy.
    """
    rotated = []
    for n, (x, table) in enumerate(zip(xs, tables, strict=True)):
        heads = x.shape[1]
        table = table.repeat_interleave(heads // table.shape[1], 1)
        if table.shape[0] == 1:
            into = None if outs is None else [outs[n].transpose(0, 1)]
            done = ops.rotate([x.transpose(0, 1)], [table[0]], channels, transpose, impl, into)[0]
            rotated.append(done.transpose(0, 1))
        else:
            folded, rows = x.flatten(0, 1).unsqueeze(1), table.flatten(0, 1)
            done = ops.rotate([folded], [rows], channels, transpose, impl)[0]
            rotated.append(done.view(-1, heads, *done.shape[2:]))
            if outs is not None:
                outs[n].copy_(rotated[n])
    return rotated if outs is None else list(outs)
