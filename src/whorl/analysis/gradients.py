"""Gradients of attention with RoPE, for each pair of channels, by distance.

A query q attends to n random keys, of which the one at distance m should get all the weight:

    w = softmax(q . R_(-m_j) k_j / sqrt(D))          loss = -log w_target
    d loss / d q = (sum_j w_j R_(-m_j) k_j - R_(-m) k_target) / sqrt(D)

where m_j is the distance of key j, and R_(-m) what is left of both rotations. Two numbers of it,
for each pair i, whose two channels are a complex number g_i:

    mean square      E |g_i|^2, what one example gives a pair
    shared part      |E g_i|^2 / E |g_i|^2, what is left if examples with the same q and target key
                     are averaged over random other keys and all distances of a range

R_(-m) multiplies pair i by exp(-i m theta_i), which does not change its size. So the mean square
cannot depend on pair or distance. The mean of exp(-i m theta_i) over a range of distances does:
it vanishes for a pair that rotates several times within the range.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding, RoPE

from .decay import convert_to_complex
from .record import (
    Record,
    check_int,
    check_memory,
    convert_to_rows,
    find_rope,
    make_generator,
    sample_normal,
)

__all__ = ["PairGradients", "pair_gradients"]

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class PairGradients(Record):
    """Gradients of a query for each range of distances [low, high) and each pair.

    mean_squares[r][i]: E |g_i|^2. shared[r][i]: the share of it that is common to all distances of
    the range; below 0 only by chance. predicted[r][i]: |mean of exp(-i m theta_i)|^2 over the
    range, the shared part of the term of the target alone.
    """

    encoding: str
    keys: int
    contents: int
    samples: int
    wavelengths: tuple[float, ...]
    ranges: tuple[tuple[int, int], ...]
    mean_squares: tuple[tuple[float, ...], ...]
    shared: tuple[tuple[float, ...], ...]
    predicted: tuple[tuple[float, ...], ...]


@torch.no_grad()
def pair_gradients(
    rope: Encoding,
    keys: int = 512,
    *,
    ranges: Ranges | None = None,
    contents: int = 64,
    samples: int = 16,
    seed: int = 0,
) -> PairGradients:
    """Mean squared gradient of each pair by distance of the target, and what of it distances share.

    keys: number of keys, at distances 0 .. keys - 1. ranges: of distances [low, high) of the
    target; by default [1, 2), [2, 4), [4, 8) and so on. contents: number of random queries, each
    with its target key, whose pairs all have the same size. samples: examples of each, with other
    keys and another distance of the range.

    >>> import whorl
    >>> found = pair_gradients(whorl.RoPE(32), 64)
    >>> found.ranges[-1], [round(share, 2) for share in found.predicted[-1][:2]]
    ((32, 64), [0.0, 0.0])
    >>> round(max(found.mean_squares[-1]) / min(found.mean_squares[-1]), 1)  # all pairs alike
    1.1
    """
    inner = find_rope(rope, "pair_gradients")
    check_int(keys, "keys", "pair_gradients", 2, 2**20)
    check_int(contents, "contents", "pair_gradients", 1, 2**20)
    check_int(samples, "samples", "pair_gradients", 2, 2**20)
    chosen = _check_ranges(ranges, keys)
    D = inner.config.head_dim
    check_memory(24 * samples * keys * D, f"{samples} samples of {keys:,} keys", "pair_gradients")
    source = make_generator(seed, "pair_gradients")
    square = torch.zeros(len(chosen), inner.config.width // 2, dtype=torch.float64)
    common = torch.zeros_like(square)
    for _ in range(contents):
        for n, gradients in enumerate(_sample_gradients(inner, keys, chosen, samples, source)):
            sizes = (gradients.abs() ** 2).sum(0)  # [P]
            square[n] += sizes / (samples * contents)
            # Without the terms of an example with itself, the mean is not biased.
            both = (gradients.sum(0).abs() ** 2 - sizes) / (samples * (samples - 1))
            common[n] += both / contents
    inv_freq = inner.frequencies(keys).inv_freq.detach()
    return PairGradients(
        encoding=repr(inner),
        keys=keys,
        contents=contents,
        samples=samples,
        wavelengths=tuple((math.tau / inv_freq.abs()).tolist()),
        ranges=chosen,
        mean_squares=convert_to_rows(square),
        shared=convert_to_rows(common / square),
        predicted=convert_to_rows(torch.stack([_predict_shared(inv_freq, r) for r in chosen])),
    )


def _sample_gradients(
    rope: RoPE, keys: int, ranges: Ranges, samples: int, source: torch.Generator
) -> list[Tensor]:
    """Gradients [N, P] of one query with one target key, for each range of distances."""
    D = rope.config.head_dim
    q = sample_normal(source, D)
    target = _normalize_pairs(sample_normal(source, D), rope)
    others = sample_normal(source, samples, keys, D)
    chances = torch.rand(samples, generator=source, dtype=torch.float64)
    distances = torch.arange(keys)
    # Rotated back by its distance, a key scores with q as it would if both were rotated.
    seen = rope.rotate(others[:, None], distances, context_length=keys, inverse=True)[:, 0]
    found = []
    for low, high in ranges:
        at = low + (chances * (high - low)).long()
        goal = rope.rotate(target.expand(1, 1, samples, D), at, context_length=keys, inverse=True)[
            0, 0
        ]  # [N, D]
        found.append(convert_to_complex(_differentiate(q, seen, goal, at), rope))
    return found


def _normalize_pairs(x: Tensor, rope: RoPE) -> Tensor:
    """x [D] with the same size sqrt(2) in every pair, so that pairs differ by rotation alone."""
    config = rope.config
    factor = math.sqrt(2) / convert_to_complex(x, rope).abs()
    both = factor.repeat(2) if config.layout == "half" else factor.repeat_interleave(2)
    scaled = x.clone()
    scaled[config.rotary_start : config.rotary_start + config.width] *= both
    return scaled


def _differentiate(q: Tensor, seen: Tensor, goal: Tensor, at: Tensor) -> Tensor:
    """d loss / d q, [N, D]. seen [N, keys, D]: keys; ``goal`` [N, D] replaces the one at ``at``."""
    rows, scale = torch.arange(len(at)), q.shape[-1] ** -0.5
    scores = seen @ q
    replaced = seen[rows, at]
    scores[rows, at] = goal @ q
    weights = (scores * scale).softmax(-1)
    mean = (weights.unsqueeze(1) @ seen).squeeze(1)
    mean += weights[rows, at].unsqueeze(-1) * (goal - replaced)
    gradient: Tensor = (mean - goal) * scale
    return gradient


def _predict_shared(inv_freq: Tensor, span: tuple[int, int]) -> Tensor:
    """|mean of exp(-i m theta_i)|^2 over distances m of a range, for each pair."""
    angles = torch.arange(*span, dtype=torch.float64).outer(inv_freq)
    return angles.cos().mean(0) ** 2 + angles.sin().mean(0) ** 2


def _check_ranges(ranges: Ranges | None, keys: int) -> tuple[tuple[int, int], ...]:
    if ranges is None:
        return tuple((2**n, min(2 ** (n + 1), keys)) for n in range((keys - 1).bit_length()))
    listed = list(ranges) if isinstance(ranges, Sequence) and not isinstance(ranges, str) else []
    for each in listed:
        pair = tuple(each) if isinstance(each, Sequence) else ()
        whole = len(pair) == 2 and all(type(end) is int for end in pair)
        if not whole or not 0 <= pair[0] < pair[1] <= keys:
            raise ValueError(
                "pair_gradients: each of ranges must be two ints (low, high) with 0 <= low < high"
                f" <= {keys}, the number of keys; got {quote(each)}."
            )
    if not listed:
        raise ValueError(
            "pair_gradients: ranges must be a list of (low, high), distances from low to high - 1;"
            f" got {quote(ranges)}."
        )
    return tuple((low, high) for low, high in listed)
