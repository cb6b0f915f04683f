"""Families of transformers models: for each, which modules change when whorl is installed.

One file per family, loaded when a model of it is met. To add one, write a file with ``FAMILY`` and
name its model types here.
"""

from importlib import import_module

from transformers import PreTrainedModel

from whorl._support.words import quote

from .base import ModelFamily

__all__ = ["FAMILIES", "ModelFamily", "find_family"]

_ROTARY = (
    *("cohere", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4", "gpt_neox"),
    *("gpt_oss", "llama", "mistral", "mixtral", "modernbert", "olmo2", "olmo3", "phi3", "qwen2"),
    *("qwen2_vl", "qwen2_vl_text", "qwen3", "qwen3_vl", "qwen3_vl_text", "smollm3"),
)

#: The file of each ``config.model_type``.
FAMILIES = {
    "bloom": "bloom",
    "deberta": "deberta_v1",
    "deberta-v2": "deberta",
    "deepseek_v3": "deepseek",
    "falcon": "falcon",
    "gptj": "gptj",
    "mpnet": "mpnet",
    "mpt": "mpt",
    "mt5": "t5",
    "roformer": "roformer",
    "t5": "t5",
    "umt5": "t5",
    "xlnet": "xlnet",
    **dict.fromkeys(_ROTARY, "rotary"),
}


def find_family(model: PreTrainedModel) -> ModelFamily:
    """The family of a model, or a ValueError that says which there are."""
    kind = getattr(model.config, "model_type", "")
    if kind not in FAMILIES:
        raise ValueError(
            f"whorl.hf.install: model type {quote(kind)} ({type(model).__name__}) is not supported."
            f" Supported: {', '.join(sorted(FAMILIES))}."
        )
    family: ModelFamily = import_module(f".{FAMILIES[kind]}", __package__).FAMILY
    return family
