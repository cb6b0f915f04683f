"""Small models with weights, for evaluations of methods."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}
TEXT = "".join(f"{n} boats on the wide river, {n * n % 89} crates in the rain. " for n in range(60))


def build_llama(**options: Any) -> Any:
    """A Llama of bytes with random weights, large enough that positions matter."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SHAPE, **options}))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(std=0.3)
    return model.eval()


def save_llama(folder: Path, **options: Any) -> Path:
    build_llama(**options).save_pretrained(folder)
    return folder
