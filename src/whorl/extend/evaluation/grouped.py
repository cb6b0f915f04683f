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
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention [1, T, H, D] of a text; what is not one text with a mask is left to "sdpa"."""
    heads, key_heads = query.shape[1], key.shape[1]
    others = [
        name for name in ("softcap", "position_bias", "s_aux") if options.get(name) is not None
    ]
    if attention_mask is None or len(query) > 1 or heads == key_heads or others:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        more = {"dropout": dropout, "scaling": scaling, **options}
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **more
        )
        return found
    groups = heads // key_heads
    q = query.view(key_heads, groups, *query.shape[2:])  # [Hk, H / Hk, T, D]
    k, v = (each[0].unsqueeze(1).expand(-1, groups, -1, -1) for each in (key, value))
    out = F.scaled_dot_product_attention(q, k, v, attention_mask, dropout, scale=scaling)
    return out.flatten(0, 1).transpose(0, 1)[None].contiguous(), None
