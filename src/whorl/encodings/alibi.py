"""ALiBi: a penalty on the score that grows linearly with distance, at a rate of its own per head.

    bias_h(i, j) = -m_h |i - j|       m_h = 2 ** (-max_bias h / H), h = 1 .. H, max_bias = 8

for H a power of two. Otherwise, with P the power of two below H, the P slopes of P heads are
followed by the first H - P of those that 2 P heads would have between them, h = 1, 3, 5 ...

Press et al. 2021, Train Short, Test Long, https://arxiv.org/abs/2108.12409. One formula serves
causal and symmetric attention: under a causal mask only i >= j is seen, so |i - j| is i - j.
BLOOM adds m_h j instead, MPT m_h (j - S + 1); both differ from this by a constant per query, which
softmax ignores. Slopes are those of BLOOM, MPT and Falcon for every number of heads.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import NonNegativeInt, PositiveInt, PositiveNumber

from ._distance import add_distance_axes, check_distance, find_result_dtype
from .base import Card, Config, Encoding, register, take_options

__all__ = ["ALiBi", "ALiBiConfig"]


@dataclass(frozen=True)
class ALiBiConfig(Config):
    """Options of ALiBi, checked on construction; ``ALiBi`` says what they mean."""

    num_heads: PositiveInt
    _: KW_ONLY
    max_bias: PositiveNumber = 8.0
    slopes: Literal["fixed", "trained"] = "fixed"
    slope_scale: PositiveNumber = 1.0
    first_head: NonNegativeInt = 0
    total_heads: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_head + self.num_heads > self.all_heads:
            raise ValueError(
                "ALiBi: first_head + num_heads must be at most total_heads, because they are some"
                f" of those; got {self.first_head} + {self.num_heads} of {self.all_heads}."
            )

    @property
    def all_heads(self) -> int:
        """Heads of the model, of which these may be some."""
        return self.num_heads if self.total_heads is None else self.total_heads


@register("alibi")
class ALiBi(Encoding):
    """Attention with linear biases, for any number of heads, causal or symmetric.

    Args:
        num_heads: H.
        max_bias: the last slope is 2 ** -max_bias; MPT's alibi_bias_max.
        slopes: "trained" learns alpha in m_h exp(alpha_h), starting from 0: the slopes stay
            positive and begin at the fixed ones.
        slope_scale: multiplies every slope. Falcon adds its bias before the softmax scale, which
            is head_dim ** -0.5 here.
        first_head, total_heads: these are ``num_heads`` of the ``total_heads`` of a model, from
            ``first_head`` on, where processes share the heads; ``shard_heads`` sets both.

    >>> import torch, whorl
    >>> alibi = whorl.make("alibi", num_heads=4)
    >>> alibi.slopes().tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi.distance_bias(torch.arange(-1, 3))[0].tolist()  # distances i - j; head 0
    [-0.25, 0.0, -0.25, -0.5]
    """

    card: ClassVar[Card] = Card(
        formula="-m_h |i - j|, m_h = 2^(-8 h / H)",
        paper="Press et al. 2021",
        url="https://arxiv.org/abs/2108.12409",
        relative=True,
        longer="yes",
        linear_attention="causal",
        many_axes=False,
        memory="H (T + S) biases",
        compute="B H T S additions",
    )
    head_axes: ClassVar[Mapping[str, int]] = {"alpha": 0}
    config: ALiBiConfig

    @take_options(ALiBiConfig)
    def __init__(self) -> None:
        heads, first = self.config.num_heads, self.config.first_head
        slopes = _compute_slopes(self.config.all_heads, self.config.max_bias)
        self._fixed = [m * self.config.slope_scale for m in slopes[first : first + heads]]
        if self.config.slopes == "trained":
            self.alpha = nn.Parameter(torch.zeros(heads))

    def slopes(self) -> Tensor:
        """The slopes m_h in force: float64 [H], all positive, with gradients where trained."""
        if self.config.slopes == "fixed":
            return torch.tensor(self._fixed, dtype=torch.float64, device="cpu")
        fixed = torch.tensor(self._fixed, dtype=torch.float64, device=self.alpha.device)
        return fixed * self.alpha.double().exp()

    def decay_slopes(self) -> Tensor:
        return self.slopes()

    def distance_bias(self, distance: Tensor) -> Tensor:
        """-m_h |distance|, [H, ...] for distances i - j of any shape, whole or fractional.

        Formed in float64 and rounded once, to float32 unless distances or slopes are float64.
        """
        distance = check_distance(distance, "ALiBi", kind="any")
        trained = [self.alpha] if self.config.slopes == "trained" else []
        dtype = find_result_dtype(distance, *trained)
        return (add_distance_axes(self.slopes(), distance) * -distance.abs()).to(dtype)

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        config = self.config
        first = config.first_head + rank * (config.num_heads // world)
        return {"first_head": first, "total_heads": config.all_heads}

    def reset_parameters(self) -> None:
        """Take trained slopes back to the fixed ones, as is needed after ``to_empty``."""
        if self.config.slopes == "trained":
            nn.init.zeros_(self.alpha)


def _compute_slopes(heads: int, max_bias: float) -> list[float]:
    power = 1 << (heads.bit_length() - 1)  # the largest power of two <= heads
    ladder: list[float] = [2.0 ** (-max_bias * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-max_bias * h / (2 * power)) for h in range(1, 2 * power, 2)]
    return ladder + between[: heads - power]
