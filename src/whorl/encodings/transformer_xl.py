"""Transformer-XL: scores by a projected sinusoid of the distance; XLNet adds segments.

    score_ij = (q_i + u) . k_j + (q_i + v) . W R_(i-j)      u, v, W trained; q_i . k_j is not in it
    R_d = [sin(d w_0), ..., cos(d w_0), ...]                w_n = base ** (-2 n / dim)
    XLNet: + (q_i + s) . e_same, or e_other where i and j are in different segments

Dai et al. 2019, Transformer-XL, https://arxiv.org/abs/1901.02860; Yang et al. 2019, XLNet,
https://arxiv.org/abs/1906.08237. Memory needs nothing of its own: keys may be more than queries,
and only positions say how far apart they are.

Two ways to the same numbers, neither with a T x S x dim tensor. Where positions count up by one,
all distances are T + S - 1 rows, and the product with them is shifted row by row (the paper).
Anywhere else, fractions included, R_(i-j) is R_i rotated back by j, so rotating (q_i + v) W by i
leaves one product with the keys' own sinusoids: exact, but up to H times the work. Compiled code
cannot read positions and does the second.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from whorl._support.options import PositiveInt, PositiveNumber
from whorl.kernels import tables
from whorl.kernels.tables import choose_table_dtype

from ._content import (
    add_head_axis,
    check_positions,
    check_score_inputs,
    find_first_distance,
    shift_rows,
    widen,
)
from ._sinusoid import compute_frequencies, compute_sinusoids
from .base import Card, Config, Encoding, Scorer, register, take_options

__all__ = ["TransformerXL", "TransformerXLConfig"]


@dataclass(frozen=True)
class TransformerXLConfig(Config):
    """Options of TransformerXL, checked on construction; ``TransformerXL`` says what they mean."""

    num_heads: PositiveInt
    head_dim: PositiveInt
    _: KW_ONLY
    dim: PositiveInt | None = None
    base: PositiveNumber = 10_000.0
    clamp: PositiveInt | None = None
    segments: Literal["none", "xlnet"] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 2:
            raise ValueError(
                "TransformerXL: dim must be even, because sines and cosines come in pairs; got"
                f" {self.width}. Pass dim= where num_heads * head_dim is odd."
            )

    @property
    def width(self) -> int:
        """Channels of the sinusoid R."""
        return self.num_heads * self.head_dim if self.dim is None else self.dim


@register("transformer_xl")
class TransformerXL(Encoding):
    """Relative scores from sinusoids of the distance and two trained vectors per head.

    Args:
        num_heads, head_dim: H and D.
        dim: channels of the sinusoid, H D by default.
        base: frequencies of the sinusoid, base ** (-2 n / dim).
        clamp: distances beyond it, either way, count as it (XLNet's clamp_len).
        segments: "xlnet" adds trained terms for tokens of the same and of another segment.

    Parameters, all started from a normal distribution of width 0.02, as both releases do:
    ``u``, ``v`` [H, D]; ``projection`` [H D, dim]; with segments ``segment_bias`` [H, D] and
    ``segment_vectors`` [2, H, D], for the same segment and another.

    From Transformer-XL: r_w_bias -> u, r_r_bias -> v, r_net.weight -> projection. From XLNet:
    r_w_bias -> u, r_r_bias -> v, r.flatten(1).T -> projection, r_s_bias -> segment_bias,
    seg_embed -> segment_vectors. Conformers with "relative" positions interleave sines and cosines:
    pos_bias_u -> u, pos_bias_v -> v, cat(linear_pos.weight[:, 0::2], [:, 1::2]) -> projection.

    >>> import torch
    >>> from whorl.encodings import TransformerXL
    >>> xl = TransformerXL(8, 64)
    >>> q, k = torch.randn(1, 8, 10, 64), torch.randn(1, 8, 30, 64)  # 20 keys are memory
    >>> xl.content_score(q, k, torch.arange(20, 30), torch.arange(30)).shape
    torch.Size([1, 8, 10, 30])
    """

    card: ClassVar[Card] = Card(
        formula="u . k_j + (q_i + v) . W R_(i-j)",
        paper="Dai et al. 2019",
        url="https://arxiv.org/abs/1901.02860",
        relative=True,
        longer="partly",
        linear_attention="no",
        many_axes=False,
        memory="H D dim parameters, B H T (T + S) products",
        compute="(T + S) (dim + B T) H D",
    )

    head_axes: ClassVar[Mapping[str, int]] = {
        "u": 0,
        "v": 0,
        "projection": 0,
        "segment_bias": 0,
        "segment_vectors": 1,
    }
    config: TransformerXLConfig

    @take_options(TransformerXLConfig)
    def __init__(self) -> None:
        num_heads, head_dim = self.config.num_heads, self.config.head_dim
        self.u = nn.Parameter(torch.empty(num_heads, head_dim))
        self.v = nn.Parameter(torch.empty(num_heads, head_dim))
        self.projection = nn.Parameter(torch.empty(num_heads * head_dim, self.config.width))
        if self.config.segments == "xlnet":
            self.segment_bias = nn.Parameter(torch.empty(num_heads, head_dim))
            self.segment_vectors = nn.Parameter(torch.empty(2, num_heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start trained parameters afresh, as is needed after ``to_empty``."""
        for parameter in self.parameters(recurse=False):
            nn.init.normal_(parameter, std=0.02)

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        return {"dim": self.config.width}

    def content_score(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        *,
        segments: Tensor | None = None,
        key_segments: Tensor | None = None,
    ) -> Tensor:
        """u . k_j + (q_i + v) . W R_(i-j) and the segment term, [B, H, T, S].

        segments: [T] or [B, T], any integers, equal in one segment; key_segments of the keys, as
        ``segments`` by default. None stands for one segment, which softmax cannot tell from none.
        """
        given = (segments, key_segments)
        return self._score(None, q, k, positions, key_positions, given)

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        """``content_score`` with the vectors of all distances projected once."""
        rows = None
        if distance_range is not None and not q.is_meta and not torch.compiler.is_compiling():
            count = distance_range[1] - distance_range[0] + 1
            rows = (
                self._project_distances(distance_range, q)
                if self._is_shift_cheaper(q, count, count)
                else None
            )

        def score(
            q: Tensor,
            k: Tensor,
            positions: Tensor,
            key_positions: Tensor,
            *,
            segments: Tensor | None = None,
            key_segments: Tensor | None = None,
        ) -> Tensor:
            given = (segments, key_segments)
            return scale * self._score(rows, *widen(q, k), positions, key_positions, given)

        return score

    def _score(
        self,
        rows: "_ProjectedSinusoids | None",
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        segments: tuple[Tensor | None, Tensor | None],
    ) -> Tensor:
        where, sizes = "TransformerXL.content_score", (self.config.num_heads, self.config.head_dim)
        query_positions, key_positions = check_score_inputs(
            q, k, positions, key_positions, *sizes, where
        )
        wide = choose_table_dtype(q)
        u = self.u.to(wide).view(k.shape[1], -1, sizes[1])  # by key head, [G, H / G, D]
        key_scores = (u @ k.to(wide).mT).flatten(1, 2).unsqueeze(2)  # [B, H, 1, S]
        biased_q = q.to(wide) + self.v.to(wide).unsqueeze(1)
        score = self._score_by_distance(biased_q, query_positions, key_positions, rows) + key_scores
        if self.config.segments == "xlnet":
            score = score + self._score_by_segment(q.to(wide), k, *segments, where)
        elif any(ids is not None for ids in segments):
            raise ValueError(
                f"{where}: segments came, but this encoding has no vectors for them; build it with"
                " segments='xlnet'."
            )
        return score.to(q.dtype)

    def _score_by_distance(
        self,
        biased_q: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        rows: "_ProjectedSinusoids | None",
    ) -> Tensor:
        """(q_i + v) . W R_(i-j) for biased_q = q + v, [B, H, T, D]: [B, H, T, S]."""
        (_, H, T, D), S, start = biased_q.shape, key_positions.shape[-1], None
        # Compiled code takes no look at lengths either: each would be compiled anew.
        if not torch.compiler.is_compiling() and (
            rows or self._is_shift_cheaper(biased_q, T + S, S)
        ):
            start = find_first_distance(query_positions, key_positions)
        if start is None:
            projection = self.projection.to(biased_q.dtype).view(H, D, -1)
            return self._score_by_rotation(biased_q @ projection, query_positions, key_positions)
        return self._score_by_shift(biased_q, start, S, rows)

    def _score_by_shift(
        self, biased_q: Tensor, start: int, S: int, rows: "_ProjectedSinusoids | None"
    ) -> Tensor:
        """For distances start + t - s of query t and key s, by the relative shift."""
        T = biased_q.shape[2]
        last = start + T - 1
        if rows is None or last > rows.last or last - rows.first + 1 < S:
            rows = self._project_distances((start - S + 1, last), biased_q)
        lowest = max(start - S + 1, rows.first)
        return shift_rows(biased_q @ rows.select(lowest, last), T - 1, S)

    def _is_shift_cheaper(self, q: Tensor, count: int, S: int) -> bool:
        """Whether ``count`` distances by a shift take fewer products than by a rotation."""
        (B, _, T, D), width = q.shape, self.config.width
        return count * (width + B * T) * D <= B * T * width * (D + S)

    def _project_distances(
        self, distance_range: tuple[int, int], like: Tensor
    ) -> "_ProjectedSinusoids":
        """W R_d of all distances d in ``distance_range``."""
        # One more than there are, as ``shift_rows`` needs.
        distance = torch.arange(distance_range[1], distance_range[0] - 2, -1, device=like.device)
        if self.config.clamp is not None:
            distance = distance.clamp(-self.config.clamp, self.config.clamp)
        wide = choose_table_dtype(like)
        rows = compute_sinusoids(self._compute_angles(distance), "concatenated", "sin", 1.0, wide)
        projection = self.projection.to(wide).view(*like.shape[1:4:2], -1)
        return _ProjectedSinusoids(*distance_range, projection @ rows.mT)

    def _score_by_rotation(
        self, biased_q: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """For any positions, by the addition theorem; biased_q = (q + v) W, [B, H, T, dim]."""
        by_sin, by_cos = biased_q.chunk(2, dim=-1)
        angles = add_head_axis(
            self._compute_angles(query_positions)
        )  # [T, dim / 2] or [B, 1, T, dim / 2]
        cos, sin = angles.cos().to(biased_q.dtype), angles.sin().to(biased_q.dtype)
        rotated = torch.cat((by_cos * sin - by_sin * cos, by_sin * sin + by_cos * cos), dim=-1)
        rows = compute_sinusoids(
            self._compute_angles(key_positions), "concatenated", "sin", 1.0, biased_q.dtype
        )
        score = rotated @ add_head_axis(rows).mT
        if self.config.clamp is None:
            return score
        clamp = self.config.clamp
        ends = torch.tensor([clamp, -clamp], device=biased_q.device)
        last = (
            biased_q
            @ compute_sinusoids(
                self._compute_angles(ends), "concatenated", "sin", 1.0, biased_q.dtype
            ).mT
        )
        distance = add_head_axis(query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2))
        score = torch.where(distance > clamp, last[..., :1], score)
        return torch.where(distance < -clamp, last[..., 1:], score)

    def _compute_angles(self, positions: Tensor) -> Tensor:
        inv_freq = compute_frequencies(self.config.width, self.config.base, "paper", "float64")
        return tables.compute_angles(positions, inv_freq.to(positions.device))

    def _score_by_segment(
        self, q: Tensor, k: Tensor, segments: Tensor | None, key_segments: Tensor | None, where: str
    ) -> Tensor:
        """(q_i + s) . e, with e by whether query and key share a segment: [B, H, T, S]."""
        biased_q = q + self.segment_bias.to(q.dtype).unsqueeze(1)
        same, other = (biased_q @ self.segment_vectors.to(q.dtype).movedim(0, -1)).chunk(2, dim=-1)
        if segments is None:
            if key_segments is not None:
                raise ValueError(f"{where}: key_segments came without segments; pass both.")
            return same
        mine = _check_segments(segments, q, where, "segments")
        theirs = (
            mine
            if key_segments is None
            else _check_segments(key_segments, k, where, "key_segments")
        )
        if theirs.shape[-1] != k.shape[2]:
            raise ValueError(
                f"{where}: q has {q.shape[2]} tokens and k has {k.shape[2]}, so one set of segments"
                " cannot serve both; pass key_segments= for the keys."
            )
        shared = add_head_axis(mine.unsqueeze(-1) == theirs.unsqueeze(-2))
        return torch.where(shared, same, other)


class _ProjectedSinusoids(NamedTuple):
    """W R_d [H, D, .] for distances d that fall from ``last`` to ``first``, and one more."""

    first: int
    last: int
    values: Tensor

    def select(self, first: int, last: int) -> Tensor:
        """Those from ``last`` down to ``first``, and one more."""
        return self.values[..., self.last - last : self.last - first + 2]


def _check_segments(given: Tensor, x: Tensor, where: str, what: str) -> Tensor:
    segments = check_positions(given, x.shape[0], x.shape[2], x.device, where, what)
    if segments.is_floating_point():
        raise TypeError(f"{where}: {what} must be integers, the names of segments; got fractions.")
    return segments
