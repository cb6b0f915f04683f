"""One encoding for each check of the exam that is wrong in that respect and in no other."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

import whorl
from whorl.encodings.rope import RoPEConfig


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
        if q.dtype == torch.bfloat16 and isinstance(offset, int) and args in ((), (None,)):
            steps = torch.arange(q.shape[2], device=q.device) + offset
            args, kwargs = (steps.to(q.dtype).float(),), {**kwargs, "offset": 0}
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


@dataclass(frozen=True)
class ThirdPartyConfig(whorl.Config):
    """Options of an encoding that lives outside whorl and is in no registry."""

    dim: int
    strength: float = 1.0


class ThirdParty(whorl.Encoding):
    """A sound encoding of somebody else's: adds position times a fixed vector to the input."""

    name = "third_party"
    config: ThirdPartyConfig

    def __init__(self, dim: int, strength: float = 1.0) -> None:
        super().__init__()
        self.config = ThirdPartyConfig(dim, strength)

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        at = at + (offset.unsqueeze(-1) if isinstance(offset, Tensor) else offset)
        return (x.double() + at.double().unsqueeze(-1) * self.config.strength / 100).to(x.dtype)


BROKEN: dict[str, list[whorl.Encoding]] = {
    "config_round_trip": [Forgetful(16, base=500.0)],
    "repr_round_trip": [Mute(16, base=500.0)],
    "pickle_round_trip": [Clinging(16)],
    "state_dict": [Hoarder(16)],
    "dtype_kept": [Promoting(16)],
    "strides": [Flat(16)],
    "empty": [Greedy(16)],
    "batch_rows": [Sociable(16)],
    "positions_agree": [FirstRow(16)],
    "chunks": [Normalised(16)],
    "history": [Remembering(16), Shared(16)],
    "constants": [Buffered(16)],
    "precision": [HalfPositions(16)],
    "compiles": [Breaking(16), Specialised(16)],
    "gradients": [Detached(16), WrongGradient(16)],
    "permutation": [Misdeclared(16)],
}

__all__ = ["BROKEN", "RoPEConfig", "ThirdParty"]
