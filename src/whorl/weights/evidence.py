"""What trained weights say about the layout, as a number with a known distribution.

Pair p of a head rotates by theta_p per position, so its rows of q and k act in scores through

    (qa . ka + qb . kb) cos((m - n) theta_p) + (qb . ka - qa . kb) sin((m - n) theta_p)

What training gives the sine parts s_p = (qa . kb - qb . ka) / norms is a smooth function of the
frequency: neighbouring pairs see nearly the same angles. Read with the wrong layout, s_p mixes rows
of different pairs and is noise. So the evidence for a layout is that neighbours agree in sign:

    r_p = sign(s_p s_p') sqrt(|s_p s_p'|) / rms(s)      p' = p + 1, and with weight 1/2, p + 2
    t   = sum r / sqrt(sum r^2)                         over pairs, heads and layers

Were the signs of s independent and even, those of r would be too, and t would have mean 0 and
variance 1 whatever the sizes are: that is the permutation test of flipped signs, without drawing
any. Query heads that share a key head are added before they are squared, as their signs are not
independent.

But rows can be smooth without any rotation: drawn as a random walk, blurred, interpolated. Then
neighbours agree in sign however rows are paired. So the same t is taken of pairings that no model
has, the second rows moved on by 1, 2 ... 31 pairs, with mean m and deviation d. What only the true
pairing has is

    z = (t - m+) / sqrt(max(1, d)^2 + (m+ / 2)^2)       m+ = max(m, 0)

Pairings that are there for no reason have m about 0 and d about 1 in trained models. m+ / 2 stands
for what smooth rows give one pairing more than the next, which depends on the distance of its rows.

From two z, one for each layout, Bayes gives probabilities of three cases: half, interleaved, and
weights that show neither. ``scripts/calibrate-detector`` measures how often they are right;
docs/detect.md has the numbers, and what was tried and dropped: the norms of rows.

The same z of q read in one layout and k in the other finds weights of which only one was converted.
Such crossings are taken to be rarer, and do not change the probabilities of the three cases.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whorl.kernels.reference import split_pairs
from whorl.types import Layout

__all__ = [
    "CROSSINGS",
    "LAYOUTS",
    "NO_SUMS",
    "PAIRINGS",
    "Crossing",
    "Pairing",
    "Probabilities",
    "compute_crossed_probabilities",
    "compute_probabilities",
    "compute_products",
    "compute_strength",
    "compute_z",
    "sum_agreement",
]

Crossing = Literal["q half, k interleaved", "q interleaved, k half"]
#: How pairs of q meet pairs of k: both in a layout, or each in one of its own.
Pairing = Layout | Crossing
LAYOUTS: tuple[Layout, ...] = ("half", "interleaved")
#: The layouts of q and of k.
CROSSINGS: dict[Crossing, tuple[Layout, Layout]] = {
    "q half, k interleaved": ("half", "interleaved"),
    "q interleaved, k half": ("interleaved", "half"),
}
#: All pairings, with the layouts of q and of k.
PAIRINGS: dict[Pairing, tuple[Layout, Layout]] = {
    **dict(zip(LAYOUTS, zip(LAYOUTS, LAYOUTS, strict=True), strict=True)),
    **dict(CROSSINGS.items()),
}

# Measured over layouts that are not there: the spread of z is 1.0 to 1.15, so 1.15 is assumed.
_SPREAD = 1.15
# Pairings that are not there: as many as heads of 64 channels have, for all heads.
_CONTROLS = 31
# With fewer pairs there are too few other pairings, and too few neighbours in them.
_FEWEST_PAIRS = 4
# How large z may become when the layout is there: of no matter within a factor of two.
_MEAN_SCALE = 6.0
#: Models on which the detector was calibrated, all judged rightly or not at all. By Laplace's rule
#: of succession no more than 1 - 1 / (n + 2) follows from that, however clear the weights are.
#: With a second training 63 of 64 were right, from which 64 / 66 follows, which is hardly more.
CALIBRATED_ON = 30
_MOST = 1 - 1 / (CALIBRATED_ON + 2)
# How likely a crossing is beforehand, as a part of how likely a layout is.
_RARER = 0.1


#: Sums over no heads: sum r and sum r^2, of the pairing and then of its controls, [2, 1 + C].
NO_SUMS = torch.zeros(2, 1 + _CONTROLS, dtype=torch.float64)


@dataclass(frozen=True)
class Probabilities:
    """Of the two layouts, and of weights that show neither."""

    half: float
    interleaved: float
    neither: float


def compute_products(q: Iterable[Tensor], k: Tensor) -> Tensor:
    """Cosines [H, R, R] of rows of the query heads with rows of the key head that they use.

    q and k are rotated rows [R, E] only. Heads with numbers that are not finite count for nothing.
    """
    key = _normalize_rows(k)
    return torch.stack([_normalize_rows(head) @ key.T for head in q])


def sum_agreement(products: Tensor) -> dict[Pairing, Tensor]:
    """The sums of a key head and its query heads for each pairing; they add up over heads."""
    return {name: _sum_pairing(products, *layouts) for name, layouts in PAIRINGS.items()}


def compute_z(sums: Tensor) -> float:
    """z of the formula above, 0 where nothing is known."""
    total, squares = sums
    t = total / squares.sqrt().clamp_min(1e-300)
    smooth = max(float(t[1:].mean()), 0.0)
    spread = max(float(t[1:].std(correction=0)), 1.0)
    return (float(t[0]) - smooth) / math.hypot(spread, smooth / 2)


def compute_probabilities(z: Mapping[Layout, float]) -> Probabilities:
    """Bayes' rule over the three cases, which are equally likely beforehand."""
    half, interleaved, _ = _normalize_logs([*map(_log_factor, (z["half"], z["interleaved"])), 0.0])
    return Probabilities(half, interleaved, 1 - half - interleaved)


def compute_crossed_probabilities(
    z: Mapping[Layout, float], crossed: Mapping[Crossing, float]
) -> dict[Crossing, float]:
    """Bayes' rule over five cases: the two crossings, the two layouts, and none of them."""
    rare = [_log_factor(one) + math.log(_RARER) for one in crossed.values()]
    shares = _normalize_logs([*rare, *map(_log_factor, z.values()), 0.0])
    return dict(zip(crossed, shares, strict=False))


def compute_strength(pairing: Pairing, z: float) -> float:
    """The probability of a pairing if there is only it or none: others may be there as well."""
    rare = math.log(_RARER) if pairing in CROSSINGS else 0.0
    return _normalize_logs([_log_factor(z) + rare, 0.0])[0]


def _normalize_logs(logs: list[float]) -> list[float]:
    """Probabilities of cases from the logarithms of their weights."""
    parts = [math.exp(log - max(logs)) for log in logs]
    return [min(part / sum(parts), _MOST) for part in parts]


def _log_factor(z: float) -> float:
    """log of how much likelier z is when its layout is there than when it is not.

    There: normal with variance 1 around a mean that is itself half-normal with scale _MEAN_SCALE.
    """
    z /= _SPREAD
    ratio = _MEAN_SCALE**2 / (1 + _MEAN_SCALE**2)
    phi = 0.5 * math.erfc(-z * math.sqrt(ratio / 2))
    return (
        math.log(2)
        - 0.5 * math.log(1 + _MEAN_SCALE**2)
        + 0.5 * z * z * ratio
        + math.log(max(phi, 1e-300))
    )


def _normalize_rows(rows: Tensor) -> Tensor:
    rows = rows.double()
    size: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / size.clamp_min(1e-30)


def _sum_pairing(products: Tensor, q_layout: Layout, k_layout: Layout) -> Tensor:
    rows = torch.arange(products.shape[-1])
    (qa, qb), (ka, kb) = split_pairs(rows, q_layout), split_pairs(rows, k_layout)  # [P] each
    pairs = len(qa)
    if pairs < _FEWEST_PAIRS:
        return NO_SUMS
    moved = torch.tensor([0, *(1 + n % (pairs - 1) for n in range(_CONTROLS))])
    partner = (torch.arange(pairs) + moved[:, None]) % pairs  # [C, P]
    s = products[:, qa, kb[partner]] - products[:, qb[partner], ka]  # [H, C, P]
    found = NO_SUMS
    for lag, weight in ((1, 1.0), (2, 0.5)):
        # Where partners begin again with the first pair, neighbours are none.
        neighbours = partner[:, lag:] > partner[:, :-lag]
        r = weight * (_compute_agreement(s, lag) * neighbours).sum(0)
        found = found + torch.stack((r.sum(-1), r.square().sum(-1)))
    return found


def _compute_agreement(s: Tensor, lag: int) -> Tensor:
    rms = s.square().mean(-1, keepdim=True).sqrt()
    known = torch.isfinite(rms) & (rms > 0)
    product = s[..., lag:] * s[..., :-lag] / rms.square()
    return torch.where(known, product.sign() * product.abs().sqrt(), 0.0)
