"""A plain GPT: the model that the others are compared with.

    x = embedding(tokens) + table(positions)
    per layer:
      x += out(SDPA(q, k, v of norm(x)))        one matrix for q, k and v
      x += down(gelu(up(norm(x))))              four times as wide inside
    logits = head(norm(x))

GPT-2 (Radford et al. 2019, Language Models are Unsupervised Multitask Learners) as small training
codes write it for speed: LayerNorm before each part, PyTorch's fused causal attention, no biases.
Unlike GPT-2, but like the lab's model, the head does not share the matrix of the embedding.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .plan import VOCAB, Cell

__all__ = ["STD", "Baseline"]

STD = 0.02


class Baseline(nn.Module):
    """A GPT that maps tokens [B, T] to logits [B, T, vocab]."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, cell.width)
        self.positions = nn.Embedding(cell.length, cell.width)
        self.blocks = nn.ModuleList(
            _BaselineLayer(cell.width, cell.heads) for _ in range(cell.layers)
        )
        self.norm = nn.LayerNorm(cell.width, bias=False)
        self.head = nn.Linear(cell.width, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Set random weights, smaller in matrices that write to the residual stream; norms 1."""
        source = torch.Generator().manual_seed(seed)
        thin = STD / math.sqrt(2 * len(self.blocks))
        for name, weight in self.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
            else:
                writes = name.endswith(("out.weight", "down.weight"))
                weight.normal_(std=thin if writes else STD, generator=source)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the targets, in nats."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


class _BaselineLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, E = x.shape
        thirds = self.qkv(self.attention_norm(x)).split(E, dim=-1)
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in thirds)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, H, T, D]
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, E))
        y: Tensor = x + self.down(F.gelu(self.up(self.mlp_norm(x))))
        return y
