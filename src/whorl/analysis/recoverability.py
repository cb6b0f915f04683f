"""Whether a position can be recovered from a rotated vector with noise on it.

    y = R_p u + noise g                u of length 1, g ~ N(0, I / D), so noise is relative to |u|
    recovered = argmax_n  y . R_n u,   n = 0 .. length - 1

which is what a query that looks for u sees: the scores of one key at every position, of which the
largest should be at p. Position n is preferred to p with probability

    Q(sqrt(D (1 - s) / 2) / noise),    s = sum_i |u_i|^2 cos((n - p) theta_i)

where Q is the upper tail of the normal distribution and u_i the two channels of pair i. So doubling
the head width is worth as much as dividing the noise by sqrt(2), if the frequencies keep their
distribution. Kay 1993, Fundamentals of Statistical Signal Processing: Detection Theory, chapter 4,
has the detector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import RoPE

from .decay import convert_to_complex
from .record import Record, check_int, check_ints, check_memory, make_generator, sample_normal

__all__ = ["PositionRecovery", "Recoverability", "recoverability"]

#: "random": a new direction in every sample. "equal": every channel is 1 / sqrt(D).
VectorKind = Literal["random", "equal"]
_NOISES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class PositionRecovery(Record):
    """How well positions were recovered with one head width, base, noise and length.

    accuracy: share of samples whose position was found. mean_error: mean distance of the recovered
    position from the true one. A guess has accuracy 1 / length and mean_error close to length / 3.
    """

    head_dim: int
    base: float
    noise: float
    length: int
    accuracy: float
    mean_error: float


@dataclass(frozen=True)
class Recoverability(Record):
    """Recovered positions for every head width, base, noise and length.

    distinct: number of different frequencies, each of which several pairs repeat; None if all
    pairs differ.
    """

    samples: int
    vector: str
    distinct: int | None
    rows: tuple[PositionRecovery, ...]


class _Case(NamedTuple):
    """What is the same for all bases and noises: vectors, their positions, and the noise."""

    u: Tensor  # [N, D], of length 1
    g: Tensor  # [N, D], of variance 1 / D
    positions: Tensor  # [N]


@torch.no_grad()
def recoverability(
    head_dims: Sequence[int] = (16, 32, 64, 128),
    bases: Sequence[float] = (100.0, 10_000.0, 1_000_000.0),
    noises: Sequence[float] = _NOISES,
    lengths: Sequence[int] = (1024,),
    *,
    vector: VectorKind = "random",
    distinct: int | None = None,
    samples: int = 1000,
    seed: int = 0,
) -> Recoverability:
    """Accuracy and error of positions that are read from noisy rotated vectors.

    noises: length of the noise relative to that of the vector. distinct: use only so many
    frequencies of the base, each in several pairs, to see what repetition is worth; it must divide
    the number of pairs. All bases and noises get the same vectors and the same noise, so
    differences between rows are not chance alone; a row does not depend on the other rows.

    >>> found = recoverability((16, 128), (10_000.0,), (0.0, 1.0), (256,))
    >>> [(row.head_dim, row.noise, row.accuracy) for row in found.rows]
    [(16, 0.0, 1.0), (16, 1.0, 0.204), (128, 0.0, 1.0), (128, 1.0, 0.828)]
    """
    widths = check_ints(head_dims, "head_dims", "recoverability", 2, 2**16)
    spans = check_ints(lengths, "lengths", "recoverability", 2, 2**20)
    strengths = _check_noises(noises)
    if isinstance(bases, str) or not isinstance(bases, Sequence) or not len(bases):
        raise ValueError(f"recoverability: bases must be a list of numbers; got {quote(bases)}.")
    check_int(samples, "samples", "recoverability", 1, 2**20)
    if vector not in get_args(VectorKind):
        raise ValueError(
            f"recoverability: vector must be 'random' or 'equal'; got {quote(vector)}."
        )
    check_memory(16 * max(spans) * (samples + max(widths)), max(spans), "recoverability")
    rows = []
    for head_dim, length in product(widths, spans):
        case = _sample_case(head_dim, length, vector, samples, seed)
        for base in bases:
            rope = _build_rope(head_dim, base, distinct)
            for noise in strengths:
                accuracy, error = _recover(rope, case, noise, length)
                row = PositionRecovery(head_dim, float(base), noise, length, accuracy, error)
                rows.append(row)
    return Recoverability(samples, vector, distinct, tuple(rows))


def _check_noises(noises: object) -> tuple[float, ...]:
    listed = tuple(noises) if isinstance(noises, Sequence) and not isinstance(noises, str) else ()
    numbers = all(type(n) in (int, float) and math.isfinite(n) and n >= 0 for n in listed)
    if not listed or not numbers:
        raise ValueError(
            "recoverability: noises must be a list of numbers >= 0, each the length of the noise"
            f" relative to that of the vector; got {quote(noises)}."
        )
    return tuple(float(n) for n in listed)


def _sample_case(head_dim: int, length: int, vector: VectorKind, samples: int, seed: int) -> _Case:
    source = make_generator(seed, "recoverability")
    positions = torch.randint(length, (samples,), generator=source)
    g = sample_normal(source, samples, head_dim) / math.sqrt(head_dim)
    u = sample_normal(source, samples, head_dim) if vector == "random" else torch.ones_like(g)
    return _Case(u / u.norm(dim=-1, keepdim=True), g, positions)


def _build_rope(head_dim: int, base: float, distinct: int | None) -> RoPE:
    """The rotation of this base, or one that repeats ``distinct`` frequencies of it."""
    if distinct is None:
        return RoPE(head_dim, base=base)
    pairs = head_dim // 2
    check_int(distinct, "distinct", "recoverability", 1, pairs)
    if pairs % distinct:
        raise ValueError(
            "recoverability: distinct must divide the number of pairs, so that each frequency is"
            f" repeated equally often; got {distinct} for {pairs} pairs."
        )
    few = RoPE(2 * distinct, base=base).frequencies().inv_freq
    return RoPE(head_dim, inv_freq=few.repeat_interleave(pairs // distinct))


def _recover(rope: RoPE, case: _Case, noise: float, length: int) -> tuple[float, float]:
    """Accuracy and mean error of the positions with the largest scores."""
    rotated = rope.rotate(case.u[None, None], case.positions)[0, 0]
    y = convert_to_complex(rotated + noise * case.g, rope)
    product_by_pair = y * convert_to_complex(case.u, rope).conj()  # [N, P]
    angles = torch.arange(length, dtype=torch.float64).outer(rope.frequencies().inv_freq)
    scores = (
        torch.cat((product_by_pair.real, product_by_pair.imag), -1)
        @ torch.cat((angles.cos(), angles.sin()), -1).mT
    )  # [N, length]: Re(y conj(u) exp(-i n theta)), summed over pairs
    error = (scores.argmax(-1) - case.positions).abs().double()
    return float((error == 0).double().mean()), float(error.mean())
