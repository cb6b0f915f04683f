"""Why linear attention does not rotate its denominator: what becomes of it if it does.

    naive      sum_j [R_i phi(q_i)] [R_j phi(k_j)]       rotated as the numerator is
    form one   sum_j phi(q_i) phi(k_j)                   not rotated
    form two   sum_j 1 + cosine of R_i q_i and R_j k_j   rotated, but no term is below 0

Su et al. 2021, RoFormer, section 3.3, https://arxiv.org/abs/2104.09864, has the two forms, which
``linear_attention`` computes. The naive one is here as a failure to look at: a pair of channels
that has turned often between the tokens adds nothing on average, so what is left gets small and,
once the slowest pairs have turned too, negative.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl.attention.linear.features import KEY, QUERY, FeatureMap, Features, unscaling
from whorl.encodings import Encoding

__all__ = ["Denominator", "Denominators", "denominators"]


class Denominator(NamedTuple):
    """Of all queries, relative to the mean without a rotation.

    lowest: the smallest, below 0 if any is. nearest: the smallest distance from 0. negative: the
    share of queries whose denominator is below 0.
    """

    lowest: float
    nearest: float
    negative: float


class Denominators(NamedTuple):
    """Of ``length`` tokens, each seeing all: by the naive form and by those that are used."""

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
    """How small and how negative denominators of linear attention get, by length.

    For random queries and keys, in float64. encoding: a rotation of tokens on one axis.

    >>> import whorl
    >>> near, far = whorl.analysis.denominators(whorl.RoPE(16), [64, 4096])
    >>> near.naive.negative == 0, far.naive.negative > 0, far.naive.lowest < 0
    (True, True, True)
    >>> far.form_one.lowest > 0.3, far.form_two.lowest > 0.9
    (True, True)
    """
    rotation = _rotation(encoding)
    _check(lengths, feature_map, num_heads, seed)
    found = []
    for length in lengths:
        generator = torch.Generator().manual_seed(seed)
        shape = (1, num_heads, length, rotation.config.head_dim)  # type: ignore[attr-defined]
        q, k = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        rotated, plain = _sums(rotation, feature_map, q, k)
        cosine, _ = _sums(rotation, "cosine", q, k)
        still, _ = _sums(None, "cosine", q, k)
        naive, one = (_measured(sums, plain) for sums in (rotated, plain))
        found.append(Denominators(length, naive, one, _measured(cosine, still)))
    return found


def _sums(
    rotation: Encoding | None, kind: FeatureMap, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Denominators [1, H, T] from features of the numerator, and from those of the denominator."""
    length = q.shape[2]
    undo = unscaling(rotation, length, q, q.dtype)
    features = Features(kind, q.dtype, rotation, length, undo)
    queries, keys = features.of(q, (None, 0), QUERY), features.of(k, (None, 0), KEY)
    above = (queries.f * keys.f.sum(2, keepdim=True)).sum(-1)
    return above, (queries.g * keys.g.sum(2, keepdim=True)).sum(-1)


def _measured(sums: Tensor, unrotated: Tensor) -> Denominator:
    relative = sums / unrotated.mean()
    negative = (relative < 0).double().mean()
    return Denominator(float(relative.min()), float(relative.abs().min()), float(negative))


def _rotation(encoding: Encoding) -> Encoding:
    """The part that rotates."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"denominators: encoding must be a whorl.Encoding; got {encoding!r}.")
    found = [part for part in encoding.parts if part.acts("forward")]
    sized = found and type(getattr(found[0].config, "head_dim", None)) is int
    if not sized or encoding.position_axes > 1 or encoding.causal:
        raise ValueError(
            "denominators: encoding must rotate tokens on one axis that all see each other, as RoPE"
            f" does; got {encoding!r}."
        )
    return found[0]


def _check(lengths: Sequence[int], feature_map: str, num_heads: int, seed: int) -> None:
    listed = isinstance(lengths, Sequence) and len(lengths) > 0
    if not listed or not all(type(n) is int and n > 0 for n in lengths):
        raise ValueError(f"denominators: lengths must be a list of ints above 0; got {lengths!r}.")
    if type(num_heads) is not int or num_heads < 1:
        raise ValueError(f"denominators: num_heads must be an int above 0; got {num_heads!r}.")
    if feature_map not in ("elu", "relu"):
        raise ValueError(
            "denominators: feature_map must be 'elu' or 'relu', which form one has; got"
            f" {feature_map!r}."
        )
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise ValueError(f"denominators: seed must be an int of 64 bits; got {seed!r}.")
