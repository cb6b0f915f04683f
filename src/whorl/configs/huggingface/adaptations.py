"""Changes that single families make to their rope parameters, and their scales of queries."""

from collections.abc import Callable
from typing import Any

from whorl.configs._values import Keys
from whorl.configs.model import Parity, QueryScale

__all__ = ["AdaptRule", "QueryRule", "set_two_scales", "use_fixed_alpha"]

#: Changes a dictionary of rope parameters in place; the keys are those of the config.
AdaptRule = Callable[[dict[str, Any], Keys, Parity | None], None]
#: Gives the query scale of layers with these rope parameters; None for unrotated layers.
QueryRule = Callable[[Keys, Keys | None], QueryScale | None]


def rename_to_longrope(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Rename "su" and "yarn", which Phi-3 wrote for LongRoPE."""
    if rope.get("rope_type") in ("su", "yarn"):
        rope["rope_type"] = "longrope"
        trained = keys.read_int("original_max_position_embeddings")
        if trained is not None:
            rope["original_max_position_embeddings"] = trained


def set_two_scales(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Read both attention scales of Phi-3.5-MoE; transformers never uses its long factors."""
    for name, key in (
        ("attention_factor", "short_mscale"),
        ("long_attention_factor", "long_mscale"),
    ):
        if rope.get(key) is not None:
            rope[name] = rope[key]
    if parity == "transformers" and "short_factor" in rope:
        rope["long_factor"] = rope["short_factor"]


def read_nomic_scaling(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Read rotary_scaling_factor, by which Nomic's code scales past max_trained_positions."""
    if parity is not None:
        return  # the class of transformers reads neither
    if keys.read_number("rotary_emb_scale_base") is not None:
        raise keys.wrong_value("rotary_emb_scale_base", "null, because XPos is not read")
    factor = keys.read_number("rotary_scaling_factor", above=0)
    if factor is not None and rope.get("rope_type") == "default":
        rope |= {"rope_type": "dynamic", "factor": factor}
        rope["max_trained_positions"] = keys.read_int("max_trained_positions") or 2048


def use_fixed_alpha(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Rename Hunyuan's "dynamic" with an alpha, which does not depend on the length."""
    if rope.get("rope_type") == "dynamic" and rope.get("alpha"):
        rope["rope_type"] = "ntk_alpha"


def drop_share(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Drop the share: it says how large the rotated part of a head is, and all of it rotates."""
    rope.pop("partial_rotary_factor", None)


def set_share_by_width(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Compute the rotated share from rotary_dim, the number of channels (MiniMax-M2)."""
    width, head = keys.read_int("rotary_dim"), keys.read_int("head_dim")
    if width is not None and head is not None:
        rope.setdefault("partial_rotary_factor", width / head)


def scale_queries_by_beta(keys: Keys, rope: Keys | None) -> QueryScale | None:
    """Ministral: 1 + beta ln(1 + floor(p / L)), L the original context."""
    beta = None if rope is None else rope.read_number("llama_4_scaling_beta")
    length = None if rope is None else rope.read_int("original_max_position_embeddings")
    return None if beta is None or length is None else QueryScale("log", beta, length)


def scale_queries_if_unrotated(keys: Keys, rope: Keys | None) -> QueryScale | None:
    """Llama-4: 1 + attn_scale ln(1 + floor((p + 1) / floor_scale)) in unrotated layers."""
    if rope is not None or not keys.data.get("attn_temperature_tuning"):
        return None
    beta, length = keys.read_number("attn_scale"), keys.read_number("floor_scale", above=0)
    return None if beta is None or length is None else QueryScale("log", beta, length, shift=1)


def scale_queries_by_power_if_unrotated(keys: Keys, rope: Keys | None) -> QueryScale | None:
    """Beam: (1 + (p + 1) / 2048) ** 0.1 in unrotated layers."""
    return None if rope is not None else QueryScale("power", 0.1, 2048)
