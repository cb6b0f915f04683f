"""Meta's form of the rotation, from its Llama models: pairs as complex numbers.

Written out here, because the package that held it needs a GPU stack. It wants [B, T, H, D].
"""

import torch
from torch import Tensor

from whorl.bench.rotation.case import RotationCase

from .base import Peer, PeerCall, build_torch_call

__all__ = ["Meta"]


class Meta(Peer):
    """``view_as_complex(x) * freqs_cis`` in float32, with ready-made complex64 factors."""

    name = "meta"
    title = "Meta complex"
    layouts = ("interleaved",)
    note = "on contiguous [B, T, H, D]"

    def entries(self, case: RotationCase) -> list[PeerCall]:
        ones = torch.ones_like(case.angles)
        factors = torch.polar(ones, case.angles).to(torch.complex64)[None, :, None]  # [1, T, 1, P]

        def turn(x: Tensor) -> Tensor:
            numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(numbers * factors).flatten(-2).type_as(x)

        return [build_torch_call(case, lambda q, k: (turn(q), turn(k)), heads_last=True)]
