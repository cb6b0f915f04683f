"""LoRA for long contexts: low-rank matrices in attention, with embeddings and norms trained too.

LoRA alone adapts badly to longer contexts; trained embeddings and norms close most of the gap, and
they are few parameters. Chen et al. 2023, LongLoRA, section 3.3, https://arxiv.org/abs/2309.12307.
The matrices are those of peft, which the ``finetune`` extra installs.
"""

from typing import Any

import torch
from torch import nn

from whorl._support.extras import import_extra
from whorl.lab.model import derive_seed

from .models import TunedModel

__all__ = ["add_lora"]

_TRAINED_PARTS = ("embedding", "norms")


def add_lora(model: TunedModel, rank: int, seed: int) -> Any:
    """Put LoRA into the attention of a model; returns what ``merge_and_unload`` is a method of."""
    peft = import_extra("peft", by="whorl.finetune with lora=", extra="finetune")
    names = [
        name
        for name, module in model.module.named_modules()
        if isinstance(module, nn.Linear) and model.name_part(name) == "attention"
    ]
    if not names:
        raise ValueError(
            "lora needs linear layers in the attention of the model; "
            f"{type(model.module).__name__} has none. Leave it out to train all weights."
        )
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "lora", rank))
        tuner = peft.LoraModel(model.module, config, "default")
    for name, weight in model.module.named_parameters():
        weight.requires_grad_("lora_" in name or model.name_part(name) in _TRAINED_PARTS)
    return tuner
