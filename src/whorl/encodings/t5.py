"""T5's bias: a trained scalar for each head and bucket of distances, added to the score.

    bias_h(i, j) = weight[bucket(i - j), h]

With N buckets for one direction and E = N // 2: a distance n < E has bucket n; beyond, buckets
grow with the logarithm,

    bucket(n) = min(N - 1, E + floor(log(n / E) / log(max_distance / E) (N - E)))

"bidirectional" halves num_buckets first: N = num_buckets / 2, and keys after the query (i < j)
take the upper half. "causal" gives them bucket 0; the mask hides them. T5 adds this bias to q k^T
itself, without 1 / sqrt(D), hence ``scale``.

Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer, section 2.1, https://arxiv.org/abs/1910.10683. T5 computes the logarithm in float32 at
every call; here that float32 formula is asked once for the first distance of each bucket, and calls
compare integers, so a bucket never depends on the shape or device of its tensor. T5's "relative
position" is j - i, the negative of our distance.

``weight`` is [num_buckets, H], so ``relative_attention_bias.weight`` of T5 (the first layer of each
stack) and of MPNet (``encoder.relative_attention_bias``, scale=None) load as they are.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from whorl._support.options import NonNegativeNumber, PositiveInt, PositiveNumber
from whorl._support.tensors import use_real_tensors

from ._distance import check_distance, select_biases
from .base import Card, Config, Encoding, register, take_options

__all__ = ["T5Bias", "T5BiasConfig"]


@dataclass(frozen=True)
class T5BiasConfig(Config):
    """Options of T5Bias, checked on construction; ``T5Bias`` says what they mean."""

    num_heads: PositiveInt
    _: KW_ONLY
    num_buckets: PositiveInt = 32
    max_distance: PositiveInt = 128
    direction: Literal["bidirectional", "causal"] = "bidirectional"
    scale: PositiveNumber | None = 1.0
    std: NonNegativeNumber | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        both = self.direction == "bidirectional"
        if self.num_buckets < (least := 4 if both else 2):
            raise ValueError(
                f"T5Bias: num_buckets must be an int >= {least}; got {self.num_buckets}."
            )
        if both and self.num_buckets % 2:
            raise ValueError(
                "T5Bias: num_buckets must be even where direction is 'bidirectional', because half"
                f" of them are for keys after the query; got {self.num_buckets}."
            )
        exact = self.one_way // 2
        if self.max_distance <= exact:
            raise ValueError(
                f"T5Bias: max_distance must be above {exact}, because with num_buckets ="
                f" {self.num_buckets} the distances up to {exact - 1} have a bucket each; got"
                f" {self.max_distance}. Raise it, or lower num_buckets."
            )

    @property
    def one_way(self) -> int:
        """The number of buckets for one direction, N."""
        return self.num_buckets // (2 if self.direction == "bidirectional" else 1)


@register("t5")
class T5Bias(Encoding):
    """T5's relative attention bias, by buckets of distance that widen with distance.

    Args:
        num_heads: H.
        num_buckets: of both directions together.
        max_distance: all distances from here on share the last bucket; some before it do too.
        direction: "bidirectional" (encoders) or "causal" (decoders).
        scale: the softmax scale, 1 as in T5; None for the usual 1 / sqrt(D).
        std: standard deviation of the biases at the start. T5's rule is d_model ** -0.5;
            None takes d_model = 64 H, as in T5 small, base and large.

    >>> import torch, whorl
    >>> bias = whorl.make("t5", num_heads=8, direction="causal")
    >>> bias.buckets(torch.tensor([0, 1, 15, 16, 18, 19, 64, 127, 5000])).tolist()
    [0, 1, 15, 16, 16, 17, 26, 31, 31]
    >>> bias.distance_bias(torch.arange(-9, 10)).shape  # T = S = 10: a vector per head
    torch.Size([8, 19])
    """

    fractional: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        formula="w_h[bucket(i - j)]",
        paper="Raffel et al. 2020",
        url="https://arxiv.org/abs/1910.10683",
        relative=True,
        longer="partly",
        linear_attention="no",
        many_axes=False,
        memory="N H parameters, H (T + S) biases; N = num_buckets",
        compute="B H T S additions",
    )
    head_axes: ClassVar[Mapping[str, int]] = {"weight": 1}
    config: T5BiasConfig

    @take_options(T5BiasConfig)
    def __init__(self) -> None:
        config = self.config
        with use_real_tensors():
            self._starts = _compute_bucket_starts(config.one_way, config.max_distance)
        self.weight = nn.Parameter(torch.empty(config.num_buckets, config.num_heads))
        self.reset_parameters()

    def buckets(self, distance: Tensor) -> Tensor:
        """The bucket of each distance i - j: int64, shaped as ``distance``."""
        distance = check_distance(distance, "T5Bias", kind="whole")
        starts = torch.tensor(self._starts, device=distance.device)
        if self.config.direction == "causal":
            return torch.bucketize(distance, starts, right=True)  # a distance below 0 has bucket 0
        after = (distance < 0) * self.config.one_way
        return torch.bucketize(distance.abs(), starts, right=True) + after

    def distance_bias(self, distance: Tensor) -> Tensor:
        """The trained biases of distances i - j: [H, ...] for whole distances of any shape."""
        return select_biases(self.weight, self.buckets(distance))

    def softmax_scale(self, head_dim: int) -> float | None:
        """``scale`` instead of 1 / sqrt(D)."""
        return self.config.scale

    def acts(self, method: str) -> bool:
        if method == "softmax_scale":
            return self.config.scale is not None
        return super().acts(method)

    def reset_parameters(self) -> None:
        """Draw the biases afresh, as is needed after ``to_empty``."""
        nn.init.normal_(self.weight, std=self._get_std())

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        return {"std": self._get_std()}

    def _get_std(self) -> float:
        config = self.config
        return float((64 * config.num_heads) ** -0.5) if config.std is None else config.std


def _compute_bucket_starts(count: int, max_distance: int) -> tuple[int, ...]:
    """The first distance of each of ``count`` buckets but bucket 0, by T5's float32 formula."""
    exact = count // 2
    level = torch.arange(1, count - exact, device="cpu")  # of the buckets past bucket ``exact``
    low, high = torch.full_like(level, exact), torch.full_like(level, max_distance)
    while bool((low < high).any()):  # bisection, for all buckets at once
        middle = (low + high) // 2
        reached = torch.log(middle.float() / exact) / math.log(max_distance / exact)
        enough = (reached * (count - exact)).to(torch.int64) >= level
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
    return (*range(1, exact + 1), *low.tolist())
