"""MPNet: T5's bias by buckets of distance, one for all layers, beside learned positions.

transformers always uses 32 buckets up to a distance of 128, whatever the config says, and so does
this. Song et al. 2020, https://arxiv.org/abs/2004.09297.
"""

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from whorl.encodings import Encoding, T5Bias
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, refuse_rotary_options

__all__ = ["FAMILY"]

_BUCKETS = 32


class WhorlMPNetEncoder(MPNetEncoder):
    """MPNet's encoder without a matrix of biases."""

    def compute_position_bias(self, x: Tensor, *args: Any, **kwargs: Any) -> None:
        return None


class WhorlMPNetSelfAttention(MPNetSelfAttention):
    """MPNet's attention without a matrix of scores.

    bias_owner: the encoder, which holds the trained numbers; None for an encoding of the caller.
    """

    whorl_encoding: Encoding
    bias_owner: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, ...]:
        shape = (self.num_attention_heads, self.attention_head_size)
        q, k, v = (
            project(hidden_states).unflatten(-1, shape).transpose(1, 2)  # [B, H, T, D]
            for project in (self.q, self.k, self.v)
        )
        encoding = self.whorl_encoding
        if self.bias_owner is not None:  # asked every time, because it may be replaced
            weight = self.bias_owner.relative_attention_bias.weight
            encoding = encoding.with_parameters(weight=weight)
        out, weights = attend_tokens(
            q,
            k,
            v,
            encoding,
            attention_mask,
            causal=False,
            scale=self.attention_head_size**-0.5,
            dropout=self.dropout.p if self.training else 0.0,
            weights=output_attentions,
        )
        out = self.o(out.transpose(1, 2).flatten(2))
        return (out,) if weights is None else (out, weights)


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "MPNet")
    changes: list[Change] = []
    for encoder in (module for module in model.modules() if type(module) is MPNetEncoder):
        buckets = encoder.relative_attention_bias.num_embeddings
        if buckets != _BUCKETS:
            raise ValueError(
                f"whorl.hf.install: relative_attention_num_buckets must be {_BUCKETS} for MPNet,"
                f" because transformers uses no other number; got {buckets}."
            )
        encoding, owner = options.encoding, None
        if encoding is None:
            owner = encoder
            encoding = T5Bias(encoder.n_heads, num_buckets=_BUCKETS, scale=None)
        attributes = {"whorl_encoding": encoding, "bias_owner": owner}
        changes.append(ClassChange(encoder, WhorlMPNetEncoder))
        changes += [
            ClassChange(module, WhorlMPNetSelfAttention, attributes)
            for module in encoder.modules()
            if type(module) is MPNetSelfAttention
        ]
    return changes


FAMILY = ModelFamily("MPNet", _plan)
