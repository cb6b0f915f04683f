"""Attention of transformers whose key heads are not copied for the queries that share them.

With a mask, and chunks have one, its own "sdpa" repeats keys and values for every query head before
it calls torch: with 8 heads over 2 key heads that is four times the cache of a layer, twice. Here
each key head is a row of the batch, which its queries share without a copy.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["share_key_heads"]

_NAME = "whorl_grouped"


def share_key_heads(model: Any) -> None:
    """Let a model of transformers share key heads, if it computes attention by "sdpa"."""
    config = getattr(model, "config", None)
    if getattr(config, "_attn_implementation", None) != "sdpa":
        return
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)


def _attend(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention [1, T, H, D] of a text; what is not one text with a mask is left to "sdpa"."""
    heads, key_heads = q.shape[1], k.shape[1]
    others = any(options.get(name) is not None for name in ("softcap", "position_bias", "s_aux"))
    if mask is None or len(q) > 1 or heads == key_heads or others:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        found: tuple[Tensor, None] = sdpa_attention_forward(module, q, k, v, mask, **options)
        return found
    q = q.view(key_heads, heads // key_heads, *q.shape[2:])  # [Hk, H / Hk, T, D]
    k, v = (each[0].unsqueeze(1).expand(-1, q.shape[1], -1, -1) for each in (k, v))
    dropout, scale = options.get("dropout", 0.0), options.get("scaling")
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    return out.flatten(0, 1).transpose(0, 1)[None].contiguous(), None
