"""rotary-embedding-torch: ``apply_rotary_emb`` with ready-made angles, its shortest way."""

import torch

from whorl.bench.rotation.case import RotationCase

from .base import Peer, PeerCall, build_torch_call

__all__ = ["RotaryEmbeddingTorch"]


class RotaryEmbeddingTorch(Peer):
    """It caches angles, not their cos and sin, and takes those at every call."""

    name = "ret"
    title = "rotary-embedding-torch"
    module = "rotary_embedding_torch"
    package = "rotary-embedding-torch"
    layouts = ("interleaved",)
    own_angles = True
    note = "given the angles of its cache; cos and sin are taken at every call"

    def entries(self, case: RotationCase) -> list[PeerCall]:
        from rotary_embedding_torch import apply_rotary_emb

        freqs = case.angles_by_channel().to(torch.float32)  # [T, D]
        return [
            build_torch_call(
                case, lambda q, k: (apply_rotary_emb(freqs, q), apply_rotary_emb(freqs, k))
            )
        ]
