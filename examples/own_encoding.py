"""An encoding of your own in a Llama: write one hook, install it, train a step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import whorl


@dataclass(frozen=True)
class LogBiasConfig(whorl.Config):
    num_heads: int


class LogBias(whorl.Encoding):
    """-w_h log(1 + distance) on the scores, with one trained number for each head."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.config = LogBiasConfig(num_heads)
        self.weight = nn.Parameter(torch.ones(num_heads))

    def distance_bias(self, distance: Tensor) -> Tensor:
        return -self.weight.view(-1, *[1] * distance.dim()) * distance.abs().float().log1p()


sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=128, vocab_size=256))
encoding = LogBias(num_heads=4)
print(whorl.hf.install(model, encoding))
optimizer = torch.optim.AdamW([*model.parameters(), *encoding.parameters()], lr=1e-3)
tokens = torch.randint(0, 256, (2, 100))
for step in range(3):
    loss = model(tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}, weights {encoding.weight.tolist()}")
