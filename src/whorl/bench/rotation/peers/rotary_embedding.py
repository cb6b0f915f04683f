"""rotary-embedding-torch: ``apply_rotary_emb`` with given angles, its fastest way."""

import torch

from whorl.bench.rotation.case import RotationCase

from .base import Peer, PeerCall, build_torch_call

__all__ = ["RotaryEmbeddingTorch"]


class RotaryEmbeddingTorch(Peer):
    """``apply_rotary_emb``, which caches angles and computes cos and sin at every call."""

    name = "ret"
    title = "rotary-embedding-torch"
    module = "rotary_embedding_torch"
    package = "rotary-embedding-torch"
    layouts = ("interleaved",)
    own_angles = True
    note = "given the angles of its cache; cos and sin are taken at every call"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        from rotary_embedding_torch import apply_rotary_emb

        freqs = case.expand_angles().to(torch.float32)  # [T, D]
        return [
            build_torch_call(
                case, lambda q, k: (apply_rotary_emb(freqs, q), apply_rotary_emb(freqs, k))
            )
        ]
