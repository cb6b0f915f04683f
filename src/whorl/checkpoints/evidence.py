"""What trained weights say about the layout, as a number with a known distribution.

Pair p of a head turns with angle theta_p, so its rows of q and k act in scores through

    (qa . ka + qb . kb) cos((m - n) theta_p) + (qb . ka - qa . kb) sin((m - n) theta_p)

What training gives the sine parts s_p = (qa . kb - qb . ka) / norms is a smooth function of the
frequency: neighbouring pairs see nearly the same angles. Read with the wrong layout, s_p mixes rows
of different pairs and is noise. So the evidence for a layout is that neighbours agree in sign:

    r_p = sign(s_p s_p') sqrt(|s_p s_p'|) / rms(s)      p' = p + 1, and with weight 1/2, p + 2
    z   = sum r / sqrt(sum r^2)                         over pairs, heads and layers

Were the signs of s independent and even, as they are in weights that know nothing of the pairing,
those of r would be too, and z would have mean 0 and variance 1 whatever the sizes are: that is the
permutation test of flipped signs, without drawing any. Query heads that share a key head are added
before they are squared, as their signs are not independent.

From two z, one for each layout, Bayes gives probabilities of three cases: half, interleaved, and
weights that show neither. ``scripts/calibrate-detector`` measures how often they are right;
docs/detect.md has the numbers, and what was tried and dropped: the norms of rows.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.kernels.ops import Layout
from whorl.kernels.reference import split

__all__ = ["Probabilities", "Sums", "probabilities", "sums_of", "z_of"]

# Measured over layouts that are not there: the spread of z is 1.0 to 1.15, so 1.15 is assumed.
_SPREAD = 1.15
# How large z may become when the layout is there: of no matter within a factor of two.
_REACH = 6.0
#: Models on which the detector was calibrated, all judged rightly or not at all. By Laplace's rule
#: of succession no more than 1 - 1 / (n + 2) follows from that, however clear the weights are.
CALIBRATED_ON = 32


@dataclass(frozen=True)
class Sums:
    """sum r and sum r^2: they add up over heads and layers."""

    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.total + other.total, self.squares + other.squares)


@dataclass(frozen=True)
class Probabilities:
    """Of the two layouts, and of weights that show neither."""

    half: float
    interleaved: float
    neither: float


def sums_of(q: Iterable[Tensor], k: Tensor) -> dict[Layout, Sums]:
    """The sums of a key head and of the query heads that use it; rotated rows [R, E] only."""
    queries = [_unit(head) for head in q]
    key = _unit(k)
    layouts: tuple[Layout, ...] = ("half", "interleaved")
    return {layout: _sums([_sines(head, key, layout) for head in queries]) for layout in layouts}


def z_of(sums: Sums) -> float:
    """sum r / sqrt(sum r^2), 0 where nothing is known."""
    return sums.total / math.sqrt(sums.squares) if sums.squares > 0 else 0.0


def probabilities(z: Mapping[Layout, float]) -> Probabilities:
    """Bayes' rule over the three cases, which are equally likely beforehand."""
    logs = [_log_factor(z["half"] / _SPREAD), _log_factor(z["interleaved"] / _SPREAD), 0.0]
    top = max(logs)
    parts = [math.exp(log - top) for log in logs]
    most = 1 - 1 / (CALIBRATED_ON + 2)
    half, interleaved, _ = (min(part / sum(parts), most) for part in parts)
    return Probabilities(half, interleaved, 1 - half - interleaved)


def _log_factor(z: float) -> float:
    """log of how much likelier z is when its layout is there than when it is not.

    There: normal with variance 1 around a mean that is itself half-normal with scale _REACH.
    """
    ratio = _REACH**2 / (1 + _REACH**2)
    phi = 0.5 * math.erfc(-z * math.sqrt(ratio / 2))
    return (
        math.log(2)
        - 0.5 * math.log(1 + _REACH**2)
        + 0.5 * z * z * ratio
        + math.log(max(phi, 1e-300))
    )


def _unit(rows: Tensor) -> Tensor:
    rows = rows.float()
    size: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / size.clamp_min(1e-30)


def _sines(q: Tensor, k: Tensor, layout: Layout) -> Tensor:
    """s_p for every pair [P]."""
    (qa, qb), (ka, kb) = (split(rows.T, layout) for rows in (q, k))  # [E, P] each
    return (qa * kb - qb * ka).sum(0).double()


def _sums(heads: list[Tensor]) -> Sums:
    found = Sums()
    for lag, weight in ((1, 1.0), (2, 0.5)):
        r = torch.stack([_agreement(s, lag) for s in heads]).sum(0) * weight
        found += Sums(float(r.sum()), float((r * r).sum()))
    return found


def _agreement(s: Tensor, lag: int) -> Tensor:
    rms = s.square().mean().sqrt()
    if not (torch.isfinite(rms) and rms > 0):
        return torch.zeros_like(s[lag:])
    product = s[lag:] * s[:-lag] / rms.square()
    return product.sign() * product.abs().sqrt()
