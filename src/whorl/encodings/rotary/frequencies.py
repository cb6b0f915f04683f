"""The frequencies of a rotation at a context length."""

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.scaling import Frequencies, Ladder, Scaling

from .checks import check_context

__all__ = ["scale_frequencies"]


def scale_frequencies(
    ladder: Ladder,
    scaling: Scaling | None,
    context_length: int | Tensor | None,
    where: str,
    default_short: bool,
) -> Frequencies:
    """Frequencies after scaling, in the dtype of ``ladder``.

    default_short: whether None, for a scaling that follows the context length, stands for a short
    context; it is refused otherwise.
    """
    check_context(context_length, where)
    if scaling is None:
        return Frequencies(ladder.inv_freq)
    if scaling.follows_length and context_length is None and not default_short:
        raise ValueError(
            f"{where}: {quote(scaling)} follows the current length; pass context_length=, the"
            " length that the keys were rotated for."
        )
    if torch.compiler.is_compiling() and isinstance(context_length, (int, torch.SymInt)):
        context_length = torch.full((), context_length)  # else the graph fits one length
    scaled: Frequencies = scaling.frequencies(ladder, context_length)
    if isinstance(context_length, Tensor) and scaling.follows_length:
        return _use_short_frequencies(scaled, scaling, ladder, context_length)
    return scaled


def _use_short_frequencies(
    scaled: Frequencies, scaling: Scaling, ladder: Ladder, context_length: Tensor
) -> Frequencies:
    """``scaled``, but with exactly the frequencies of a short context in rows that have one."""
    if scaling.short_context_limit is None:
        return scaled
    short = scaling.frequencies(ladder, None)
    is_short = context_length <= scaling.short_context_limit
    short_inv_freq = short.inv_freq.to(is_short.device)
    inv_freq = torch.where(is_short.unsqueeze(-1), short_inv_freq, scaled.inv_freq)
    scale = scaled.attention_scale
    if isinstance(scale, Tensor):
        scale = torch.where(is_short, torch.full_like(scale, float(short.attention_scale)), scale)
    return Frequencies(inv_freq, scale)
