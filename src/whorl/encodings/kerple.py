"""KERPLE: a penalty on the score that grows with the logarithm, or a power, of distance.

    "log"      bias_h(i, j) = -r1_h log(1 + r2_h |i - j|)      r1, r2 > 0
    "power"    bias_h(i, j) = -r1_h |i - j| ** r2_h            r1 > 0, 0 < r2 <= 2

Both are conditionally positive definite kernels of distance, with r1 and r2 trained per head;
ALiBi is the power kind at r2 = 1. Chi et al. 2022, KERPLE: Kernelized Relative Positional Embedding
for Length Extrapolation, https://arxiv.org/abs/2205.09921.

Different from the released code (https://github.com/chijames/KERPLE): there r1 and r2 are trained
themselves and clamped to 0.01 and above (r2 to 2 and below) at every call, which stops a gradient
at the border. Here r = exp(raw), or r = 2 sigmoid(raw) for the exponent, so nothing need be
clamped. The start is theirs: log r1 uniform in (0, 2), r2 in (0, 1); power r1 in (0, 1), r2 in
(0, 2); nothing below 0.01. Their weights: ``set_rates(bias_p, bias_a)`` for log,
``set_rates(bias_a, bias_p)`` for power.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import PositiveInt
from whorl._support.tensors import has_values

from ._distance import add_distance_axes, check_distance, find_result_dtype
from .base import Card, Config, Encoding, register, take_options

__all__ = ["Kerple", "KerpleConfig"]

_LEAST = 0.01  # of r1 and r2 at the start, as in the released code
# The exponent reaches 2 only for raw = inf, which no optimiser could move again.
_MOST = 2.0 - 1e-6


@dataclass(frozen=True)
class KerpleConfig(Config):
    """Options of Kerple, checked on construction; ``Kerple`` says what they mean."""

    num_heads: PositiveInt
    _: KW_ONLY
    kind: Literal["log", "power"] = "log"


@register("kerple")
class Kerple(Encoding):
    """A trained kernel of distance for each head; the paper singles out "log".

    Trained: raw_r1 [H] and raw_r2 [H]; ``rates`` gives r1 and r2.

    >>> import torch, whorl
    >>> kerple = whorl.make("kerple", num_heads=2)
    >>> kerple.set_rates([1.0, 2.0], [1.0, 0.5])
    >>> [round(b, 4) for b in kerple.distance_bias(torch.arange(1, 4))[0].tolist()]
    [-0.6931, -1.0986, -1.3863]
    """

    card: ClassVar[Card] = Card(
        formula="-r1 log(1 + r2 |i - j|), or -r1 |i - j|^r2",
        paper="Chi et al. 2022",
        url="https://arxiv.org/abs/2205.09921",
        relative=True,
        longer="yes",
        linear_attention="no",
        many_axes=False,
        memory="2 H parameters, H (T + S) biases",
        compute="B H T S additions",
    )
    head_axes: ClassVar[Mapping[str, int]] = {"raw_r1": 0, "raw_r2": 0}
    config: KerpleConfig

    @take_options(KerpleConfig)
    def __init__(self) -> None:
        self.raw_r1 = nn.Parameter(torch.empty(self.config.num_heads))
        self.raw_r2 = nn.Parameter(torch.empty(self.config.num_heads))
        self.reset_parameters()

    def rates(self) -> tuple[Tensor, Tensor]:
        """r1 and r2 in force: float64 [H] each, inside their bounds, with gradients."""
        r1, raw_r2 = self.raw_r1.double().exp(), self.raw_r2.double()
        return r1, raw_r2.exp() if self.config.kind == "log" else 2.0 * raw_r2.sigmoid()

    @torch.no_grad()
    def set_rates(self, r1: Tensor | Sequence[float], r2: Tensor | Sequence[float]) -> None:
        """Train on from these r1 and r2, one of each per head; any shape with H numbers serves."""
        r1 = self._check_rates(r1, "r1", math.inf)
        self.raw_r1.copy_(r1.log())
        if self.config.kind == "log":
            self.raw_r2.copy_(self._check_rates(r2, "r2", math.inf).log())
        else:
            self.raw_r2.copy_((self._check_rates(r2, "r2", 2.0).clamp(max=_MOST) / 2.0).logit())

    def _check_rates(self, rates: Tensor | Sequence[float], name: str, most: float) -> Tensor:
        """Rates as float64 [H]; refuse another number of them, or any out of bounds."""
        r, heads = torch.as_tensor(rates, dtype=torch.float64), self.config.num_heads
        if r.numel() != heads:
            raise ValueError(
                f"Kerple.set_rates: {name} must hold {heads} numbers, one per head;"
                f" got {list(r.shape)}."
            )
        if has_values(r) and not bool(((r > 0) & (r <= most) & r.isfinite()).all()):
            bounds = "finite and above 0" if most == math.inf else f"above 0 and at most {most:g}"
            raise ValueError(
                f"Kerple.set_rates: {name} must be {bounds}, else the bias is no kernel;"
                f" got {r.flatten().tolist()[:8]}."
            )
        return r.reshape(heads)

    def distance_bias(self, distance: Tensor) -> Tensor:
        """The kernel of each head, [H, ...] for distances i - j of any shape, whole or fractional.

        Formed in float64 and rounded once, to float32 unless distances or parameters are float64.
        """
        distance = check_distance(distance, "Kerple", kind="any")
        r1, r2 = (add_distance_axes(r, distance) for r in self.rates())
        apart = distance.abs().double()
        if self.config.kind == "log":
            grown = torch.log1p(r2 * apart)
        else:
            # The slope of |d| ** r2 at 0 is infinite for r2 < 1, and infinity times the slope 0 of
            # |d| is NaN. So 0 takes no part in the power, and passes no gradient.
            here = apart == 0
            grown = torch.where(here, 0.0, torch.where(here, 1.0, apart) ** r2)
        return (-r1 * grown).to(find_result_dtype(distance, self.raw_r1))

    def reset_parameters(self) -> None:
        """Draw r1 and r2 as the released code does; needed after ``to_empty``."""
        widths = (2.0, 1.0) if self.config.kind == "log" else (1.0, 2.0)
        r1, r2 = (torch.rand_like(self.raw_r1, dtype=torch.float32) * width for width in widths)
        self.set_rates(r1.clamp(min=_LEAST), r2.clamp(min=_LEAST))
