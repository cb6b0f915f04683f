"""Rotating each head by a table of its own, by the operator with one table per batch row."""

from collections.abc import Sequence

from torch import Tensor

from whorl.kernels import ops
from whorl.kernels.native import RotatedChannels

__all__ = ["rotate_by_head"]


def rotate_by_head(
    xs: Sequence[Tensor],
    tables: Sequence[Tensor],
    band: RotatedChannels,
    transpose: bool,
    impl: str,
    outs: Sequence[Tensor] | None,
) -> list[Tensor]:
    """Rotate [B, H, T, D] tensors by tables [1 or B, N, T, 2, P]; N divides H.

    Where all batch rows share the tables, heads take the place of the batch: a view, no copy.
    """
    turned = []
    for n, (x, table) in enumerate(zip(xs, tables, strict=True)):
        heads = x.shape[1]
        table = table.repeat_interleave(heads // table.shape[1], 1)
        if table.shape[0] == 1:
            into = None if outs is None else [outs[n].transpose(0, 1)]
            done = ops.rotate([x.transpose(0, 1)], [table[0]], band, transpose, impl, into)[0]
            turned.append(done.transpose(0, 1))
        else:
            folded, rows = x.flatten(0, 1).unsqueeze(1), table.flatten(0, 1)
            done = ops.rotate([folded], [rows], band, transpose, impl)[0]
            turned.append(done.view(-1, heads, *done.shape[2:]))
            if outs is not None:
                outs[n].copy_(turned[n])
    return turned if outs is None else list(outs)
