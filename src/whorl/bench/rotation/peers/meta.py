"""The rotation of Meta's Llama models: pairs as complex numbers.

It is written here again, because Meta's package needs a GPU stack. It takes [B, T, H, D].
"""

import torch
from torch import Tensor

from whorl.bench.rotation.case import RotationCase

from .base import Peer, PeerCall, build_torch_call

__all__ = ["Meta"]


class Meta(Peer):
    """``view_as_complex(x) * freqs_cis`` in float32, with precomputed complex64 factors."""

    name = "meta"
    title = "Meta complex"
    layouts = ("interleaved",)
    note = "on contiguous [B, T, H, D]"

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        ones = torch.ones_like(case.angles)
        factors = torch.polar(ones, case.angles).to(torch.complex64)[None, :, None]  # [1, T, 1, P]

        def rotate(x: Tensor) -> Tensor:
            numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(numbers * factors).flatten(-2).type_as(x)

        return [build_torch_call(case, lambda q, k: (rotate(q), rotate(k)), heads_last=True)]
