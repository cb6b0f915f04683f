"""Why linear attention does not rotate its denominator: the denominator if it did.

    naive      sum_j [R_i phi(q_i)] [R_j phi(k_j)]       rotated like the numerator
    form one   sum_j phi(q_i) phi(k_j)                   not rotated
    form two   sum_j 1 + cosine of R_i q_i and R_j k_j   rotated, but no term is below 0

``linear_attention`` computes the two forms of Su et al. 2021, RoFormer, section 3.3,
https://arxiv.org/abs/2104.09864. The naive form is here to show that it fails: a pair of channels
that rotates many times between two tokens contributes 0 on average, so the sum gets small and, once
the slowest pairs have rotated too, negative.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.attention.linear.features import KEY, QUERY, FeatureMap, Features, compute_unscaling
from whorl.encodings import Encoding

from .record import check_int, check_ints, make_generator, sample_normal

__all__ = ["Denominator", "Denominators", "denominators"]

# A denominator that is small relative to the mean: it multiplies the numerator by 20 or more.
_SMALL = 0.05


class Denominator(NamedTuple):
    """Denominators of all queries, relative to the mean without a rotation.

    lowest: the smallest one, perhaps negative. nearest: the smallest absolute value. negative: the
    share of queries with a negative denominator. small: the share with one below 0.05, negative
    ones included.
    """

    lowest: float
    nearest: float
    negative: float
    small: float


class Denominators(NamedTuple):
    """Denominators for ``length`` tokens without a mask, in the naive and the two used forms."""

    length: int
    naive: Denominator
    form_one: Denominator
    form_two: Denominator


@torch.no_grad()
def denominators(
    encoding: Encoding,
    lengths: Sequence[int] = (16, 64, 256, 1024, 4096),
    *,
    feature_map: Literal["elu", "relu"] = "elu",
    num_heads: int = 8,
    seed: int = 0,
) -> list[Denominators]:
    """How small, and whether negative, denominators of linear attention become, by length.

    For random queries and keys, in float64. encoding: a rotation with positions on one axis.

    >>> import whorl
    >>> near, far = whorl.analysis.denominators(whorl.RoPE(16), [64, 4096])
    >>> near.naive.negative == 0, far.naive.negative > 0, far.naive.lowest < 0
    (True, True, True)
    >>> far.form_one.lowest > 0.3, far.form_two.lowest > 0.9
    (True, True)
    """
    rotation = _find_rotation(encoding)
    check_ints(lengths, "lengths", "denominators")
    check_int(num_heads, "num_heads", "denominators")
    if feature_map not in ("elu", "relu"):
        raise ValueError(
            "denominators: feature_map must be 'elu' or 'relu', those of form one; got"
            f" {quote(feature_map)}."
        )
    found = []
    for length in lengths:
        generator = make_generator(seed, "denominators")
        shape = (1, num_heads, length, rotation.config.head_dim)  # type: ignore[attr-defined]
        q, k = (sample_normal(generator, *shape) for _ in range(2))
        rotated, plain = _compute_denominators(rotation, feature_map, q, k)
        cosine, _ = _compute_denominators(rotation, "cosine", q, k)
        still, _ = _compute_denominators(None, "cosine", q, k)
        naive, one = (_summarize(sums, plain) for sums in (rotated, plain))
        found.append(Denominators(length, naive, one, _summarize(cosine, still)))
    return found


def _compute_denominators(
    rotation: Encoding | None, kind: FeatureMap, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Denominators [1, H, T] from rotated features and from unrotated ones."""
    length = q.shape[2]
    unscaling = compute_unscaling(rotation, length, q, q.dtype)
    features = Features(kind, q.dtype, rotation, length, unscaling)
    queries, keys = features.compute(q, (None, 0), QUERY), features.compute(k, (None, 0), KEY)
    rotated = (queries.numerator * keys.numerator.sum(2, keepdim=True)).sum(-1)
    return rotated, (queries.denominator * keys.denominator.sum(2, keepdim=True)).sum(-1)


def _summarize(sums: Tensor, unrotated: Tensor) -> Denominator:
    relative = sums / unrotated.mean()
    negative, small = ((relative < bound).double().mean() for bound in (0.0, _SMALL))
    return Denominator(
        float(relative.min()), float(relative.abs().min()), float(negative), float(small)
    )


def _find_rotation(encoding: Encoding) -> Encoding:
    """The part of an encoding that rotates; raises if linear attention cannot use it."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"denominators: encoding must be a whorl.Encoding; got {quote(encoding)}.")
    found = [part for part in encoding.parts if part.acts("forward")]
    sized = found and type(getattr(found[0].config, "head_dim", None)) is int
    if not sized or encoding.position_axes > 1 or encoding.causal:
        raise ValueError(
            "denominators: encoding must be a rotation with one axis of positions that works"
            f" without a causal mask, as RoPE does; got {quote(encoding)}."
        )
    return found[0]
