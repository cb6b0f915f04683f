"""DeBERTa v1: scores of content with position and of position with content, by clipped distance.

As in v2 (``deberta``), transformers gathers both from T x T indices. Here they are read by
distance, block by block, and the mask is one row of padding. Queries, keys and values are one
projection, and position vectors have projections of their own.

He et al. 2020, https://arxiv.org/abs/2006.03654.
"""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.deberta.modeling_deberta import (
    DebertaEncoder,
    DisentangledSelfAttention,
)

from whorl.encodings import DeBERTa, Encoding
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, refuse_rotary_options
from .deberta import EncoderWithoutMatrices, build_encoding

__all__ = ["FAMILY"]


class WhorlDebertaEncoder(EncoderWithoutMatrices, DebertaEncoder):
    """The encoder of DeBERTa v1."""


class WhorlDebertaSelfAttention(DisentangledSelfAttention):
    """DeBERTa's attention in blocks of queries."""

    whorl_encoding: Encoding | None

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if relative_pos is not None:  # any positions: as transformers does it
            mask = attention_mask if attention_mask.dim() == 4 else attention_mask[:, None, None]
            arguments = (query_states, relative_pos, rel_embeddings)
            found: tuple[Tensor, Tensor | None] = super().forward(
                hidden_states, mask, output_attentions, *arguments
            )
            return found
        mixed = self.transpose_for_scores(self.in_proj(hidden_states))  # [B, H, T, 3 D]
        q, k, v = mixed.chunk(3, dim=-1)
        q = q + self.transpose_for_scores(self.q_bias[None, None])
        v = v + self.transpose_for_scores(self.v_bias[None, None])
        encoding = self.whorl_encoding
        if isinstance(encoding, DeBERTa) and rel_embeddings is not None:
            encoding = encoding.with_parameters(vectors=self.pos_dropout(rel_embeddings))
            encoding.share(*_find_projections(self))
        out, weights = attend_tokens(
            q,
            k,
            v,
            encoding,
            attention_mask,
            causal=False,
            scale=(self.attention_head_size * (1 + len(self.pos_att_type))) ** -0.5,
            dropout=self.dropout.p if self.training else 0.0,
            weights=output_attentions,
        )
        return out.transpose(1, 2).flatten(2), weights


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "DeBERTa")
    changes: list[Change] = []
    for module in model.modules():
        if type(module) is DebertaEncoder:
            changes.append(ClassChange(module, WhorlDebertaEncoder))
        elif type(module) is DisentangledSelfAttention:
            if module.talking_head:
                raise ValueError(
                    f"whorl.hf.install: {type(model).__name__} mixes the scores of all heads"
                    " (talking_head), which whorl's attention does not have."
                )
            encoding = options.encoding or build_encoding(module, model.config.hidden_size)
            attributes = {"whorl_encoding": encoding}
            changes.append(ClassChange(module, WhorlDebertaSelfAttention, attributes))
    return changes


def _find_projections(layer: Any) -> tuple[nn.Module, nn.Module]:
    """The modules that project position vectors as queries and keys, as they are now."""
    # A term that is left out has no module, and needs none.
    return (
        getattr(layer, "pos_q_proj", layer.in_proj),
        getattr(layer, "pos_proj", layer.in_proj),
    )


FAMILY = ModelFamily("DeBERTa v1", _plan)
