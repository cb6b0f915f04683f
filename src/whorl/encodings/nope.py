"""No position encoding at all: the baseline that every other one is compared with.

Without a causal mask attention is then permutation-equivariant, which the suite checks. With one,
the mask alone tells positions apart: Haviv et al. 2022, https://arxiv.org/abs/2203.16634;
Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466.
"""

from dataclasses import dataclass
from typing import ClassVar

from .base import Card, Config, Encoding, register

__all__ = ["NoPE", "NoPEConfig"]


@dataclass(frozen=True)
class NoPEConfig(Config):
    """NoPE has no options."""


@register("nope")
class NoPE(Encoding):
    """Leaves embeddings, queries, keys and scores as they are."""

    permutation = "equivariant"
    card: ClassVar[Card] = Card(
        formula="q k^T",
        paper="Kazemnejad et al. 2023",
        url="https://arxiv.org/abs/2305.19466",
        relative=True,
        longer="partly",
        linear_attention="yes",
        many_axes=True,
        memory="none",
        compute="none",
    )

    def __init__(self) -> None:
        super().__init__()
        self.config = NoPEConfig()
