"""Tiny models of transformers with random weights, and how a rebuilt one is compared with them.

A rebuilt forward pass takes embeddings, norms, projections and feed-forward layers from the model
and everything between projected queries and the attention output from whorl.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import pytest
import torch
from torch import Tensor

from whorl.attention import attention

__all__ = [
    "DIM",
    "LAYERS",
    "D",
    "H",
    "Padding",
    "attend",
    "batch",
    "compare",
    "heads",
    "merged",
    "real",
    "tiny",
]

LAYERS, H, D = 2, 4, 8
DIM, VOCAB = H * D, 50
T, PADDED = 40, 7

# The promise is 1e-4. Outputs are of order 1, and both sides compute in float32 in another order.
# Float64 would show little more: most of these models form angles, norms or weights in float32.
TOLERANCE = 1e-5

Padding = Literal["none", "left", "right", "middle"]
E = TypeVar("E")

#: Blocks small enough that texts of T tokens have several.
attend = partial(attention, block=16)


def tiny(family: str, model: str, config: str, **options: Any) -> Any:
    """A model in eval mode whose weights are large enough for attention to be far from uniform."""
    models = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(0)
    made = getattr(models, model)(
        getattr(models, config)(vocab_size=VOCAB, attn_implementation="eager", **options)
    ).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if not parameter.requires_grad:  # a table of constants
                continue
            if parameter.dim() == 1:  # norms around 1, biases around 0
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
            else:
                parameter.normal_(std=0.25)
    return made


def batch(
    padding: Padding, pad: int = 0, length: int = T, seed: int = 1
) -> tuple[Tensor, Tensor | None]:
    """Token ids [2, T] and their mask, whose second row is padded; no mask without padding."""
    ids = torch.randint(3, VOCAB, (2, length), generator=torch.Generator().manual_seed(seed))
    if padding == "none":
        return ids, None
    mask = torch.ones_like(ids)
    first = {"left": 0, "middle": 9, "right": length - PADDED}[padding]
    mask[1, first : first + PADDED] = 0
    return ids.masked_fill(mask == 0, pad), mask


def heads(x: Tensor, head_dim: int = D) -> Tensor:
    """[B, T, H D] -> [B, H, T, D]."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """[B, H, T, D] -> [B, T, H D]."""
    return x.transpose(1, 2).flatten(2)


@torch.no_grad()
def compare(
    rebuilt: Callable[[E], Tensor],
    right: E,
    wrong: E,
    want: Tensor,
    mask: Tensor | None,
    atol: float = TOLERANCE,
) -> None:
    """Equal at every token that is no padding; and with a wrong encoding, plainly not."""
    want = real(want, mask)
    torch.testing.assert_close(real(rebuilt(right), mask), want, rtol=0, atol=atol)
    assert float((real(rebuilt(wrong), mask) - want).abs().max()) > 0.1


def real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Of x [B, T, ...], the tokens that are no padding."""
    return x.flatten(0, 1) if mask is None else x[mask.bool()]
