"""DeBERTa v2 and v3: scores of content with position and of position with content.

transformers gathers both from T x T indices, which it builds for every input. Here they are read by
distance, block by block, and the mask is one row of padding. Position vectors are normalised by the
encoder, dropped out in each layer, and projected by modules of the layer, as they were.

He et al. 2020, https://arxiv.org/abs/2006.03654; He et al. 2021, https://arxiv.org/abs/2111.09543.
"""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
)

from whorl.encodings import DeBERTa, Encoding
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, refuse_rotary_options

__all__ = ["FAMILY", "EncoderWithoutMatrices", "build_encoding"]


class EncoderWithoutMatrices:
    """What DeBERTa's encoders, of all versions, do without: matrices of masks and positions."""

    def get_attention_mask(self, attention_mask: Tensor) -> Tensor:
        if attention_mask.dim() == 2:
            return attention_mask.bool()  # [B, S]
        found: Tensor = super().get_attention_mask(attention_mask).bool()  # type: ignore[misc]
        return found

    def get_rel_pos(
        self,
        hidden_states: Tensor,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
    ) -> Tensor | None:
        return relative_pos  # None, unless the caller has positions of his own


class WhorlDebertaV2Encoder(EncoderWithoutMatrices, DebertaV2Encoder):
    """The encoder of DeBERTa v2 and v3."""


class WhorlDisentangledSelfAttention(DisentangledSelfAttention):
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
            found: tuple[Tensor, Tensor | None] = super().forward(
                hidden_states,
                mask,
                output_attentions,
                query_states,
                relative_pos,
                rel_embeddings,
            )
            return found
        shape = (self.num_attention_heads, self.attention_head_size)
        asking = hidden_states if query_states is None else query_states
        q, k, v = (
            project(x).unflatten(-1, shape).transpose(1, 2)  # [B, H, T, D]
            for project, x in (
                (self.query_proj, asking),
                (self.key_proj, hidden_states),
                (self.value_proj, hidden_states),
            )
        )
        encoding = self.whorl_encoding
        if isinstance(encoding, DeBERTa) and rel_embeddings is not None:
            rows = 2 * encoding.config.span
            encoding = encoding.with_parameters(vectors=self.pos_dropout(rel_embeddings[:rows]))
            encoding.share(*_find_projections(self))
        terms = 1 + sum(term in self.pos_att_type for term in ("c2p", "p2c"))
        out, weights = attend_tokens(
            q,
            k,
            v,
            encoding,
            attention_mask,
            causal=False,
            scale=(self.attention_head_size * terms) ** -0.5,
            dropout=self.dropout.p if self.training else 0.0,
            weights=output_attentions,
        )
        return out.transpose(1, 2).flatten(2), weights


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "DeBERTa")
    changes: list[Change] = []
    for module in model.modules():
        if type(module) is DebertaV2Encoder:
            changes.append(ClassChange(module, WhorlDebertaV2Encoder))
        elif type(module) is DisentangledSelfAttention:
            encoding = options.encoding or build_encoding(module, model.config.hidden_size)
            attributes = {"whorl_encoding": encoding}
            changes.append(ClassChange(module, WhorlDisentangledSelfAttention, attributes))
    return changes


def build_encoding(layer: Any, width: int) -> Encoding | None:
    """The encoding of a layer, whose vectors and projections come with each call; or None."""
    terms = tuple(term for term in ("c2p", "p2c") if term in layer.pos_att_type)
    if not layer.relative_attention or not terms:
        return None
    buckets: dict[str, Any] = {"buckets": "clipped"}
    if getattr(layer, "position_buckets", -1) > 0:  # v1 has none
        buckets = {"buckets": "log", "position_buckets": layer.position_buckets}
    return DeBERTa(
        layer.num_attention_heads,
        layer.attention_head_size,
        dim=width,
        terms=terms,
        max_distance=layer.max_relative_positions,
        projections="shared",
        **buckets,
    )


def _find_projections(layer: Any) -> tuple[nn.Module, nn.Module]:
    """The modules that project position vectors as queries and keys, as they are now."""
    if layer.share_att_key:
        return layer.query_proj, layer.key_proj
    # A term that is left out has no module of its own, and needs none.
    return (
        getattr(layer, "pos_query_proj", layer.query_proj),
        getattr(layer, "pos_key_proj", layer.key_proj),
    )


FAMILY = ModelFamily("DeBERTa", _plan)
