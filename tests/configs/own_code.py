"""A model's own rotary module and its own function that applies it, called as the model does."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whorl.scaling import Frequencies

from .census import ROTARY, Rotary, without_timm

__all__ = ["Table", "config_of", "rotated", "tables_of"]

#: What a default config lacks to have rotated layers of every kind.
GATES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [3]},
    "deepseek_v4": {
        "num_hidden_layers": 3,
        "layer_types": [
            "sliding_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
    },
    "esm": {"position_embedding_type": "rotary"},
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "seamless_m4t": {"position_embeddings_type": "rotary"},
    "wav2vec2-bert": {"position_embeddings_type": "rotary"},
    "wav2vec2-conformer": {"position_embeddings_type": "rotary"},
    "zamba2": {"use_mem_rope": True},
}


class Table(NamedTuple):
    """Frequencies that a module holds, and the layers that it holds them for."""

    label: str | None
    inv_freq: Tensor
    attention_scale: float
    module: Any

    def equals(self, ours: Frequencies, tolerance: float) -> bool:
        """Whether ours are the same but for rounding and the direction of turning."""
        inv_freq = self.inv_freq.double().abs()
        return (
            ours.inv_freq.shape == inv_freq.shape
            and torch.allclose(ours.inv_freq.abs(), inv_freq, rtol=tolerance, atol=0)
            and abs(float(ours.attention_scale) - self.attention_scale) <= tolerance
        )


def config_of(model_type: str, **options: Any) -> Any:
    """A config with the library's defaults, and with what switches its rotation on."""
    with without_timm():
        return ROTARY[model_type].config_class(**{**GATES.get(model_type, {}), **options})


def tables_of(model_type: str, config: Any) -> list[Table]:
    """All that the rotary module of a model holds."""
    rotary = ROTARY[model_type]
    with without_timm():
        maker = getattr(rotary.modeling, rotary.maker)
    if model_type in ("gptj", "codegen"):
        width = config.rotary_dim
        sincos = maker(config.max_position_embeddings, width)
        return [Table(None, 1.0 / (10000 ** (torch.arange(0, width, 2) / width)), 1.0, sincos)]
    if model_type == "roformer":
        width = config.hidden_size // config.num_attention_heads
        module = maker(config.max_position_embeddings, width)
        exact = 10000 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
        return [Table(None, exact, 1.0, module.create_weight())]
    module = maker(config)
    found = []
    for name, inv_freq in module.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            label = name.removesuffix("inv_freq").removesuffix("_") or None
            scale = f"{label}_attention_scaling" if label else "attention_scaling"
            found.append(Table(label, inv_freq, float(getattr(module, scale, 1.0)), module))
    return found


def rotated(
    model_type: str, config: Any, table: Table, q: Tensor, k: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys [B, H, T, D] at positions [B, T], turned by the model's own code."""
    rotary, module = ROTARY[model_type], table.module
    code: Any = rotary.modeling
    if model_type in ("gptj", "codegen"):
        sin, cos = module[positions].chunk(2, dim=-1)
        return _partly(lambda x: _gptj(code, x, sin, cos), sin.shape[-1] * 2, q, k)
    if model_type == "roformer":
        sincos = module[positions][:, None]
        attention = code.RoFormerSelfAttention
        turned: tuple[Tensor, Tensor] = attention.apply_rotary_position_embeddings(sincos, q, k)
        return turned
    if model_type == "clvp_encoder":
        return _clvp(code, module, q, k, positions)
    if hasattr(code, _conformer(code)):
        return _conformed(code, module, q, k, positions)
    extra = () if table.label is None else (table.label,)
    made = module(q, positions, *extra)
    if model_type == "deepseek_v2":
        return code.apply_rotary_emb(q, k, made)
    if model_type == "llama4_text":
        turned = code.apply_rotary_emb(q.transpose(1, 2), k.transpose(1, 2), made)
        return turned[0].transpose(1, 2), turned[1].transpose(1, 2)
    return _generic(rotary, config, made, 2 * table.inv_freq.shape[0], q, k)


def _generic(
    rotary: Rotary, config: Any, made: tuple[Tensor, Tensor], width: int, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    code: Any = rotary.modeling
    cos, sin = made
    apply = getattr(code, "apply_rotary_pos_emb", None)
    interleave = getattr(code, "apply_rotary_pos_emb_interleave", None)
    if interleave is not None and getattr(config, "rope_interleave", True):
        apply = interleave
    if rotary.model_type == "qwen2_5_omni_dit":
        q, k = code.deinterleave_head_dim(q), code.deinterleave_head_dim(k)
    assert apply is not None
    arguments = apply.__code__.co_varnames[: apply.__code__.co_argcount]
    if arguments[0] in ("x", "tensor"):
        return apply(q, cos, sin), apply(k, cos, sin)
    try:
        return apply(q, k, cos, sin)
    except RuntimeError:  # models that take the rotated channels out of the head themselves
        turned = apply(q[..., :width], k[..., :width], cos, sin)
        return tuple(  # type: ignore[return-value]
            torch.cat([new, old[..., width:]], -1) for new, old in zip(turned, (q, k), strict=True)
        )


def _partly(turn: Any, width: int, *xs: Tensor) -> Any:
    return tuple(torch.cat([turn(x[..., :width]), x[..., width:]], -1) for x in xs)


def _gptj(code: Any, x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
    turned: Tensor = code.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos)
    return turned.transpose(1, 2)


def _clvp(code: Any, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
    rows = int(positions.max()) + 1
    angles = module(torch.empty(1, rows, 1)).squeeze(0)
    width = angles.shape[-1]
    parts = (q[..., :width], k[..., :width], k[..., :width])
    turned = code.apply_rotary_pos_emb(*parts, angles.cos(), angles.sin(), positions)
    return tuple(
        torch.cat([new, old[..., width:]], -1) for new, old in zip(turned, (q, k), strict=False)
    )


def _conformer(code: Any) -> str:
    names = [n for n in vars(code) if n.endswith("SelfAttention") and "Decoder" not in n]
    have = [n for n in names if hasattr(getattr(code, n), "_apply_rotary_embedding")]
    return have[0] if have else "no such class"


def _conformed(code: Any, module: Any, q: Tensor, k: Tensor, positions: Tensor) -> Any:
    """Hidden states are rotated, so heads stand beside each other."""
    rows = int(positions.max()) + 1
    table = module(torch.empty(1, rows, 1))[:, positions[0]]
    apply = getattr(code, _conformer(code))._apply_rotary_embedding
    turned = []
    for x in (q, k):
        heads, width = x.shape[1], x.shape[3]
        this = SimpleNamespace(num_heads=heads, head_size=width)
        beside = apply(this, x.transpose(1, 2).flatten(2), table)
        turned.append(beside.unflatten(2, (heads, width)).transpose(1, 2))
    return turned
