"""Causal linear attention in chunks: sums over earlier keys, and scores only inside a chunk.

    num_i = w_i f(q_i) N + sum_(j <= i) w_ij f(q_i) f(k_j) v_j       N = sum of w_j f(k_j) v_j
    den_i = w_i g(q_i) Z + sum_(j <= i) w_ij g(q_i) g(k_j)           Z = sum of w_j g(k_j)

f and g are the features of numerator and denominator. N and Z hold every key before the chunk, j
and i are in it. Without a decay all w are 1. ALiBi's exp(-m (p_i - p_j)) is a product over the way
from j to i, divided where the sums end: no exponent is ever above 0.

Katharopoulos et al. 2020, Transformers are RNNs, https://arxiv.org/abs/2006.16236, for the sums;
chunks as in Hua et al. 2022, Transformer Quality in Linear Time, https://arxiv.org/abs/2202.10447.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .features import FeaturePair

__all__ = ["ChunkDecay", "DecayFactors", "KeySums", "add_keys", "attend_chunk", "divide_sums"]


class KeySums(NamedTuple):
    """Sums over earlier keys: N [B, G, F, Dv] and Z [B, G, F]; G is H under a decay."""

    numerator: Tensor
    denominator: Tensor


class DecayFactors(NamedTuple):
    """Factors of a decay across a chunk of C tokens; None stands for 1.

    to_queries: from the sums to each query, [.., H, C, 1].
    from_keys: from each key to the end of the chunk, [.., H, C, 1].
    across: from the sums to the end of the chunk, [.., H, 1, 1].
    last_position: of the chunk, [1] or [B].
    """

    to_queries: Tensor | None = None
    from_keys: Tensor | None = None
    across: Tensor | None = None
    last_position: Tensor | None = None


class ChunkDecay:
    """Computes the factors of each chunk, and its causal mask.

    groups: query heads for each key head. slopes: of the decay, float64 [H], or None; with slopes
    groups is 1. positions: never decreasing, [1, S] or [B, S]; needed for slopes only.
    is_consecutive: positions have no gaps.
    """

    def __init__(
        self,
        like: Tensor,
        groups: int,
        slopes: Tensor | None,
        positions: Tensor | None,
        is_consecutive: bool,
    ) -> None:
        self._like, self._groups, self._positions = like, groups, positions
        self._is_consecutive = is_consecutive
        self._slopes = None if slopes is None else slopes.to(like.device)[:, None, None]
        # Of the chunk before, for the next one where all are alike.
        self._mask: Tensor | None = None
        self._factors = DecayFactors()

    def compute_mask(self, start: int, length: int) -> Tensor:
        """Decay from each key to each query of a chunk, 0 for later keys: [groups C, C].

        With slopes [.., H, C, C].
        """
        known, same = self._mask, self._is_consecutive or self._slopes is None
        if same and known is not None and known.shape[-1] == length:
            return known
        if self._slopes is None:
            # Not of ``like``, which vmap may have given an axis.
            dtype, device = self._like.dtype, self._like.device
            mask = torch.ones(length, length, dtype=dtype, device=device).tril()
            mask = mask.repeat(self._groups, 1)
        else:
            positions = self._take_positions(start, length)
            mask = self._compute_decay(positions - positions.mT).tril()
        self._mask = mask
        return mask

    def compute_factors(self, start: int, length: int, last: Tensor | None) -> DecayFactors:
        """Factors of tokens start .. start + length - 1; last: position of the sums, [1] or [B]."""
        if self._slopes is None or not length:
            return DecayFactors()
        positions, known = self._take_positions(start, length), self._factors
        end = positions[:, -1:]
        same_length = known.to_queries is not None and known.to_queries.shape[-2] == length
        if self._is_consecutive and same_length:
            return known._replace(last_position=end[:, 0, 0])
        before = positions[:, :1] if last is None else last[:, None, None]
        factors = DecayFactors(
            to_queries=self._compute_decay(positions - before),
            from_keys=self._compute_decay(end - positions),
            across=self._compute_decay(end - before),
            last_position=end[:, 0, 0],
        )
        if start:  # the first chunk may lie at a distance from the sums
            self._factors = factors
        return factors

    def _take_positions(self, start: int, length: int) -> Tensor:
        assert self._positions is not None
        return self._positions[:, start : start + length, None]  # [1 or B, C, 1]

    def _compute_decay(self, distance: Tensor) -> Tensor:
        """exp(-m distance): [.., H, ., .] for distances [1 or B, ., .]."""
        assert self._slopes is not None
        # Rounded before exp: that moves a weight w by w |log w| 2^-24, at most 2^-25.
        exponent = self._slopes * -distance.clamp(min=0).unsqueeze(1)
        return exponent.to(self._like.dtype).exp()


def attend_chunk(
    sums: KeySums,
    q: FeaturePair,
    k: FeaturePair,
    v: Tensor,
    mask: Tensor,
    to_queries: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Numerator [B, G, r C, Dv] and denominator [B, G, r C] of the r C queries of a chunk.

    q [B, G, r C, F]; k [B, G, C, F] and v [B, G, C, Dv] of the same tokens. mask and to_queries: of
    ``ChunkDecay``.
    """
    scores = (q.numerator @ k.numerator.mT) * mask
    earlier = q.numerator @ sums.numerator
    numerator = scores @ v + _multiply(earlier, to_queries)
    if q.denominator is q.numerator:
        earlier = (q.denominator @ sums.denominator.unsqueeze(-1)).squeeze(-1)
        factor = None if to_queries is None else to_queries.squeeze(-1)
        return numerator, scores.sum(-1) + _multiply(earlier, factor)
    # One sum over keys for each position instead of a second matrix of scores.
    length = k.denominator.shape[2]
    total = mask[..., :length, :] @ k.denominator
    total = total + _multiply(sums.denominator.unsqueeze(2), to_queries)
    grouped = torch.unflatten(q.denominator, 2, (-1, length))
    return numerator, (grouped * total.unsqueeze(2)).sum(-1).flatten(2)


def add_keys(sums: KeySums, k: FeaturePair, v: Tensor, factors: DecayFactors) -> KeySums:
    """The sums with the keys of a chunk added."""
    across, from_keys = factors.across, factors.from_keys
    values = k.numerator.mT @ _multiply(v, from_keys)
    keys = _multiply(k.denominator, from_keys).sum(2)
    return KeySums(
        _multiply(sums.numerator, across) + values,
        _multiply(sums.denominator, None if across is None else across.squeeze(-1)) + keys,
    )


def divide_sums(numerator: Tensor, denominator: Tensor, least: float) -> Tensor:
    """numerator / denominator, and 0 where the denominator is not above ``least``."""
    divisible = (denominator > least).unsqueeze(-1)
    # Divided by 1 there: a gradient through where would multiply 0 with infinity.
    divisor = torch.where(divisible, denominator.unsqueeze(-1), 1.0)
    return torch.where(divisible, numerator / divisor, 0.0)


def _multiply(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor
