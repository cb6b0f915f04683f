"""torchtune: ``RotaryPositionalEmbeddings``, where its dependencies resolve."""

import torch

from whorl.bench.rotation.case import BASE, Case

from .base import Entry, Peer, torch_entry

__all__ = ["Torchtune"]


class Torchtune(Peer):
    """Interleaved on [B, T, H, D], in float32, from a table it makes itself."""

    name = "torchtune"
    title = "torchtune"
    module = "torchtune.modules"
    package = "torchtune"
    layouts = ("interleaved",)
    own_angles = True
    note = "on contiguous [B, T, H, D]; decode passes input_pos"

    def entries(self, case: Case) -> list[Entry]:
        from torchtune.modules import RotaryPositionalEmbeddings

        shape = case.cell.shape
        rope = RotaryPositionalEmbeddings(shape.head_dim, shape.first + shape.length, int(BASE))
        at: torch.Tensor | None = None
        if shape.first:
            at = case.positions.expand(shape.batch, -1)  # [B, T]
        return [
            torch_entry(
                case,
                lambda q, k: (rope(q, input_pos=at), rope(k, input_pos=at)),
                heads_last=True,
            )
        ]
