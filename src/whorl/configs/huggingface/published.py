"""Model types that transformers does not have: models published with their own code.

    code equal to that of a known type    read as that type
    other code                            read by its keys: latent attention, or a plain rotation

Such configs have other names for some keys; ``use_transformers_names`` renames them. ChatGLM2 to
GLM-4-9B rotate half of each head with base 10000 rope_ratio, as vLLM reads them
(model_executor/models/chatglm.py). MPT rotates if attn_config has "rope" true, by its rope_theta
and rope_hf_config. Phi-3-small wrote "su" for LongRoPE.
"""

import re
from collections.abc import Mapping
from typing import Any

from whorl.configs._values import Keys
from whorl.configs.model import ConfigError, Parity

from . import defaults
from .adaptations import set_two_scales
from .families import FAMILIES, Family
from .sizes import NAMES, add_usual_names

__all__ = [
    "explain_no_rotation",
    "find_equivalent_type",
    "infer_family",
    "use_transformers_names",
]

_READ_AS = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "chatglm": "glm",
    "kimi_k2": "deepseek_v3",
    "stablelm_epoch": "stablelm",
}
_MORE_NAMES: Mapping[str, tuple[str, ...]] = {
    "num_attention_heads": ("num_heads",),
    "num_hidden_layers": ("num_layers",),
    "head_dim": ("kv_channels",),
    "rope_theta": (
        *("rotary_emb_base", "rotary_base", "rope_base", "rope_embedding_base"),
        *("rope_freq_base", "rope_freq_constant"),
    ),
    "partial_rotary_factor": ("rope_pct", "rotary_pct", "rotary_percent", "rotary_emb_fraction"),
}
#: Keys that only models with a rotation have.
_SIGNS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("rotary_dim", "qk_rope_head_dim"),
)
#: Other key names that indicate a rotation.
_ROTARY = re.compile(r"(.*_)?(rope|rotary)(_|$)")


def find_equivalent_type(model_type: str | None, keys: Keys) -> str | None:
    """The model type of transformers whose code does the same; None if there is none."""
    if model_type == "chatglm" and not keys.read_flag("original_rope", default=True):
        return None  # half layout
    return _READ_AS.get(model_type or "")


def use_transformers_names(keys: Keys, model_type: str | None) -> dict[str, Any]:
    """The keys of the config under the names that transformers has for them too."""
    data = add_usual_names(add_usual_names(keys.data, NAMES), _MORE_NAMES)
    if keys.read_number("rope_position_scale") not in (None, 1.0):
        raise keys.wrong_value("rope_position_scale", "1, because scaled positions are not read")
    if model_type == "mpt":
        return {**_read_mpt(keys), **data}
    if model_type != "chatglm":
        return data
    if data.get("position_encoding_2d"):
        raise ConfigError(
            f"{keys.path('position_encoding_2d')} must be false, because the two"
            " coordinates of the first ChatGLM are not read; got true."
        )
    ratio = keys.read_number("rope_ratio", above=0)
    share = {"partial_rotary_factor": 0.5, "rope_theta": 10_000.0 * (ratio or 1.0)}
    return {**share, **data}


def _read_mpt(keys: Keys) -> dict[str, Any]:
    """Rope keys of MPT, which transformers does not read; empty if it does not rotate."""
    attention = keys.read_object("attn_config")
    if attention is None or not attention.read_flag("rope"):
        return {}
    rotary = attention.read_object("rope_dail_config")
    if (
        attention.read_text("rope_impl") != "hf"
        and rotary is not None
        and rotary.read_text("type") == "xpos"
    ):
        raise rotary.wrong_value("type", "'original', because XPos is not read")
    found: dict[str, Any] = {"rope_theta": attention.read_number("rope_theta", above=0) or 10_000.0}
    scaling = attention.read_object("rope_hf_config")
    kind = None if scaling is None else scaling.read_text("type")
    if attention.read_text("rope_impl") == "hf" and scaling is not None and kind != "no_scaling":
        found["rope_scaling"] = dict(scaling.data)
    return found


def explain_no_rotation(keys: Keys, model_type: str | None) -> str | None:
    """Id of the note on why a config of an unknown family has no rotation; None if it has one."""
    alibi_13b = model_type == "baichuan" and keys.data.get("num_hidden_layers") == 40
    if keys.data.get("alibi") is True or alibi_13b:
        return "alibi-instead"
    if any(name in keys for name in _SIGNS):
        return None
    kind = keys.data.get("position_embedding_type")
    other = isinstance(kind, str) and kind not in ("rope", "rotary")
    if other or defaults.has_no_rotation(model_type):
        return "no-rotary"
    # Sizes do not count: every BERT has them.
    named = (name for name in keys.data if isinstance(name, str) and _ROTARY.match(name))
    signs = any(keys.data[name] is not False for name in named)  # null means no scaling
    return None if signs or kind in ("rope", "rotary") else "no-sign"


def infer_family(keys: Keys) -> Family:
    """The family rules for a config of an unknown model type, by its keys."""
    if keys.data.get("qk_rope_head_dim"):
        return FAMILIES["deepseek_v3"]
    return Family(
        partial="aware",
        absolute="rotary_dim" if "rotary_dim" in keys else None,
        interleaved="rotary_emb_interleaved",
        window=None if "layer_types" in keys else "sliding_window",
        adapt=_rename_su,
    )


def _rename_su(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    if rope.get("rope_type") == "su":
        rope["rope_type"] = "longrope"
        set_two_scales(rope, keys, None)
