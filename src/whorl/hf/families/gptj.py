"""GPT-J: a rotation of the first channels of a head, in pairs of neighbours.

In transformers its attention builds a matrix of scores; here it does not. Rotation stays with the
model, which reads cos and sin from a table for max_position_embeddings tokens and fails past it.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.gptj.modeling_gptj import GPTJAttention

from whorl.configs import read_config
from whorl.encodings import Encoding, RoPE
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily

__all__ = ["FAMILY"]


class WhorlGPTJAttention(GPTJAttention):
    """GPT-J's attention without a matrix of scores.

    whorl_table: sin and cos [1, tokens, channels] in place of the model's, or None; one row for all
    tokens if whorl_encoding rotates.
    """

    whorl_encoding: Encoding | None
    whorl_table: Tensor | None
    #: Set for one call.
    returns_weights: bool

    def forward(
        self,
        *args: Any,
        position_ids: Tensor,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> Any:
        object.__setattr__(self, "returns_weights", bool(output_attentions))
        if self.whorl_encoding is not None:  # its table has one row, for tokens anywhere
            position_ids = torch.zeros_like(position_ids)
        kwargs |= {"position_ids": position_ids, "output_attentions": output_attentions}
        return super().forward(*args, **kwargs)

    def _get_embed_positions(self, position_ids: Tensor) -> Tensor:
        if self.whorl_table is None:
            found: Tensor = super()._get_embed_positions(position_ids)
            return found
        return self.whorl_table.to(position_ids.device).expand(position_ids.shape[0], -1, -1)

    def _attn(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return attend_tokens(
            query,
            key,
            value,
            self.whorl_encoding,
            attention_mask,
            causal=True,
            scale=1 / self.scale_attn,
            dropout=self.attn_dropout.p if self.training else 0.0,
            weights=self.returns_weights,
        )


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    layers = [module for module in model.modules() if type(module) is GPTJAttention]
    table = _build_table(layers[0], options) if layers else None
    attributes = {
        "whorl_encoding": _find_encoding(model, options),
        "whorl_table": table,
        "returns_weights": False,
    }
    return [ClassChange(layer, WhorlGPTJAttention, attributes) for layer in layers]


def _find_encoding(model: PreTrainedModel, options: InstallOptions) -> Encoding | None:
    """What attention applies to queries and keys; None where the model rotates them itself."""
    if options.encoding is not None or options.keys == "rotated":
        return options.encoding
    how: dict[str, Any] = {"precision": options.precision, "impl": options.impl}
    if options.scaling is not None:
        how["scaling"] = options.scaling
    return read_config(model.config).build(**how)


def _build_table(layer: Any, options: InstallOptions) -> Tensor | None:
    """sin and cos of all positions, [1, tokens, channels]; None where the model's own will do."""
    if options.encoding is not None or options.keys == "unrotated":
        nothing = torch.zeros(1, 1, layer.pos_embd_dim // 2)
        return torch.cat((nothing, nothing + 1), -1)
    if options.scaling is None and options.precision == "float32":
        return None
    rope = RoPE(
        layer.pos_embd_dim,
        scaling=options.scaling,
        precision=options.precision,
        impl=options.impl,
    )
    cos, sin = rope.tables(torch.arange(layer.max_positions), context_length=layer.max_positions)
    return torch.cat((sin, cos), -1)[None]


FAMILY = ModelFamily("GPT-J", _plan)
