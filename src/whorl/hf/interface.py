"""What transformers calls while a model runs: whorl's mask function and attention function.

transformers asks the mask function once per forward pass and hands the result to every layer:

    None                no padding: the rule of the layer says everything: causal or all keys, and
                        its window
    bool [B, S]         False for padding; the rule of the layer says the rest
    bool [B, 1, T, S]   everything: static caches, packed rows, masks of the caller

The first two cost no T x S matrix. Masks of numbers that a caller passes are added to the scores,
as transformers does. MPT's masks are True for hidden keys, as its own are, and one number for all
keys, with a stride of 0, if none is hidden.
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
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from whorl._support.tensors import has_values
from whorl.encodings import Encoding

from .caches.unrotated import PendingKeys
from .positions import recall_positions
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
    local_size: int | None = None,
    **options: Any,
) -> Tensor | None:
    """The mask of one forward pass, as small as the rule and the cache allow."""
    both_ways = mask_function is bidirectional_mask_function
    known = both_ways or mask_function is causal_mask_function
    if local_size is not None and not torch.compiler.is_compiling():
        rule = _describe(mask_function)
        both_ways = rule == _describe(sliding_window_bidirectional_mask_function(local_size))
        known = both_ways or rule == _describe(sliding_window_causal_mask_function(local_size))
    # The queries are the last tokens of the keys, unless a cache has room for more.
    growing = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    # A decoder whose config says so attends both ways: its layers would not know.
    plain = getattr(config, "is_causal", True) if both_ways else growing
    kind = getattr(config, "model_type", "")
    if kind in ("bloom", "mpt") and both_ways:
        raise ValueError(
            f"config.is_causal must be True for {kind} with whorl installed: the bias of"
            " transformers grows with the position, so that a query that sees later keys would"
            " prefer the farthest. Call whorl.hf.uninstall(model) for what transformers does."
        )
    padding = None
    if known and plain:
        padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None:
            padding = padding[:, kv_offset : kv_offset + kv_length].bool()
            if has_values(padding) and bool(padding.all()):
                padding = None
    else:
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        padding = sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            local_size=local_size,
            **options,
        )
    if kind != "mpt":
        return padding
    if padding is None:  # MPT calls a method of the mask, so that it needs one
        nothing = torch.zeros(1, 1, dtype=torch.bool, device=options.get("device"))
        return nothing.expand(1, kv_length)
    hidden: Tensor = ~padding
    return hidden


def _describe(rule: Any) -> Any:
    """What a mask function does, such that equal functions give equal answers.

    transformers makes a new function for every mask: its code, and what that reads.
    """
    if isinstance(rule, tuple):
        return tuple(_describe(part) for part in rule)
    if not hasattr(rule, "__code__"):
        return rule if isinstance(rule, int) else id(rule)
    return rule.__code__, *(_describe(cell.cell_contents) for cell in rule.__closure__ or ())


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
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for models that call ``AttentionInterface``: [B, T, H, D], and the weights or None.

    The encoding is that of the module, if ``install`` gave it one. s_aux: ``sink_logits`` of
    ``whorl.attention``, as gpt-oss has them.
    """
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    encoding, mask = getattr(module, "whorl_encoding", None), attention_mask
    pending = isinstance(key, PendingKeys)
    T, S = query.shape[2], 0 if pending else key.shape[2]
    whole = mask is not None and mask.dim() == 4
    window = None if whole or sliding_window is None or sliding_window >= S else sliding_window
    if not pending and sliding_window is not None and sliding_window <= S and T < S:
        _refuse_following_length(encoding)
    positions = None if encoding is None else options.get("position_ids")
    if encoding is not None and positions is None and (pending or T < S):
        positions = recall_positions(T)
    # No matrix is saved if there is one already, or if one token sees all, or a square of tokens.
    simple = window is None and (T == 1 or (mask is None and (T == S or not causal)))
    is_plain = encoding is None and s_aux is None and softcap is None
    is_plain = is_plain and not (output_attentions or pending)
    if is_plain and (simple or whole or position_bias is not None):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            mask if mask is None or whole else mask[:, None, None],
            dropout=dropout,
            scaling=scaling,
            is_causal=causal,
            position_bias=position_bias,
            **options,
        )
        return found
    if position_bias is not None:
        mask = _add_mask(position_bias, mask)
    out, weights = attend_tokens(
        query,
        key,
        value,
        encoding,
        mask,
        causal=causal,
        scale=scaling,
        dropout=dropout,
        weights=output_attentions,
        window=sliding_window if pending else window,
        sink_logits=s_aux,
        softcap=softcap,
        positions=positions,
        layer_window=sliding_window,
    )
    return out.transpose(1, 2).contiguous(), weights


def _refuse_following_length(encoding: Encoding | None) -> None:
    """Refuse frequencies that follow the length in a layer whose cache may have dropped tokens."""
    part = None if encoding is None else encoding.rotating_part
    scaling = None if part is None else getattr(part.config, "scaling", None)
    if scaling is not None and scaling.follows_length:
        raise ValueError(
            f"whorl.hf: {scaling} needs the length of the text, which a cache does not know after"
            " its window has moved; pass past_key_values=whorl.hf.UnrotatedCache()."
        )


def _add_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias [B, H, T, S] with a mask of any kind added to it."""
    if mask is None:
        return bias
    mask = mask if mask.dim() == 4 else mask[:, None, None]
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -math.inf).to(bias.dtype)
    return bias + mask


register_interface()  # here, so that a pickled model that is loaded again has it too
