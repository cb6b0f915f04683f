"""Reads a folder that ``export`` wrote: a Llama becomes the lab's model again.

It reads nothing else of Hugging Face's formats: other Llamas may have biases, another activation or
another epsilon, which the lab's model does not have, and are refused.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.configs import ConfigError, read_config

from . import files
from .config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from .model import NORM_EPS, Model, TransformerLayer

__all__ = ["is_exported", "read_exported"]

_CONFIG, _WEIGHTS, _TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
_BYTES = 256
# What every export has; a model that differs is another architecture.
_FIXED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": NORM_EPS,
    "attention_bias": False,
    "mlp_bias": False,
}


def is_exported(folder: Path) -> bool:
    """Whether a folder has config.json and model.safetensors, and is not the folder of a run."""
    found = all((folder / name).is_file() for name in (_CONFIG, _WEIGHTS))
    return found and not (folder / "config.toml").exists()


def read_exported(folder: Path) -> tuple[Model, RunConfig]:
    """The model in a folder that ``export`` wrote, and settings that build it."""
    config = _read_settings(folder)
    longest = config.longest
    tensors = _read_tensors(folder / _WEIGHTS)
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None or embedding.dim() != 2:
        raise _refuse(folder, "it has no weight model.embed_tokens.weight")
    model = Model(config.model, vocab=len(embedding), longest=longest)
    _set_weights(model, tensors, folder)
    return model, config


def _read_settings(folder: Path) -> RunConfig:
    found: Any = files.read_json(folder / _CONFIG)
    if not isinstance(found, dict):
        raise _refuse(folder, f"{_CONFIG} must hold an object")
    for name, expected in _FIXED.items():
        if found.get(name) != expected:
            raise _refuse(folder, f"{name} must be {quote(expected)}; got {quote(found.get(name))}")
    try:
        rope: Any = read_config(found).build()
        spec: dict[str, Any] = {"name": "rope", "base": rope.config.base}
        length = int(found["max_position_embeddings"])
        if (scaling := rope.config.scaling) is not None:
            given = scaling.to_dict()
            spec["scaling"] = {name: one for name, one in given.items() if one is not None}
            length = int(given.get("original_context") or length)
        plain = "scaling" not in spec and spec["base"] == 10_000.0
        shape = ModelConfig(
            encoding="rope" if plain else spec,
            layers=found["num_hidden_layers"],
            width=found["hidden_size"],
            heads=found["num_attention_heads"],
            kv_heads=found["num_key_value_heads"],
            hidden=found["intermediate_size"],
            dropout=found["attention_dropout"],
            tied=found["tie_word_embeddings"],
        )
        bytewise = found["vocab_size"] == _BYTES
        data = DataConfig(tokenizer=None if bytewise else str(folder / _TOKENIZER))
        return RunConfig(model=shape, data=data, training=TrainingConfig(length=length))
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _refuse(folder, f"its {_CONFIG} cannot be used: {error}") from None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    safe = import_extra("safetensors", by="whorl.lab", extra="lab")
    try:
        with safe.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, safe.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None


@torch.no_grad()
def _set_weights(model: Model, tensors: dict[str, Tensor], folder: Path) -> None:
    """Copy all weights into ``model``; q, k and v go into one matrix, and so do gate and up."""
    left = {name.removesuffix(".weight"): tensor for name, tensor in tensors.items()}

    def take(weight: Tensor, *names: str) -> None:
        parts = [left.pop(name, None) for name in names]
        known = [part for part in parts if part is not None]
        joined = torch.cat(known) if known else torch.empty(0)
        if len(known) < len(names) or joined.shape != weight.shape:
            why = f"{', '.join(names)} must be {list(weight.shape)} together"
            raise _refuse(folder, f"{why}; got {list(joined.shape)}")
        weight.copy_(joined)

    take(model.embedding.weight, "model.embed_tokens")
    take(model.norm.weight, "model.norm")
    if not model.config.tied:
        take(model.head.weight, "lm_head")
    for n, block in enumerate(model.blocks):
        assert isinstance(block, TransformerLayer)
        at = f"model.layers.{n}."
        take(block.attention_norm.weight, f"{at}input_layernorm")
        take(block.qkv.weight, *(f"{at}self_attn.{name}_proj" for name in "qkv"))
        take(block.out.weight, f"{at}self_attn.o_proj")
        take(block.mlp_norm.weight, f"{at}post_attention_layernorm")
        take(block.gate_up.weight, f"{at}mlp.gate_proj", f"{at}mlp.up_proj")
        take(block.down.weight, f"{at}mlp.down_proj")
    if left:
        raise _refuse(folder, f"it has a weight that the lab's model has not: {min(left)}")


def _refuse(folder: Path, why: str) -> ValueError:
    return ValueError(
        f"start.folder {str(folder)!r} is not a model that whorl train --export wrote: {why}."
        " Choose such a folder, or the folder of a run."
    )
