"""rotary-embedding-torch: ``apply_rotary_emb`` with ready-made angles, its shortest way."""

import torch

from whorl.bench.rotation.case import Case

from .base import Entry, Peer, torch_entry

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

    def entries(self, case: Case) -> list[Entry]:
        from rotary_embedding_torch import apply_rotary_emb

        freqs = case.angles_by_channel().to(torch.float32)  # [T, D]
        return [
            torch_entry(case, lambda q, k: (apply_rotary_emb(freqs, q), apply_rotary_emb(freqs, k)))
        ]
