"""Reference positions in linear attention, for rotations that have a span such as XPos.

Keys of XPos are multiplied by zeta_i^(-(p - r)/s), with a reference r near the tokens of the block.
When r moves, the rows of the sums are multiplied by powers of two, which rounds nothing; keys so
far back that float32 cannot hold them become 0, as their scores do.
"""

import torch
from torch import Tensor

from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions

from .features import FeatureMap
from .positions import CausalPositions
from .sums import KeySums

__all__ = ["clamp_positions", "find_reference", "limit_block", "move_sums"]


def limit_block(rotation: Encoding, block: int) -> int:
    """Tokens of a block, so few that factors which grow across it stay far from overflow."""
    return max(1, min(block, _get_safe_span(rotation)))


def clamp_positions(rotation: Encoding, positions: CausalPositions) -> ResolvedPositions:
    """Positions, with those of hidden tokens, which may be any, moved near to the others."""
    (values, offset), line, _ = positions
    if values is None or line is None:
        return values, offset
    span = _get_safe_span(rotation)
    return torch.clamp(values, line - span, line + span), 0


def find_reference(
    rotation: Encoding, positions: CausalPositions, start: int, k: Tensor
) -> int | Tensor:
    """The reference of the block of keys that begins at token ``start``: an int, or one per row."""
    (_, offset), line, _ = positions
    batch, length = k.shape[0], k.shape[2]
    if line is not None:
        near = rotation.reference_near(line[:, start : start + length])  # [1] or [B]
    elif torch.compiler.is_compiling():  # as a tensor: the graph then fits other lengths as well
        first = offset + start
        near = rotation.reference_near(torch.arange(first, first + length, device=k.device))
    else:  # the same for numbers that are known
        return rotation.reference_for(offset + start + (length - 1) // 2)
    return torch.as_tensor(near).expand(batch)


def move_sums(
    rotation: Encoding,
    sums: KeySums,
    old: int | Tensor | None,
    new: int | Tensor,
    feature_map: FeatureMap,
) -> KeySums:
    """The sums relative to reference ``new`` instead of ``old``."""
    numerator, denominator = sums
    if old is None or (isinstance(old, int) and isinstance(new, int) and old == new):
        return sums
    width = numerator.shape[2] - (feature_map == "cosine")
    before, after = (torch.as_tensor(r, device=numerator.device) for r in (old, new))

    def rescale(rows: Tensor) -> Tensor:  # [B, G, F, Dv]; a last row of ones stays
        rescaled = rotation.rescale(rows[:, :, :width].mT, old=before, new=after).mT
        return torch.cat((rescaled, rows[:, :, width:]), 2)

    if feature_map == "cosine":  # whose denominator is rotated too
        denominator = rescale(denominator.unsqueeze(-1)).squeeze(-1)
    return KeySums(rescale(numerator), denominator)


def _get_safe_span(rotation: Encoding) -> int:
    """A quarter of the span of float32, which leaves room for sums."""
    span = rotation.span(torch.float32)
    assert span is not None
    return span // 4
