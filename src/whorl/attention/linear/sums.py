"""Causal linear attention in chunks: sums over earlier keys, and scores inside a chunk only.

    num_i = w_i f(q_i) N + sum_(j <= i) w_ij f(q_i) f(k_j) v_j       N = sum of w_j f(k_j) v_j
    den_i = w_i g(q_i) Z + sum_(j <= i) w_ij g(q_i) g(k_j)           Z = sum of w_j g(k_j)

N and Z hold every key before the chunk, j and i are in it. Without a decay all w are 1. ALiBi's
exp(-m (p_i - p_j)) is a product over the way from j to i, cut where the sums end: no exponent is
ever above 0.

Katharopoulos et al. 2020, Transformers are RNNs, https://arxiv.org/abs/2006.16236, for the sums;
chunks as in Hua et al. 2022, Transformer Quality in Linear Time, https://arxiv.org/abs/2202.10447.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .features import Pair

__all__ = ["Sums", "Weigher", "Weights", "advance", "attend", "divide"]


class Sums(NamedTuple):
    """What earlier keys have left: N [B, G, F, Dv] and Z [B, G, F]; G is H under a decay."""

    numerator: Tensor
    denominator: Tensor


class Weights(NamedTuple):
    """Factors of a decay on the way through a chunk of C tokens; None stands for 1.

    into, from the sums to each query, and out, from each key to the end of the chunk,
    [.., H, C, 1]; over, from the sums to the end, [.., H, 1, 1]. end: its position, [1] or [B].
    """

    into: Tensor | None = None
    out: Tensor | None = None
    over: Tensor | None = None
    end: Tensor | None = None


class Weigher:
    """Makes the weights of each chunk.

    groups: queries to one key. slopes: of ALiBi, float64 [H], or None; then groups is 1. line:
    positions that never decrease, [1, S] or [B, S]; needed for slopes only. even: they are
    consecutive.
    """

    def __init__(
        self, like: Tensor, groups: int, slopes: Tensor | None, line: Tensor | None, even: bool
    ) -> None:
        self._like, self._groups, self._line, self._even = like, groups, line, even
        self._slopes = None if slopes is None else slopes.to(like.device)[:, None, None]
        # Of the chunk before, for the next one where all are alike.
        self._within: Tensor | None = None
        self._weights = Weights()

    def within(self, start: int, length: int) -> Tensor:
        """From key to query inside a chunk, 0 after it: [groups C, C], or [.., H, C, C]."""
        known, alike = self._within, self._even or self._slopes is None
        if alike and known is not None and known.shape[-1] == length:
            return known
        if self._slopes is None:
            # Not of ``like``, which vmap may have given an axis.
            dtype, device = self._like.dtype, self._like.device
            made = torch.ones(length, length, dtype=dtype, device=device).tril()
            made = made.repeat(self._groups, 1)
        else:
            at = self._at(start, length)
            made = self._decay(at - at.mT).tril()
        self._within = made
        return made

    def weights(self, start: int, length: int, last: Tensor | None) -> Weights:
        """Of tokens start .. start + length - 1; last: where the sums end, [1] or [B]."""
        if self._slopes is None or not length:
            return Weights()
        at, known = self._at(start, length), self._weights
        end = at[:, -1, 0]
        if self._even and known.into is not None and known.into.shape[-2] == length:
            return known._replace(end=end)
        before = at[:, :1] if last is None else last[:, None, None]
        past, left, whole = at - before, at[:, -1:] - at, at[:, -1:] - before
        made = Weights(self._decay(past), self._decay(left), self._decay(whole), end)
        if start:  # the first chunk may lie at a distance from the sums
            self._weights = made
        return made

    def _at(self, start: int, length: int) -> Tensor:
        assert self._line is not None
        return self._line[:, start : start + length, None]  # [1 or B, C, 1]

    def _decay(self, distance: Tensor) -> Tensor:
        """exp(-m distance): [.., H, ., .] for distances [1 or B, ., .]."""
        assert self._slopes is not None
        # Rounded before exp: that moves a weight w by w |log w| 2^-24, at most 2^-25.
        exponent = self._slopes * -distance.clamp(min=0).unsqueeze(1)
        return exponent.to(self._like.dtype).exp()


def attend(
    sums: Sums, q: Pair, k: Pair, v: Tensor, within: Tensor, into: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Numerator [B, G, r C, Dv] and denominator [B, G, r C] of the r C queries of a chunk.

    q: [B, G, r C, F]; k [B, G, C, F] and v [B, G, C, Dv] of the same tokens.
    """
    scores = (q.f @ k.f.mT) * within
    past = q.f @ sums.numerator
    numerator = scores @ v + _times(past, into)
    if q.g is q.f:
        past = (q.g @ sums.denominator.unsqueeze(-1)).squeeze(-1)
        into = None if into is None else into.squeeze(-1)
        return numerator, scores.sum(-1) + _times(past, into)
    # One sum over keys for each position instead of a second matrix of scores.
    length = k.g.shape[2]
    seen = within[..., :length, :] @ k.g + _times(sums.denominator.unsqueeze(2), into)
    grouped = torch.unflatten(q.g, 2, (-1, length))
    return numerator, (grouped * seen.unsqueeze(2)).sum(-1).flatten(2)


def advance(sums: Sums, k: Pair, v: Tensor, weights: Weights) -> Sums:
    """The sums with the keys of a chunk in them."""
    over = None if weights.over is None else weights.over.squeeze(-1)
    return Sums(
        _times(sums.numerator, weights.over) + k.f.mT @ _times(v, weights.out),
        _times(sums.denominator, over) + _times(k.g, weights.out).sum(2),
    )


def divide(numerator: Tensor, denominator: Tensor, least: float) -> Tensor:
    """numerator / denominator, and 0 where the denominator is not above ``least``."""
    sound = (denominator > least).unsqueeze(-1)
    # Divided by 1 there: a gradient through where would multiply 0 with infinity.
    below = torch.where(sound, denominator.unsqueeze(-1), 1.0)
    return torch.where(sound, numerator / below, 0.0)


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor
