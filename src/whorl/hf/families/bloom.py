"""BLOOM: ALiBi (Le Scao et al. 2022, https://arxiv.org/abs/2211.05100, section 3.3.1).

transformers adds slope x key position to a T x S matrix of scores. That differs from ALiBi's
-slope x distance by a constant per query, which softmax does not see. Positions count the tokens
that are not padding.

Its GELU takes eight passes over the widest tensors of the model in transformers, and one here:
at 4096 tokens a sixth of the time of a layer, once no matrix of scores is built.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.bloom.modeling_bloom import BloomAttention, BloomGelu, dropout_add

from whorl.encodings import ALiBi, Encoding
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, read_length, refuse_rotary_options

__all__ = ["FAMILY"]


class WhorlBloomAttention(BloomAttention):
    """BLOOM's attention without a matrix of scores."""

    whorl_encoding: Encoding

    def forward(
        self,
        hidden_states: Tensor,
        residual: Tensor,
        alibi: Tensor,
        attention_mask: Tensor | None,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        q, k, v = self._reshape(self.query_key_value(hidden_states))  # [B, H, T, D]
        offset = None
        if layer_past is not None:
            offset = read_length(layer_past, self.layer_idx)
            k, v = layer_past.update(k, v, self.layer_idx)
        out, weights = attend_tokens(
            q,
            k,
            v,
            self.whorl_encoding,
            attention_mask,
            causal=True,
            offset=offset,
            dropout=self.attention_dropout.p if self.training else 0.0,
            weights=output_attentions,
            skip_padding=True,
        )
        out = self.dense(out.transpose(1, 2).flatten(2))
        return dropout_add(out, residual, self.hidden_dropout, self.training), weights


class WhorlBloomGelu(BloomGelu):
    """BLOOM's GELU, 0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), in one pass."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "BLOOM")
    if model.config.slow_but_exact and model.config.pretraining_tp > 1:
        raise ValueError(
            "whorl.hf.install: slow_but_exact must be False in the config, because it repeats the"
            " rounding and the missing bias of a training on several devices; got True."
        )
    encoding = options.encoding or ALiBi(model.config.n_head)
    modules = list(model.modules())
    changes: list[Change] = [
        ClassChange(module, WhorlBloomAttention, {"whorl_encoding": encoding})
        for module in modules
        if type(module) is BloomAttention
    ]
    if changes:  # without attention there is nothing to install
        changes += [ClassChange(m, WhorlBloomGelu) for m in modules if type(m) is BloomGelu]
    return changes


FAMILY = ModelFamily("BLOOM", _plan)
