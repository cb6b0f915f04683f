"""GPT-J: a rotation of the first channels of a head, in pairs of neighbours.

In transformers its attention builds a matrix of scores; here it does not. As there, sin and cos are
read from a table for max_position_embeddings tokens, and a position past it is an error.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.gptj.modeling_gptj import GPTJAttention, apply_rotary_pos_emb

from whorl.configs import read_config
from whorl.encodings import Encoding, RoPE
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily
from .rotary import check_consecutive

__all__ = ["FAMILY"]


class WhorlGPTJAttention(GPTJAttention):
    """GPT-J's attention without a matrix of scores.

    whorl_table: sin and cos [tokens, channels] in place of the model's, or None.
    """

    whorl_encoding: Encoding | None
    whorl_table: Tensor | None

    def forward(
        self,
        hidden_states: Tensor,
        layer_past: Any = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = False,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        shape = (self.num_attention_heads, self.head_dim)
        q, k, v = (
            project(hidden_states).unflatten(-1, shape)  # [B, T, H, D]
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        assert position_ids is not None  # GPT-J always counts tokens
        q, k = (self._rotate(x, position_ids) for x in (q, k))
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if layer_past is not None:
            k, v = layer_past.update(k, v, self.layer_idx)
        told = None if self.whorl_encoding is None else position_ids
        out, weights = attend_tokens(
            q,
            k,
            v,
            self.whorl_encoding,
            attention_mask,
            causal=True,
            scale=1 / self.scale_attn,
            dropout=self.attn_dropout.p if self.training else 0.0,
            weights=bool(output_attentions),
            positions=told,
        )
        return self.resid_dropout(self.out_proj(out.transpose(1, 2).flatten(2))), weights

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """The first channels of x [B, T, H, D] rotated, as far as the table says."""
        if self.whorl_encoding is not None:  # which rotates keys in the cache
            check_consecutive(positions)
            return x
        table = self.embed_positions if self.whorl_table is None else self.whorl_table
        sin, cos = table.to(x.device)[positions].to(x.dtype).chunk(2, -1)
        channels = 2 * sin.shape[-1]
        rotated = apply_rotary_pos_emb(x[..., :channels], sin, cos)
        return torch.cat((rotated, x[..., channels:]), -1)


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    layers = [module for module in model.modules() if type(module) is GPTJAttention]
    table = _build_table(layers[0], options) if layers else None
    attributes = {"whorl_encoding": _find_encoding(model, options), "whorl_table": table}
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
    """sin and cos of all positions, [tokens, channels]; None where the model's own will do."""
    unrotated = options.encoding is not None or options.keys == "unrotated"
    asked = options.scaling is not None or options.precision != "float32" or options.impl != "auto"
    if unrotated or not asked:
        return None
    rope = RoPE(
        layer.pos_embd_dim,
        scaling=options.scaling,
        precision=options.precision,
        impl=options.impl,
    )
    cos, sin = rope.tables(torch.arange(layer.max_positions), context_length=layer.max_positions)
    return torch.cat((sin, cos), -1)


FAMILY = ModelFamily("GPT-J", _plan)
