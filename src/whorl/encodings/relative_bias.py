"""A trained scalar for each head and distance, added to the score: no formula, no buckets.

    bias_h(i, j) = weight[clip(i - j, -max_future, max_distance) + max_future, h]

Distances past a clip share the bias of the last one. The scalar in place of a relative vector is
Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683, there with buckets; one scalar
for each offset is Liu et al. 2021, Swin Transformer, https://arxiv.org/abs/2103.14030, there for
the rows and columns of a window.

``weight`` is [max_future + 1 + max_distance, H], from the farthest key after the query to the
farthest before it: ``relative_position_bias_table`` of a Swin window of one row loads as it is.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from whorl._support.options import NonNegativeNumber, PositiveInt, Size

from ._distance import check_distance, select_biases
from .base import Card, Config, Encoding, register, take_options

__all__ = ["RelativeBias", "RelativeBiasConfig"]


@dataclass(frozen=True)
class RelativeBiasConfig(Config):
    """Options of RelativeBias, checked on construction; ``RelativeBias`` says what they mean."""

    num_heads: PositiveInt
    _: KW_ONLY
    max_distance: Size = 128
    max_future: Size | None = None
    std: NonNegativeNumber = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_distance + self.future == 0:
            raise ValueError(
                "RelativeBias: max_distance + max_future must be at least 1, because one bias for"
                " all distances tells nothing; got 0 + 0. Raise one of them."
            )

    @property
    def future(self) -> int:
        """The last distance after the query that has a bias of its own."""
        return self.max_distance if self.max_future is None else self.max_future


@register("relative_bias")
class RelativeBias(Encoding):
    """A trained bias for every distance up to a clip, on each side of the query.

    Args:
        num_heads: H.
        max_distance: the last distance i - j with a bias of its own; all beyond share it.
        max_future: the same for keys after the query, j - i; ``max_distance`` by default, 0 for
            causal attention, where the mask hides them.
        std: standard deviation of the biases at the start; 0 starts without any.

    >>> import torch, whorl
    >>> bias = whorl.make("relative_bias", num_heads=2, max_distance=2, max_future=1)
    >>> with torch.no_grad():
    ...     _ = bias.weight[:, 0].copy_(torch.tensor([9.0, 0.0, 1.0, 2.0]))  # -1, 0, 1, 2
    >>> bias.distance_bias(torch.arange(-3, 5))[0].tolist()
    [9.0, 9.0, 9.0, 0.0, 1.0, 2.0, 2.0, 2.0]
    """

    fractional: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        formula="w_h[clip(i - j)]",
        paper="Raffel et al. 2020; Liu et al. 2021",
        url="https://arxiv.org/abs/1910.10683",
        relative=True,
        longer="partly",
        linear_attention="no",
        many_axes=False,
        memory="N H parameters, H (T + S) biases; N = future + past + 1",
        compute="B H T S additions",
    )
    head_axes: ClassVar[Mapping[str, int]] = {"weight": 1}
    config: RelativeBiasConfig

    @take_options(RelativeBiasConfig)
    def __init__(self) -> None:
        rows = self.config.future + 1 + self.config.max_distance
        self.weight = nn.Parameter(torch.empty(rows, self.config.num_heads))
        self.reset_parameters()

    def distance_bias(self, distance: Tensor) -> Tensor:
        """The trained biases of distances i - j: [H, ...] for whole distances of any shape."""
        config = self.config
        distance = check_distance(distance, "RelativeBias", kind="whole")
        rows = distance.clamp(-config.future, config.max_distance) + config.future
        return select_biases(self.weight, rows)

    def reset_parameters(self) -> None:
        """Draw the biases afresh, as is needed after ``to_empty``."""
        nn.init.normal_(self.weight, std=self.config.std)
