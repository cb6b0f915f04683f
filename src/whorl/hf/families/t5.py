"""T5, mT5 and UMT5: a trained bias for each head and bucket of distances.

transformers builds the bias as a T x S matrix and hands it from the first layer to the others; in
UMT5 every layer has its own. Here each layer reads the trained numbers themselves. Attention to the
encoder's tokens has no bias and is left alone.

Its norm squares, averages and multiplies copies of the tokens in transformers. Here, without
gradients, it takes half the time, which is a hundredth of that of 512 tokens.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683; Chung et al. 2023 (UMT5),
https://arxiv.org/abs/2304.09151.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, PreTrainedModel
from transformers.models.mt5.modeling_mt5 import (
    MT5Attention,
    MT5LayerNorm,
    MT5LayerSelfAttention,
    MT5Stack,
)
from transformers.models.t5.modeling_t5 import (
    T5Attention,
    T5LayerNorm,
    T5LayerSelfAttention,
    T5Stack,
)
from transformers.models.umt5.modeling_umt5 import (
    UMT5Attention,
    UMT5LayerNorm,
    UMT5LayerSelfAttention,
    UMT5Stack,
)

from whorl.encodings import T5Bias
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, read_length, refuse_rotary_options

__all__ = ["FAMILY"]


def _attend(
    layer: Any, x: Tensor, mask: Tensor | None, cache: Any, weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Self-attention of a changed layer.

    Its ``bias_owner`` is the layer that holds the trained numbers, in T5 the first one and in UMT5
    each itself; None if the encoding is not the model's own.
    """
    shape = (*x.shape[:-1], layer.n_heads, layer.key_value_proj_dim)
    q, k, v = (part(x).view(shape).transpose(1, 2) for part in (layer.q, layer.k, layer.v))
    offset = None
    if cache is not None:
        cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        offset = read_length(cache, layer.layer_idx)
        k, v = cache.update(k, v, layer.layer_idx)
    encoding, owner = layer.whorl_encoding, layer.bias_owner
    if owner is not None:  # asked every time, because weights and modules may be replaced
        encoding = encoding.with_parameters(weight=owner.relative_attention_bias.weight)
    out, found = attend_tokens(
        q,
        k,
        v,
        encoding,
        mask,
        causal=layer.is_decoder,
        offset=offset,
        scale=layer.scaling,
        dropout=layer.dropout if layer.training else 0.0,
        weights=weights,
    )
    return layer.o(out.transpose(1, 2).flatten(2)), found


class WhorlT5Attention(T5Attention):
    """T5's self-attention without a matrix of scores or biases."""

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        position_bias: Tensor | None = None,
        past_key_values: Any = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, None, Tensor | None]:
        out, weights = _attend(self, hidden_states, mask, past_key_values, output_attentions)
        return out, None, weights  # no bias for the next layer: it reads its own


class WhorlMT5Attention(WhorlT5Attention, MT5Attention):
    """mT5's self-attention, which is that of T5."""


class WhorlUMT5Attention(UMT5Attention):
    """UMT5's self-attention without a matrix of scores or biases."""

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        past_key_values: Any = None,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        return _attend(self, hidden_states, attention_mask, past_key_values, output_attentions)


class SingleCopyNorm:
    """T5's norm, x / sqrt(mean(x^2) + eps) x weight, with one copy of the tokens."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not x.dtype == self.weight.dtype == torch.float32:
            found: Tensor = super().forward(x)  # type: ignore[misc]
            return found
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = (length.square_() / x.shape[-1] + self.variance_epsilon).rsqrt_()
        out: Tensor = (x * factor).mul_(self.weight)
        return out


class WhorlT5LayerNorm(SingleCopyNorm, T5LayerNorm):
    """T5's norm."""


class WhorlMT5LayerNorm(SingleCopyNorm, MT5LayerNorm):
    """mT5's norm, which is that of T5."""


class WhorlUMT5LayerNorm(SingleCopyNorm, UMT5LayerNorm):
    """UMT5's norm, which is that of T5."""


_STACKS = (T5Stack, MT5Stack, UMT5Stack)
_LAYERS = (T5LayerSelfAttention, MT5LayerSelfAttention, UMT5LayerSelfAttention)
_CLASSES: dict[type, type[nn.Module]] = {
    T5Attention: WhorlT5Attention,
    MT5Attention: WhorlMT5Attention,
    UMT5Attention: WhorlUMT5Attention,
}
_NORMS: dict[type, type[nn.Module]] = {
    T5LayerNorm: WhorlT5LayerNorm,
    MT5LayerNorm: WhorlMT5LayerNorm,
    UMT5LayerNorm: WhorlUMT5LayerNorm,
}


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "T5")
    changes: list[Change] = []
    for stack in (module for module in model.modules() if isinstance(module, _STACKS)):
        encoding, owner = options.encoding, None
        for module in (module for module in stack.modules() if isinstance(module, _LAYERS)):
            layer = module.SelfAttention
            if type(layer) not in _CLASSES:
                continue
            if options.encoding is None and layer.has_relative_attention_bias:
                encoding, owner = _build_bias(layer), layer
            attributes = {"whorl_encoding": encoding, "bias_owner": owner}
            changes.append(ClassChange(layer, _CLASSES[type(layer)], attributes))
    if changes:  # without self-attention there is nothing to install
        norms = (module for module in model.modules() if type(module) in _NORMS)
        changes += [ClassChange(norm, _NORMS[type(norm)]) for norm in norms]
    return changes


def _build_bias(layer: Any) -> T5Bias:
    """The encoding of a layer; its numbers come from the model in each call."""
    return T5Bias(
        layer.n_heads,
        num_buckets=layer.relative_attention_num_buckets,
        max_distance=layer.relative_attention_max_distance,
        direction="causal" if layer.is_decoder else "bidirectional",
    )


FAMILY = ModelFamily("T5", _plan)
