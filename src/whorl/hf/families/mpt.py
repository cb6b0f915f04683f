"""MPT: ALiBi, with keys at fixed places of a bias for the longest input.

transformers uses a largest bias of 8 whatever ``attn_config.alibi_bias_max`` says, and fails past
``max_seq_len``. The first is kept, because models must give the same outputs; longer inputs work.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.mpt.modeling_mpt import MptAttention, MptBlock, MptModel

from whorl.encodings import ALiBi, Encoding
from whorl.hf.caches.unrotated import PendingKeys
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, read_length, refuse_rotary_options

__all__ = ["FAMILY"]


class WhorlMptAttention(MptAttention):
    """MPT's attention without a matrix of scores."""

    whorl_encoding: Encoding

    def forward(
        self,
        hidden_states: Tensor,
        position_bias: Tensor,
        past_key_values: Any = None,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        q, k, v = mixed.unflatten(-1, (3, self.n_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        offset = positions = None
        if past_key_values is not None:
            offset = read_length(past_key_values, self.layer_idx)
            k, v = past_key_values.update(k, v, self.layer_idx)
            if isinstance(k, PendingKeys):  # a cache of whorl is to count padding, as MPT does
                positions = torch.arange(q.shape[2], device=q.device)[None] + offset
        out, weights = attend_tokens(
            q,
            k,
            v,
            self.whorl_encoding,
            _find_visible(attention_mask),
            causal=True,
            offset=offset,
            scale=self.softmax_scale,
            dropout=self.attn_dropout_p if self.training else 0.0,
            weights=output_attentions,
            positions=positions,
        )
        return self.out_proj(out.transpose(1, 2).flatten(2)), weights


class WhorlMptBlock(MptBlock):
    """A layer of MPT that tells its attention when weights are wanted."""

    def forward(
        self,
        hidden_states: Tensor,
        position_bias: Tensor,
        attention_mask: Tensor | None,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        mixed, weights = self.attn(
            self.norm_1(hidden_states),
            position_bias,
            layer_past,
            attention_mask,
            output_attentions=output_attentions,
        )
        mixed = self.resid_attn_dropout(mixed) + hidden_states
        return self.ffn(self.norm_2(mixed), mixed), weights


def _find_visible(mask: Tensor | None) -> Tensor | None:
    """The mask with True for visible keys; None if all are, which a stride of 0 says."""
    if mask is None or (mask.dim() == 2 and mask.stride(1) == 0):
        return None
    return ~mask


def _skip_bias(num_heads: int, length: int, *, device: torch.device | None = None) -> Tensor:
    """Nothing, in the place of the bias for the longest input that every call would make."""
    return torch.empty(0, device=device)


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "MPT")
    encoding = options.encoding or ALiBi(model.config.n_heads)
    attributes = {"whorl_encoding": encoding}
    changes: list[Change] = []
    for module in model.modules():
        if type(module) is MptAttention:
            changes.append(ClassChange(module, WhorlMptAttention, attributes))
        elif type(module) is MptBlock:
            changes.append(ClassChange(module, WhorlMptBlock))
        elif type(module) is MptModel:  # its class stays, which is saved with the model
            changes.append(ClassChange(module, MptModel, {"build_mpt_alibi_tensor": _skip_bias}))
    return changes


FAMILY = ModelFamily("MPT", _plan)
