"""Falcon: a rotation, or ALiBi from rounded slopes.

With ALiBi transformers multiplies slopes in bfloat16 by absolute positions and adds the product, in
bfloat16 too, to the scores before the softmax scale. So the bias of a key depends on its position
alone, and is off by up to 1/256 of itself. Models give the same outputs as before, so this bias is
used as it is, one number per head and key. ``encoding=ALiBi(heads, slope_scale=D ** -0.5)`` is the
exact one. Weights that are returned are those of attention itself, where transformers computes
others, with the bias added twice.
"""

import math
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.falcon.modeling_falcon import FalconAttention, apply_rotary_pos_emb

from whorl.configs import read_config
from whorl.encodings import Encoding
from whorl.encodings.base import Config
from whorl.hf.caches.unrotated import UnrotatedCache
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, read_length, refuse_rotary_options
from .rotary import build_cached, change_rotation, refuse_several_axes

__all__ = ["FAMILY"]


class KeyBias(Encoding):
    """A bias [B, H, S] that depends on the key alone, added before the softmax scale."""

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.config, self.bias = Config(), bias

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        return self.bias[..., key_positions].unsqueeze(2)  # [B, H, 1, S]


class WhorlFalconAttention(FalconAttention):
    """Falcon's attention without a matrix of scores.

    whorl_encoding: None for the positions of the model.
    """

    whorl_encoding: Encoding | None

    def forward(
        self,
        hidden_states: Tensor,
        alibi: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        parts = self._split_heads(self.query_key_value(hidden_states))
        q, k, v = (part.transpose(1, 2) for part in parts)  # [B, H or G, T, D]
        encoding, mask, offset = self.whorl_encoding, attention_mask, None
        if alibi is None:
            assert position_embeddings is not None
            q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        elif encoding is None:
            _refuse_cache(layer_past)
            encoding = KeyBias(alibi.reshape(q.shape[0], self.num_heads, -1))
        if alibi is not None and mask is not None and mask.is_floating_point():
            mask = mask > torch.finfo(mask.dtype).min  # the model has added the bias to it
        if layer_past is not None:
            offset = read_length(layer_past, self.layer_idx)
            k, v = layer_past.update(k, v, self.layer_idx)
        drops = self.training and alibi is not None  # as transformers does it
        out, weights = attend_tokens(
            q,
            k,
            v,
            encoding,
            mask,
            causal=True,
            offset=offset,
            scale=1 / math.sqrt(self.head_dim),
            dropout=self.attention_dropout.p if drops else 0.0,
            weights=output_attentions,
            skip_padding=alibi is not None and self.whorl_encoding is not None,
            positions=position_ids if self.whorl_encoding is not None else None,
        )
        return self.dense(out.transpose(1, 2).flatten(2)), weights


def _refuse_cache(cache: Any) -> None:
    """Refuse a cache of whorl for a bias that is known by the position in the text alone."""
    if isinstance(cache, UnrotatedCache):
        raise ValueError(
            f"whorl.hf: {type(cache).__name__} counts positions itself, and transformers' rounded"
            " bias of Falcon cannot follow; install the exact one for it:"
            " whorl.hf.install(model, whorl.ALiBi(heads, slope_scale=head_dim ** -0.5))."
        )


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    encoding = options.encoding
    if model.config.alibi:
        refuse_rotary_options(options, "Falcon with ALiBi")
    elif encoding is None and options.keys == "unrotated":
        rotation = read_config(model.config).group().rotation
        assert rotation is not None
        encoding = build_cached(rotation, options)
    changes: list[Change] = [
        ClassChange(module, WhorlFalconAttention, {"whorl_encoding": encoding})
        for module in model.modules()
        if type(module) is FalconAttention
    ]
    if model.config.alibi or not changes:
        return changes
    refuse_several_axes(encoding)
    return changes + change_rotation(model, options)


FAMILY = ModelFamily("Falcon", _plan)
