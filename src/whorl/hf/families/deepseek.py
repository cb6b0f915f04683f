"""DeepSeek-V3: latent attention, of which the last channels of a head rotate.

transformers caches the latent vectors and the rotated channels of the keys before it makes keys and
values of them. With another encoding, or with keys="unrotated", these channels are cached
unrotated, and attention rotates them in the finished keys. Caches of whorl hold finished keys and
values, which are larger than the latent vectors.

DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437, section 2.1.1.
"""

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from whorl.configs import read_config
from whorl.encodings import Encoding, RoPE
from whorl.hf.caches.unrotated import PendingKeys
from whorl.hf.changes import Change, ClassChange
from whorl.hf.options import InstallOptions

from .base import ModelFamily
from .rotary import change_rotation, list_changes, refuse_several_axes

__all__ = ["FAMILY"]


class WhorlDeepseekV3Attention(DeepseekV3Attention):
    """DeepSeek-V3's attention, for caches of whorl too."""

    whorl_encoding: Encoding

    def expand_kv(self, kv_nope: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(kv_nope, PendingKeys):
            found: tuple[Tensor, Tensor] = super().expand_kv(kv_nope, k_rot)
            return found
        keys, values = super().expand_kv(kv_nope.tokens, k_rot)
        return PendingKeys.create(keys, kv_nope.layer), values


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    changes = change_rotation(model, options)
    if options.encoding is None and options.keys == "rotated":
        return changes
    refuse_several_axes(options.encoding)
    attributes = {"whorl_encoding": options.encoding or _build_rotation(model.config, options)}
    return changes + [
        ClassChange(module, WhorlDeepseekV3Attention, attributes)
        for module in model.modules()
        if type(module) is DeepseekV3Attention
    ]


def _build_rotation(config: Any, options: InstallOptions) -> RoPE:
    """The rotation of finished keys, whose last channels are two halves in either layout."""
    rotation = read_config(config).group().rotation
    assert rotation is not None
    unrotated, rotated = config.qk_nope_head_dim, config.qk_rope_head_dim
    how: dict[str, Any] = {**rotation.options, **list_changes(options), "layout": "half"}
    how |= {"head_dim": unrotated + rotated, "rotary_dim": rotated, "rotary_start": unrotated}
    return RoPE(**how)


FAMILY = ModelFamily("rotary", _plan, changes_modules=False)
