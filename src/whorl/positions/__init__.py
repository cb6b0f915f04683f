"""Positions of tokens, from padding masks, packed documents, shards, grids and multimodal input.

Positions are int64 [T] or [B, T], for the argument ``positions`` of any encoding. Those of
``grid``, ``from_segments`` and ``from_token_types`` (text, images and videos) have several axes,
[n, T] or [3, B, T], for AxialRoPE and MRoPE.

>>> import torch, whorl
>>> whorl.positions.from_mask(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])).tolist()
[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
>>> whorl.positions.from_cu_seqlens(torch.tensor([0, 3, 5])).tolist()
[0, 1, 2, 0, 1]
"""

from .grids import grid
from .multimodal import Multimodal, Segment, from_segments, from_token_types
from .resolve import resolve
from .sequences import from_cu_seqlens, from_documents, from_mask, shard

__all__ = [
    "Multimodal",
    "Segment",
    "from_cu_seqlens",
    "from_documents",
    "from_mask",
    "from_segments",
    "from_token_types",
    "grid",
    "resolve",
    "shard",
]
