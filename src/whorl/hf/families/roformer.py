"""RoFormer: a rotation of whole heads, in pairs of neighbours; of the values too, if asked for.

In transformers its attention builds a matrix of scores; here it does not. Its angles are exact
(float64) there as well, so that ``precision`` changes nothing.

Su et al. 2021, https://arxiv.org/abs/2104.09864.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import EncoderDecoderCache, PreTrainedModel
from transformers.models.roformer.modeling_roformer import (
    RoFormerSelfAttention,
    RoFormerSinusoidalPositionalEmbedding,
)

from whorl.encodings import Encoding, RoPE
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, read_length, refuse_unrotated_keys

__all__ = ["FAMILY"]


class WhorlRoFormerSelfAttention(RoFormerSelfAttention):
    """RoFormer's attention without a matrix of scores.

    whorl_rotation: rotates queries and keys before they are cached; None where attention applies
    an encoding to those in the cache.
    """

    whorl_encoding: Encoding | None
    whorl_rotation: RoPE | None

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        sinusoidal_pos: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        past_key_values: Any = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        shape = (self.num_attention_heads, self.attention_head_size)
        q, k, v = (
            project(hidden_states).unflatten(-1, shape).transpose(1, 2)  # [B, H, T, D]
            for project in (self.query, self.key, self.value)
        )
        cache = past_key_values
        offset: int | Tensor = 0
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        if cache is not None:
            offset = read_length(cache, self.layer_idx)
        if self.whorl_rotation is not None:
            q, k = self.whorl_rotation(q, k, offset=offset)
            v = self.whorl_rotation.rotate(v, offset=offset) if self.rotary_value else v
        if cache is not None:
            k, v = cache.update(k, v, self.layer_idx)
        positions = None
        if cache is not None and self.whorl_encoding is not None:  # padding counts in RoFormer
            positions = torch.arange(q.shape[2], device=q.device)[None] + offset
        out, weights = attend_tokens(
            q,
            k,
            v,
            self.whorl_encoding,
            attention_mask,
            causal=self.is_decoder,
            positions=positions,
            offset=offset if cache is not None else None,
            scale=self.attention_head_size**-0.5,
            dropout=self.dropout.p if self.training else 0.0,
            weights=output_attentions,
        )
        return out.transpose(1, 2).flatten(2), weights


class WhorlRoFormerPositions(RoFormerSinusoidalPositionalEmbedding):
    """Gives the row of position 0 for any, so that a stream may be longer than the table.

    Attention does not use it.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        first: Tensor = self.weight[:1]
        return first


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    if model.config.add_cross_attention:
        raise ValueError(
            f"whorl.hf.install: {type(model).__name__} attends to another model's tokens"
            " (add_cross_attention), which whorl does not support for RoFormer."
        )
    if model.config.rotary_value:
        refuse_unrotated_keys(options, "RoFormer with rotary_value", "which rotates values too")
    _check_tables(model)
    changes: list[Change] = []
    for module in model.modules():
        if type(module) is RoFormerSelfAttention:
            attributes = _find_encodings(module.attention_head_size, options)
            changes.append(ClassChange(module, WhorlRoFormerSelfAttention, attributes))
        elif type(module) is RoFormerSinusoidalPositionalEmbedding and options.keys == "unrotated":
            changes.append(ClassChange(module, WhorlRoFormerPositions))
    return changes


def _find_encodings(head_dim: int, options: InstallOptions) -> dict[str, Encoding | None]:
    """What attention applies to the keys in the cache, and what rotates them before."""
    if options.encoding is not None:
        return {"whorl_encoding": options.encoding, "whorl_rotation": None}
    rotation = RoPE(head_dim, layout="interleaved", scaling=options.scaling, impl=options.impl)
    if options.keys == "unrotated":
        return {"whorl_encoding": rotation, "whorl_rotation": None}
    return {"whorl_encoding": None, "whorl_rotation": rotation}


def _check_tables(model: PreTrainedModel) -> None:
    """Refuse a model whose table of sin and cos, which is saved with it, is not RoPE's."""
    for module in model.modules():
        if isinstance(module, RoFormerSinusoidalPositionalEmbedding):
            rows, channels = module.weight.shape
            if module.weight.is_meta:
                raise ValueError(
                    f"whorl.hf.install: {type(model).__name__} must be loaded, because its table of"
                    " positions is looked at; it is on the meta device. Load the weights before."
                )
            cos, sin = RoPE(channels).tables(torch.arange(rows))
            expected = torch.cat((sin, cos), -1).to(module.weight)
            if not torch.allclose(module.weight, expected, atol=1e-3):
                raise ValueError(
                    f"whorl.hf.install: the table of positions of {type(model).__name__} must be"
                    " that of RoPE with base 10000; these weights have another one."
                )


FAMILY = ModelFamily("RoFormer", _plan)
