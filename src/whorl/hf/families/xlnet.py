"""XLNet: Transformer-XL's scores, with terms for segments.

transformers builds matrices of scores, of visible keys and of segments. Here scores are computed in
blocks of queries, from one row of padding and one of segments. As it was before: two streams
(``perm_mask``, ``target_mapping``, and so ``generate``), and training with dropout, which XLNet
applies to the vectors of distances too.

Yang et al. 2019, https://arxiv.org/abs/1906.08237.
"""

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from whorl.encodings import Encoding, TransformerXL
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions
from whorl.hf.tokens import attend_tokens

from .base import ModelFamily, refuse_rotary_options

__all__ = ["FAMILY"]


class XLNetKeys(NamedTuple):
    """What a model tells its layers for one call.

    mask: [B, S], False for padding; None without any. segments: ids [B, S], or None.
    """

    mask: Tensor | None
    segments: Tensor | None


#: Of the present call in this thread; None where layers are to attend as transformers does.
_KEYS: ContextVar[XLNetKeys | None] = ContextVar("xlnet_keys", default=None)


class WhorlXLNetModel(XLNetModel):
    """XLNet without matrices of masks and segments."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        mems: Any = None,
        perm_mask: Tensor | None = None,
        target_mapping: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        input_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        given = {"input_ids": input_ids, "mems": mems, **kwargs}
        has_streams = perm_mask is not None or target_mapping is not None
        masks = [mask for mask in (attention_mask, input_mask) if mask is not None]
        is_wrong = len(masks) > 1 or any(mask.dim() != 2 for mask in masks)  # says transformers
        if has_streams or is_wrong or (self.training and self.dropout.p > 0):
            return super().forward(
                attention_mask=attention_mask,
                perm_mask=perm_mask,
                target_mapping=target_mapping,
                token_type_ids=token_type_ids,
                input_mask=input_mask,
                **given,
            )
        if attention_mask is None and input_mask is not None:
            attention_mask = 1 - input_mask
        remembered = 0 if mems is None or mems[0] is None else mems[0].shape[0]
        mask = _prepend(attention_mask, remembered, 1)
        segments = _prepend(token_type_ids, remembered, 0)
        token = _KEYS.set(XLNetKeys(None if mask is None else mask.bool(), segments))
        try:
            return super().forward(**given)
        finally:
            _KEYS.reset(token)


#: Which is saved with the model, and which pipelines look at.
WhorlXLNetModel.__name__ = XLNetModel.__name__


class WhorlXLNetRelativeAttention(XLNetRelativeAttention):
    """XLNet's attention in blocks of queries.

    whorl_encoding: without terms for segments and with them, or twice that of the caller.
    """

    whorl_encoding: tuple[Encoding, Encoding]
    is_causal: bool

    def forward(
        self,
        h: Tensor,
        g: Tensor | None,
        attn_mask_h: Tensor | None,
        attn_mask_g: Tensor | None,
        r: Tensor,
        seg_mat: Tensor | None,
        mems: Tensor | None = None,
        target_mapping: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Any, ...]:
        keys = _KEYS.get()
        if keys is None:
            found: tuple[Any, ...] = super().forward(
                h, g, attn_mask_h, attn_mask_g, r, seg_mat, mems, target_mapping, output_attentions
            )
            return found
        x = h if mems is None or mems.dim() <= 1 else torch.cat([mems, h])  # [S, B, width]
        q, k, v = (
            torch.einsum("ibh,hnd->bnid", tokens, weight)  # [B, H, T, D]
            for tokens, weight in ((h, self.q), (x, self.k), (x, self.v))
        )
        encoding, segments = self._find_encoding(keys.segments)
        out, weights = attend_tokens(
            q,
            k,
            v,
            encoding,
            keys.mask,
            causal=self.is_causal,
            scale=self.scale,
            weights=output_attentions,
            segments=segments,
        )
        result = (self.post_attention(h, out.permute(2, 0, 1, 3)), None)
        return result if weights is None else (*result, weights.permute(2, 3, 0, 1))

    def _find_encoding(self, segments: Tensor | None) -> tuple[Encoding, Tensor | None]:
        """The encoding with the layer's parameters, and segments if it takes them."""
        encoding = self.whorl_encoding[segments is not None]
        if not isinstance(encoding, TransformerXL):
            return encoding, None
        parameters = {"u": self.r_w_bias, "v": self.r_r_bias, "projection": self.r.flatten(1).T}
        if segments is not None:
            parameters |= {"segment_bias": self.r_s_bias, "segment_vectors": self.seg_embed}
        return encoding.with_parameters(**parameters), segments


def _prepend(given: Tensor | None, count: int, value: int) -> Tensor | None:
    """Numbers of tokens [B, T] with those of ``count`` remembered ones before them."""
    if given is None or not count:
        return given
    return torch.nn.functional.pad(given, (count, 0), value=value)


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    refuse_rotary_options(options, "XLNet")
    config = model.config
    is_causal = config.attn_type == "uni"
    if config.bi_data or (is_causal and config.same_length):
        raise ValueError(
            f"whorl.hf.install: bi_data and same_length must be False in the config of"
            f" {type(model).__name__}, because whorl has no positions that run backwards in half of"
            " a batch and no window of XLNet's; got True."
        )
    attributes: dict[str, Any] = {
        "whorl_encoding": _build_encodings(config, options),
        "is_causal": is_causal,
    }
    changes: list[Change] = []
    for module in model.modules():
        if type(module) is XLNetModel:
            changes.append(ClassChange(module, WhorlXLNetModel))
        elif type(module) is XLNetRelativeAttention:
            changes.append(ClassChange(module, WhorlXLNetRelativeAttention, attributes))
    return changes


def _build_encodings(config: Any, options: InstallOptions) -> tuple[Encoding, Encoding]:
    """The encoding without terms for segments and with them; parameters come with each call."""
    if options.encoding is not None:
        return options.encoding, options.encoding
    sizes: dict[str, Any] = {
        "num_heads": config.n_head,
        "head_dim": config.d_head,
        "dim": config.d_model,
        "clamp": config.clamp_len if config.clamp_len > 0 else None,
    }
    return TransformerXL(**sizes), TransformerXL(**sizes, segments="xlnet")


FAMILY = ModelFamily("XLNet", _plan)
