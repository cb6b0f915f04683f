"""Shaw: a vector for each clipped distance, added to the keys, and optionally to the values.

    score_ij = q_i . (k_j + a_c)                c = clip(j - i, -left, right)
    out_i = sum_j weight_ij (v_j + b_c)         left + right + 1 vectors a_c, and as many b_c

Shaw et al. 2018, Self-Attention with Relative Position Representations,
https://arxiv.org/abs/1803.02155. "sinusoidal" vectors are those of Wei et al. 2019, NEZHA,
https://arxiv.org/abs/1909.00204: fixed, so they need no training for rare distances.

Different from the paper: left and right clip may differ, and heads may have vectors of their own.
NEZHA's formula has sin((j - i) w); its released code, and so this file, sin(row w) with
row = clip(j - i) + left. The two are one rotation apart, which trained projections absorb.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import NonNegativeInt, PositiveInt
from whorl.kernels import tables
from whorl.kernels.tables import choose_table_dtype

from ._content import (
    add_head_axis,
    check_positions,
    check_score_inputs,
    check_whole,
    score_by_index,
    widen,
)
from ._sinusoid import compute_frequencies, compute_sinusoids
from .base import Card, Config, Encoding, Scorer, register, take_options

__all__ = ["Shaw", "ShawConfig"]


@dataclass(frozen=True)
class ShawConfig(Config):
    """Options of Shaw, checked on construction; ``Shaw`` says what they mean."""

    num_heads: PositiveInt
    head_dim: PositiveInt
    _: KW_ONLY
    left: NonNegativeInt = 16
    right: NonNegativeInt | None = None
    keys: Literal["trained", "sinusoidal"] = "trained"
    values: Literal["none", "trained", "sinusoidal"] = "none"
    heads: Literal["shared", "own"] = "shared"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 2:
            raise ValueError(
                "Shaw: left + right must be at least 1, because one vector for every distance tells"
                " no two apart; got 0. Raise left, the distance to keys before the query."
            )
        kinds = (self.keys, self.values)
        if "sinusoidal" in kinds and self.head_dim % 2:
            raise ValueError(
                "Shaw: head_dim must be even with sinusoidal vectors, because sines and cosines"
                f" come in pairs; got {self.head_dim}."
            )
        if self.heads == "own" and "trained" not in kinds:
            raise ValueError(
                "Shaw: heads='own' needs trained vectors, because sinusoidal ones are the same for"
                " every head; got no trained ones. Use heads='shared'."
            )

    @property
    def rows(self) -> int:
        """Vectors, one for each clipped distance from -left to right."""
        return self.left + 1 + (self.left if self.right is None else self.right)


@register("shaw")
class Shaw(Encoding):
    """Relative position vectors on keys and values, clipped at some distance.

    Args:
        num_heads, head_dim: H and D.
        left: clip of the distance to keys before the query; farther ones share a vector.
        right: the same for keys after it; as ``left`` by default, 0 for a causal model.
        keys: "trained" vectors, or fixed "sinusoidal" ones (NEZHA).
        values: the same for vectors added to the values, or "none".
        heads: "shared" gives all heads the same vectors (the paper), "own" each its own.

    Trained vectors are ``key_vectors`` and ``value_vectors``, [left + right + 1, D] ([H, ..., D]
    with heads="own"), from the farthest key on the left to the farthest on the right. They start
    Glorot-uniform, as in tensor2tensor. ``distance_embedding.weight`` of transformers'
    Wav2Vec2-BERT and SeamlessM4T-v2 ("relative_key") is ``key_vectors`` as it is.

    >>> import torch
    >>> from whorl.encodings import Shaw
    >>> shaw = Shaw(8, 64, left=64, right=8)
    >>> q, k = torch.randn(1, 8, 100, 64), torch.randn(1, 2, 100, 64)  # [B, H, T, D]
    >>> at = torch.arange(100)
    >>> shaw.content_score(q, k, at, at).shape  # to be added to q k^T
    torch.Size([1, 8, 100, 100])
    """

    fractional: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        formula="q_i . a_c, c = clip(j - i)",
        paper="Shaw et al. 2018",
        url="https://arxiv.org/abs/1803.02155",
        relative=True,
        longer="partly",
        linear_attention="no",
        many_axes=False,
        memory="N D parameters, B H T N products; N = left + right + 1",
        compute="B H T N D",
    )

    config: ShawConfig
    key_vectors: nn.Parameter | None
    value_vectors: nn.Parameter | None

    @take_options(ShawConfig)
    def __init__(self) -> None:
        config = self.config
        own = (config.num_heads,) if config.heads == "own" else ()
        shape = (*own, config.rows, config.head_dim)
        for name, kind in (("key_vectors", config.keys), ("value_vectors", config.values)):
            trained = nn.Parameter(torch.empty(shape)) if kind == "trained" else None
            self.register_parameter(name, trained)
        self.reset_parameters()

    @property
    def head_axes(self) -> Mapping[str, int]:  # type: ignore[override]  # depends on the options
        return {"key_vectors": 0, "value_vectors": 0} if self.config.heads == "own" else {}

    def acts(self, method: str) -> bool:
        if method == "value_term":
            return self.config.values != "none"
        return super().acts(method)

    def reset_parameters(self) -> None:
        """Start trained vectors afresh, as is needed after ``to_empty``."""
        bound = math.sqrt(6 / (self.config.rows + self.config.head_dim))
        for vectors in self.parameters(recurse=False):
            nn.init.uniform_(vectors, -bound, bound)

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """q_i . a_c, [B, H, T, S]; of k only the length and the positions matter."""
        where, sizes = "Shaw.content_score", (self.config.num_heads, self.config.head_dim)
        query_positions, key_positions = check_score_inputs(
            q, k, positions, key_positions, *sizes, where
        )
        wide = choose_table_dtype(q)
        rows = self._get_vectors(self.key_vectors, wide, q.device)
        return score_by_index(
            q.to(wide), rows, self._find_rows(query_positions, key_positions, where)
        ).to(q.dtype)

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        """``content_score`` in float32 for half precision."""
        return lambda q, k, *positions: scale * self.content_score(*widen(q, k), *positions)

    def value_term(
        self, weights: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """sum_j weight_ij b_c, [B, H, T, D], from attention weights [B, H, T, S]."""
        if self.config.values == "none":
            return None
        where = "Shaw.value_term"
        if not isinstance(weights, Tensor) or weights.dim() != 4 or not weights.is_floating_point():
            came = f"{weights.dtype} {list(weights.shape)}" if isinstance(weights, Tensor) else None
            raise ValueError(
                f"{where}: weights must be a floating-point tensor [B, H, T, S]; got"
                f" {came or type(weights).__name__}."
            )
        B, H, T, S = weights.shape
        if self.config.num_heads != H:
            raise ValueError(
                f"{where}: weights must have num_heads = {self.config.num_heads} heads; got {H}."
            )
        query_positions = check_positions(positions, B, T, weights.device, where, "positions")
        key_positions = check_positions(key_positions, B, S, weights.device, where, "key_positions")
        index = add_head_axis(self._find_rows(query_positions, key_positions, where)).expand(
            B, H, T, S
        )
        wide = choose_table_dtype(weights)
        # The weight that each vector gets in all, so that the sum over keys needs no T x S x D.
        totals = torch.zeros(B, H, T, self.config.rows, dtype=wide, device=weights.device)
        totals = totals.scatter_add(-1, index, weights.to(wide))
        vectors = self._get_vectors(self.value_vectors, wide, weights.device)
        return (totals @ vectors).to(weights.dtype)

    def _find_rows(self, query_positions: Tensor, key_positions: Tensor, where: str) -> Tensor:
        """The row of each query's distance to each key, [(B,) T, S]."""
        check_whole(query_positions, where)
        check_whole(key_positions, where)
        left, rows = self.config.left, self.config.rows
        return (key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1) + left).clamp(
            0, rows - 1
        )

    def _get_vectors(
        self, trained: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        if trained is not None:
            return trained.to(dtype)
        rows = torch.arange(self.config.rows, device=device)
        inv_freq = compute_frequencies(self.config.head_dim, 10_000.0, "paper", "float64").to(
            device
        )
        return compute_sinusoids(
            tables.compute_angles(rows, inv_freq), "interleaved", "sin", 1.0, dtype
        )
