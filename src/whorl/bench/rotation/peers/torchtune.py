"""torchtune: ``RotaryPositionalEmbeddings``."""

import torch

from whorl.bench.rotation.case import BASE, RotationCase

from .base import Peer, PeerCall, build_torch_call

__all__ = ["Torchtune"]


class Torchtune(Peer):
    """Interleaved layout on [B, T, H, D], in float32, with a table of its own."""

    name = "torchtune"
    title = "torchtune"
    module = "torchtune.modules"
    package = "torchtune"
    layouts = ("interleaved",)
    own_angles = True
    note = "on contiguous [B, T, H, D]; decode passes input_pos"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        from torchtune.modules import RotaryPositionalEmbeddings

        shape = case.cell.shape
        rope = RotaryPositionalEmbeddings(shape.head_dim, shape.first + shape.length, int(BASE))
        at: torch.Tensor | None = None
        if shape.first:
            at = case.positions.expand(shape.batch, -1)  # [B, T]
        return [
            build_torch_call(
                case,
                lambda q, k: (rope(q, input_pos=at), rope(k, input_pos=at)),
                heads_last=True,
            )
        ]
