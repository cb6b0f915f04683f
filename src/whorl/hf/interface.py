"""What transformers calls while a model runs: whorl's mask function and attention function.

transformers asks the mask function once per forward pass and hands the result to every layer:

    None                no padding: the rule of the layer, causal or all keys, says everything
    bool [B, 1, 1, S]   False for padding; the rule of the layer says the rest
    bool [B, 1, T, S]   everything: static caches, windows, packed rows

The first two cost no T x S matrix. With T = 1 the last two have the same shape and say the same.
Masks of numbers that a user passes are added to the scores, as transformers does.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    prepare_padding_mask,
    sdpa_mask,
)

from whorl._support.tensors import has_values

from .tokens import attend_tokens

__all__ = ["NAME", "attend", "build_mask", "register_interface"]

#: The attention implementation of installed models, as ``config._attn_implementation`` has it.
NAME = "whorl"


def register_interface() -> None:
    """Make whorl known to transformers as an attention implementation."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, build_mask)


def build_mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    config: Any = None,
    **options: Any,
) -> Tensor | None:
    """The mask of one forward pass, as small as the rule and the cache allow."""
    both_ways = mask_function is bidirectional_mask_function
    known = both_ways or mask_function is causal_mask_function
    # The queries are the last tokens of the keys, unless a cache has room for more.
    growing = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    if not known or not (both_ways or growing):
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        mask: Tensor | None = sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            **options,
        )
        return mask
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length].bool()
        if has_values(padding) and bool(padding.all()):
            padding = None
    if padding is None:
        if getattr(config, "model_type", "") != "mpt":
            return None
        # MPT calls a method of the mask: it must have one.
        padding = torch.ones(1, kv_length, dtype=torch.bool, device=options.get("device"))
    found: Tensor = padding[:, None, None, :]
    return found


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for models that call ``AttentionInterface``: [B, T, H, D], and the weights or None.

    The encoding is that of the module, if ``install`` gave it one.
    """
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    encoding = getattr(module, "whorl_encoding", None)
    whole = attention_mask is not None and (
        attention_mask.is_floating_point() or attention_mask.shape[2] != 1
    )
    one = query.shape[2] == 1 or attention_mask is None  # no rule to be added to the mask
    if encoding is None and not output_attentions and (one or whole or position_bias is not None):
        # There is no matrix to be saved: another way gains nothing.
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=causal,
            position_bias=position_bias,
            **options,
        )
        return found
    if position_bias is not None:
        added = position_bias.new_zeros(()) if attention_mask is None else attention_mask
        if added.dtype == torch.bool:
            added = torch.where(added, 0.0, -math.inf).to(position_bias.dtype)
        attention_mask = position_bias + added
    offset = None
    if encoding is not None and causal and whole and attention_mask is not None:
        offset = _find_offset(attention_mask, query.shape[2])
    out, weights = attend_tokens(
        query,
        key,
        value,
        encoding,
        attention_mask,
        causal=causal,
        offset=offset,
        scale=scaling,
        dropout=dropout,
        weights=output_attentions,
    )
    return out.transpose(1, 2).contiguous(), weights


def _find_offset(mask: Tensor, T: int) -> Tensor:
    """Position of the first query, from a causal mask [B, 1, T, S]: each query sees itself last.

    A row that ends with padding sees less, so that the longest row of the batch decides.
    """
    visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    order = torch.arange(mask.shape[3], device=mask.device)
    return (visible[:, :, -1] * order).amax() - (T - 1)
