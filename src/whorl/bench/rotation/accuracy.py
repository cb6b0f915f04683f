"""Error of tables of cos and sin by position, against a reference of fifty digits.

    error = max over pairs and nearby positions of |cos - cos*|, |sin - sin*|

A rotation is only as exact as its angle. Angles computed in float32 lose one digit whenever the
position grows tenfold; positions stored in bfloat16 are wrong from 257 on.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl import RoPE
from whorl.analysis.precision import compute_exact_tables

from .case import BASE
from .peers import ALL

__all__ = ["POSITIONS", "Accuracy", "list_table_functions", "measure_accuracy"]

POSITIONS = (
    0, 1, 10, 100, 257, 1_000, 4_000, 16_000, 64_000, 131_071,
    1_000_000, 4_000_000, 2**24 - 1,
)  # fmt: skip
HEAD_DIM = 128

TableFunction = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Accuracy:
    """Largest error of each contestant at each position and at positions near it."""

    positions: tuple[int, ...]
    errors: dict[str, tuple[float, ...]]

    def to_dict(self) -> dict[str, Any]:
        errors = {name: list(values) for name, values in self.errors.items()}
        return {"positions": list(self.positions), "errors": errors}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Accuracy":
        errors = {name: tuple(values) for name, values in data["errors"].items()}
        return cls(tuple(data["positions"]), errors)


def measure_accuracy(positions: Sequence[int] = POSITIONS, *, neighbours: int = 7) -> Accuracy:
    """Errors of whorl and of every installed peer that has tables, at head_dim 128, base 10,000.

    neighbours: how many random positions, at most 1/16 below each position, are measured with it.
    """
    groups = [_sample_nearby(position, neighbours) for position in positions]
    flat = [position for group in groups for position in group]
    cos, sin = compute_exact_tables(flat, HEAD_DIM, BASE)
    errors = {}
    for name, tables in list_table_functions().items():
        found_cos, found_sin = (x.double() for x in tables(flat))
        off = torch.maximum((found_cos - cos).abs(), (found_sin - sin).abs()).amax(-1)
        errors[name] = tuple(off.reshape(len(groups), -1).amax(-1).tolist())
    return Accuracy(tuple(positions), errors)


def _sample_nearby(position: int, count: int) -> list[int]:
    """The position and ``count`` random ones just below it, the same in every run."""
    chance = random.Random(position)
    return [position, *(position - chance.randint(0, position // 16) for _ in range(count))]


def list_table_functions() -> dict[str, TableFunction]:
    """Functions from positions to cos and sin, by the name of the library."""
    found: dict[str, TableFunction] = {
        "whorl": lambda p: RoPE(HEAD_DIM, base=BASE).tables(torch.tensor(p)),
        "whorl float32": lambda p: RoPE(HEAD_DIM, base=BASE, precision="float32").tables(
            torch.tensor(p)
        ),
        "Meta complex": _compute_meta_tables,
    }
    peers: dict[str, dict[str, TableFunction]] = {
        "hf": {"Hugging Face": _compute_hugging_face_tables},
        "ret": {
            "rotary-embedding-torch": lambda p: _compute_rotary_embedding_tables(p, torch.float32),
            "rotary-embedding-torch bfloat16": lambda p: _compute_rotary_embedding_tables(
                p, torch.bfloat16
            ),
        },
        "mlx": {"MLX": _compute_mlx_tables},
    }
    for peer in ALL:
        if peer.name in peers and peer.explain_missing() is None:
            found.update(peers[peer.name])
    return found


def _compute_meta_tables(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Tables as Meta's ``precompute_freqs_cis`` computes them, all in float32."""
    freqs = 1.0 / (BASE ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
    angles = torch.outer(torch.tensor(positions).float(), freqs)
    factors = torch.polar(torch.ones_like(angles), angles)
    return factors.real, factors.imag


def _compute_hugging_face_tables(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope_parameters = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(
        hidden_size=HEAD_DIM, num_attention_heads=1, rope_parameters=rope_parameters
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor([positions]))
    return cos[0, :, : HEAD_DIM // 2], sin[0, :, : HEAD_DIM // 2]


def _compute_rotary_embedding_tables(
    positions: Sequence[int], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Tables of rotary-embedding-torch, which stores positions in the dtype of the queries."""
    from rotary_embedding_torch import RotaryEmbedding

    rope = RotaryEmbedding(HEAD_DIM, theta=BASE)
    device = torch.device("cpu")
    steps = [rope.get_seq_pos(1, device=device, dtype=dtype, offset=p) for p in positions]
    angles = rope(torch.cat(steps))[:, ::2].detach()
    return angles.cos(), angles.sin()


def _compute_mlx_tables(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Tables of MLX: it has none, so the vector (1, 0) of every pair is rotated to (cos, sin)."""
    import mlx.core as mx

    from .peers.mlx_fast import convert_from_mlx, convert_to_mlx

    ones = torch.zeros(1, 1, 1, HEAD_DIM)
    ones[..., ::2] = 1.0
    x = convert_to_mlx(ones)
    options: dict[str, Any] = {"traditional": True, "base": BASE, "scale": 1.0, "stream": mx.cpu}
    rows = [convert_from_mlx(mx.fast.rope(x, HEAD_DIM, offset=p, **options)) for p in positions]
    rotated = torch.cat(rows).reshape(-1, HEAD_DIM)
    return rotated[:, ::2], rotated[:, 1::2]
