"""XPos in linear attention: sums of keys that grow without bound, held relative to a reference.

Keys are multiplied by zeta_i^(-(p - r)/s) with r near the tokens at hand. When r moves on, the rows
of the sums are multiplied by powers of two, which rounds nothing; keys so far back that float32
cannot hold them become 0, as their scores do.
"""

import torch
from torch import Tensor

from whorl.encodings.rotary.call import ResolvedPositions
from whorl.encodings.xpos import XPos

from .features import FeatureMap
from .positions import Places
from .sums import Sums

__all__ = ["moved", "reference_at", "shortened", "within_reach"]


def shortened(xpos: XPos, block: int) -> int:
    """Tokens to a block: factors that grow from one end to the other stay far from overflow."""
    return max(1, min(block, _reach(xpos)))


def within_reach(xpos: XPos, places: Places) -> ResolvedPositions:
    """Positions, with hidden tokens that may be anywhere taken near to the others."""
    (values, first), line, _ = places
    if values is None or line is None:
        return values, first
    reach = _reach(xpos)
    return torch.clamp(values, line - reach, line + reach), 0


def reference_at(xpos: XPos, places: Places, start: int, k: Tensor) -> int | Tensor:
    """The reference of the block of keys that begins at token ``start``: an int, or one per row."""
    (_, first), line, _ = places
    batch, length = k.shape[0], k.shape[2]
    if line is not None:
        near = xpos.reference_near(line[:, start : start + length])  # [1] or [B]
    elif torch.compiler.is_compiling():  # as a tensor: the graph then fits other lengths as well
        first = first + start
        near = xpos.reference_near(torch.arange(first, first + length, device=k.device))
    else:  # what it says of numbers that are known
        return xpos.reference_for(first + start + (length - 1) // 2)
    return torch.as_tensor(near).expand(batch)


def _reach(xpos: XPos) -> int:
    return xpos.span(torch.float32) // 4


def moved(
    xpos: XPos,
    sums: Sums,
    old: int | Tensor | None,
    new: int | Tensor,
    feature_map: FeatureMap,
) -> Sums:
    """Sums relative to another reference."""
    numerator, denominator = sums
    if old is None or (isinstance(old, int) and isinstance(new, int) and old == new):
        return sums
    width = xpos.config.head_dim
    old, new = (torch.as_tensor(r, device=numerator.device) for r in (old, new))

    def rescaled(rows: Tensor) -> Tensor:  # [B, G, F, Dv]; a last row of ones stays
        turned = xpos.rescale(rows[:, :, :width].mT, old=old, new=new).mT
        return torch.cat((turned, rows[:, :, width:]), 2)

    if feature_map == "cosine":  # whose denominator is rotated too
        denominator = rescaled(denominator.unsqueeze(-1)).squeeze(-1)
    return Sums(rescaled(numerator), denominator)
