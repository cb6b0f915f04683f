"""Encodings for each check of the conformance suite that fail that check and no other."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

import whorl
from whorl.encodings.base import Scorer

from .sound import Bucket, Cool, Lookback, PerHead, Slope


class Forgetful(whorl.RoPE):
    """config_round_trip: the dictionary leaves the base out."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": "forgetful", "head_dim": self.config.head_dim}


class Mute(whorl.RoPE):
    """repr_round_trip: the repr says nothing."""

    def __repr__(self) -> str:
        return f"Mute({self.config.head_dim})"


class Clinging(whorl.RoPE):
    """pickle_round_trip: holds on to a function that cannot be pickled."""

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.helper = lambda x: x


class Hoarder(whorl.RoPE):
    """state_dict: a constant is saved with the weights."""

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.register_buffer("constant", torch.ones(1, device="cpu"))


class Promoting(whorl.RoPE):
    """dtype_kept: half-precision queries come back as float32."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        return (q.float() if q.dtype == torch.bfloat16 else q), k


class Flat(whorl.RoPE):
    """strides: reads memory as if every tensor were contiguous."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_compiling() and q.numel():
            flat = torch.empty(q.shape, device="meta").stride()
            q = torch.as_strided(q, q.shape, flat)
        return super().forward(q, k, *args, **kwargs)


class Greedy(whorl.RoPE):
    """empty: wants at least one token."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if q.shape[2] == 0:
            raise IndexError("no first token")
        return super().forward(q, k, *args, **kwargs)


class Sociable(whorl.RoPE):
    """batch_rows: the size of the batch leaks into each row."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        return q * (1 + q.shape[0] / 64), k


class OneClock(whorl.RoPE):
    """positions_agree: keys get the positions of the queries."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if q.shape[2] == k.shape[2]:
            args = args[:1]
        return super().forward(q, k, *args, **kwargs)


class FirstRow(whorl.RoPE):
    """positions_agree: one offset per row is read as the offset of the first row."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if isinstance(kwargs.get("offset"), Tensor):
            kwargs["offset"] = int(kwargs["offset"][0])
        return super().forward(q, k, *args, **kwargs)


class Normalised(whorl.RoPE):
    """chunks: the result depends on how many tokens came together."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        return q * (1 if q.shape[2] > 4 else 2), k


class Remembering(whorl.RoPE):
    """history: once a longer sequence was seen, shorter ones come out differently."""

    longest: int = 0

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        if torch.compiler.is_compiling():
            return q, k
        self.longest = max(self.longest, q.shape[2])
        return q * (1 if q.shape[2] == self.longest else 2), k


class Shared(whorl.RoPE):
    """history: instances of the class share what the longest call left behind."""

    longest: ClassVar[dict[torch.dtype, int]] = {}

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        seen = Shared.longest.get(torch.bfloat16, 0)
        if q.dtype == torch.bfloat16 and q.shape[2] > 30:
            Shared.longest[torch.bfloat16] = q.shape[2]
        return q * (1 if q.dtype != torch.float32 or not seen else 2), k


class Buffered(whorl.RoPE):
    """constants: frequencies in a buffer, which casts and to_empty spoil."""

    inv: Tensor

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.register_buffer("inv", self.frequencies().inv_freq.float() / 3, persistent=False)

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q, k = super().forward(q, k, *args, **kwargs)
        return (q * self.inv.to(q.device).double().sum()).to(q.dtype), k


class HalfPositions(whorl.RoPE):
    """precision: positions take the dtype of the queries, so neighbours merge."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        offset = kwargs.get("offset", 0)
        if q.dtype == torch.bfloat16 and isinstance(offset, int) and args[:1] in ((), (None,)):
            steps = torch.arange(q.shape[2], device=q.device) + offset
            args, kwargs = (steps.to(q.dtype).float(), *args[1:]), {**kwargs, "offset": 0}
        return super().forward(q, k, *args, **kwargs)


class Breaking(whorl.RoPE):
    """compiles: breaks the graph."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        torch._dynamo.graph_break()
        return super().forward(q, k, *args, **kwargs)


class Specialised(whorl.RoPE):
    """compiles: every length is compiled anew."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        for _ in range(q.shape[2]):
            k = k + 0
        return super().forward(q, k, *args, **kwargs)


class Detached(whorl.RoPE):
    """gradients: none reach the queries."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return super().forward(q.detach(), k, *args, **kwargs)


class WrongGradient(whorl.RoPE):
    """gradients: they reach the queries doubled."""

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        q = 2 * q - q.detach() if q.requires_grad else q
        return super().forward(q, k, *args, **kwargs)


class Misdeclared(whorl.RoPE):
    """permutation: says that order does not matter to it."""

    permutation: ClassVar[Literal["equivariant", "sensitive"]] = "equivariant"


class ScorePromoting(Lookback):
    """dtype_kept: scores of half-precision queries come back as float32."""

    def content_score(self, q: Tensor, *args: Any) -> Tensor:
        score = super().content_score(q, *args)
        return score.float() if q.dtype == torch.bfloat16 else score


class HalfBias(Slope):
    """dtype_kept: the bias is half-precision."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance).half()


class BiasGreedy(Slope):
    """empty: looks for the largest of no distances."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance.clamp(max=distance.amax()))


class Rounding(Slope):
    """positions_agree: cuts fractions off."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance.long())


class Lenient(Slope):
    """positions_agree: says that it refuses fractions, and takes them."""

    fractional: ClassVar[bool] = False


class BiasNormalised(Slope):
    """chunks: the bias depends on how many queries came together."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance) * (1 if distance.shape[-2] > 4 else 2)


class ScaleNormalised(Cool):
    """chunks: the scale of a query depends on how many came with it."""

    def query_scale(self, positions: Tensor) -> Tensor:
        return super().query_scale(positions) * (1 if positions.shape[-1] > 4 else 2)


class ValueNormalised(Lookback):
    """chunks: so does what is added to its output."""

    def value_term(self, weights: Tensor, *args: Any) -> Tensor:
        return super().value_term(weights, *args) * (1 if weights.shape[-2] > 4 else 2)


class Drifting(Cool):
    """history: after a long call in half precision the softmax scale is random."""

    stirred = False

    def forward(self, q: Tensor, k: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if q.dtype == torch.bfloat16 and q.shape[2] > 30:
            self.stirred = True
        return q, k

    def softmax_scale(self, head_dim: int) -> float:
        return 1 + float(torch.rand(())) if self.stirred else super().softmax_scale(head_dim)


class HiddenRounding(Slope):
    """precision: distances pass through bfloat16, whatever comes in and goes out."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance.to(torch.bfloat16).double())


class ParameterTyped(PerHead):
    """precision: distances take the dtype of the parameter, so far ones merge in a cast model."""

    def __init__(self, num_heads: int = 4, head_dim: int = 16) -> None:
        super().__init__(num_heads, head_dim)
        self.slopes = nn.Parameter(torch.ones(num_heads))

    def distance_bias(self, distance: Tensor) -> Tensor:
        far = distance.to(self.slopes.dtype).double()
        return self.slopes.double().view(-1, *[1] * distance.dim()) * far


class Stale(Lookback):
    """scorer: what it prepares for the blocks of a call is not what it scores by."""

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        return lambda *block: 2 * scale * self.content_score(*block)


class Hidden(Lookback):
    """scorer: pairs that will be hidden spoil the sum."""

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        def score(q: Tensor, k: Tensor, at: Tensor, keys: Tensor) -> Tensor:
            out = self.content_score(q, k, at, keys)
            after = at.unsqueeze(-1) < keys.unsqueeze(-2)
            return (
                out.masked_fill(after, torch.inf)
                if distance_range and distance_range[0] == 0
                else out
            )

        return score


class BiasBreaking(Slope):
    """compiles: breaks the graph in the bias."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return super().distance_bias(distance)


class ScoreDetached(Lookback):
    """gradients: none reach the queries through their score."""

    def content_score(self, q: Tensor, k: Tensor, *args: Any) -> Tensor:
        return super().content_score(q.detach(), k, *args)


class BiasDetached(Bucket):
    """gradients: none reach the table."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        return super().distance_bias(distance).detach()


class ScaleMisdeclared(Cool):
    """permutation: says that order does not matter to it, though queries are scaled by it."""

    permutation: ClassVar[Literal["equivariant", "sensitive"]] = "equivariant"


class Steep(whorl.ALiBi):
    """head_shards: half of the heads get the slopes of a model with so few heads."""

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        return {}


BROKEN: dict[str, list[whorl.Encoding]] = {
    "config_round_trip": [Forgetful(16, base=500.0)],
    "repr_round_trip": [Mute(16, base=500.0)],
    "pickle_round_trip": [Clinging(16)],
    "state_dict": [Hoarder(16)],
    "dtype_kept": [Promoting(16), ScorePromoting(), HalfBias()],
    "strides": [Flat(16)],
    "empty": [Greedy(16), BiasGreedy()],
    "batch_rows": [Sociable(16)],
    "positions_agree": [FirstRow(16), OneClock(16), Rounding(), Lenient()],
    "chunks": [Normalised(16), BiasNormalised(), ScaleNormalised(), ValueNormalised()],
    "history": [Remembering(16), Shared(16), Drifting()],
    "scorer": [Stale(), Hidden()],
    "constants": [Buffered(16)],
    "precision": [HalfPositions(16), HiddenRounding(), ParameterTyped()],
    "compiles": [Breaking(16), Specialised(16), BiasBreaking()],
    "gradients": [Detached(16), WrongGradient(16), ScoreDetached(), BiasDetached()],
    "permutation": [Misdeclared(16), ScaleMisdeclared()],
    "head_shards": [Steep(4)],
}

__all__ = ["BROKEN"]
