"""Random inputs for an encoding, the results of all its hooks, and tolerances for rounding."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Encoding

__all__ = [
    "EncodingInputs",
    "compute_rounding_tolerance",
    "expand_positions",
    "get_size",
    "run_hooks",
    "set_random_parameters",
]


@dataclass(frozen=True)
class EncodingInputs:
    """Random inputs for every hook of an encoding.

    x [B, T, E] embeddings, q [B, H, T, D], k [B, G, S, D] with G <= H, weights [B, H, T, S].
    """

    x: Tensor
    q: Tensor
    k: Tensor
    weights: Tensor

    @classmethod
    def of(
        cls,
        encoding: Encoding,
        *,
        batch: int = 2,
        length: int = 6,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> "EncodingInputs":
        """Inputs of the sizes in the encoding's config, by default 4 heads of 16 channels.

        The sizes are num_heads, num_kv_heads, head_dim and dim.
        """
        own = get_size(encoding, "num_kv_heads", 0)
        heads, head_dim = (
            get_size(encoding, "num_heads", 2 * own or 4),
            get_size(encoding, "head_dim", 16),
        )
        width = get_size(encoding, "dim", heads * head_dim)
        key_heads = own or (heads if heads % 2 else heads // 2)
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        return cls(
            x=random(batch, length, width),
            q=random(batch, heads, length, head_dim),
            k=random(batch, key_heads, length, head_dim),
            weights=random(batch, heads, length, length).softmax(-1),
        )

    @property
    def length(self) -> int:
        return self.q.shape[2]

    @property
    def batch(self) -> int:
        return self.q.shape[0]

    def map(self, change: Any) -> "EncodingInputs":
        """The same inputs with ``change`` applied to every tensor."""
        return EncodingInputs(
            **{f.name: change(getattr(self, f.name)) for f in dataclasses.fields(self)}
        )

    def select_rows(self, index: slice) -> "EncodingInputs":
        """Some batch rows, as new contiguous tensors."""
        return self.map(lambda t: t[index].clone())

    def select(self, queries: slice, keys: slice) -> "EncodingInputs":
        """Some queries and keys, with the embeddings of the queries, as new contiguous tensors."""
        return EncodingInputs(
            self.x[:, queries].clone(),
            self.q[:, :, queries].clone(),
            self.k[:, :, keys].clone(),
            self.weights[:, :, queries, keys].clone(),
        )


def get_size(encoding: Encoding, option: str, default: int) -> int:
    """An option of the encoding, or of the first part of a composition that has it."""
    for config in (encoding.config, *getattr(encoding.config, "parts", ())):
        if isinstance(value := getattr(config, option, None), int):
            return value
    return default


def run_hooks(
    encoding: Encoding,
    inputs: EncodingInputs,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    *,
    offset: int | Tensor = 0,
    context_length: int | Tensor | None = None,
) -> dict[str, Tensor]:
    """The results of all hooks of an encoding by name, without those that return None.

    The other arguments are those of ``Encoding.forward``: ``offset`` moves the queries, and the
    keys too unless ``key_positions`` is given.
    """
    steps = positions
    if positions is None and encoding.position_axes > 1:
        steps = torch.arange(inputs.length, device=inputs.q.device)
    q, k = encoding(
        inputs.q,
        inputs.k,
        *(None if at is None else expand_positions(encoding, at) for at in (steps, key_positions)),
        offset=offset,
        context_length=context_length,
    )
    seen: dict[str, Tensor | None] = {
        "embed": encoding.embed(inputs.x, positions, offset=offset),
        "q": q,
        "k": k,
    }
    if encoding.hooks & {"score", "value", "scale"}:
        at = _add_offset(inputs, positions, offset)
        keys = at if key_positions is None else key_positions
        distance = at.unsqueeze(-1) - keys.unsqueeze(-2)  # [(B,) T, S]
        seen["content_score"] = encoding.content_score(inputs.q, inputs.k, at, keys)
        seen["distance_bias"] = encoding.distance_bias(distance)
        seen["value_term"] = encoding.value_term(inputs.weights, at, keys)
        seen["query_scale"] = encoding.query_scale(at)
        scale = encoding.softmax_scale(inputs.q.shape[3])
        seen["softmax_scale"] = (
            None if scale is None else torch.full((), scale, dtype=torch.float64)
        )
    return {name: value for name, value in seen.items() if value is not None}


def expand_positions(encoding: Encoding, positions: Tensor) -> Tensor:
    """Positions for every axis of the encoding, which differ by 3: [n, T] or [n, B, T]."""
    axes = encoding.position_axes
    if axes == 1:
        return positions
    apart = 3 * torch.arange(axes, device=positions.device)
    return positions + apart.view(-1, *[1] * positions.dim())


def _add_offset(inputs: EncodingInputs, positions: Tensor | None, offset: int | Tensor) -> Tensor:
    """Positions of the queries, [T] or [B, T], with the offset added."""
    at = torch.arange(inputs.length, device=inputs.q.device) if positions is None else positions
    return at + (offset.unsqueeze(-1) if isinstance(offset, Tensor) else offset)


def set_random_parameters(encoding: Encoding, seed: int = 1) -> Encoding:
    """Give trained parameters random values that every floating-point type represents exactly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            values = torch.randn(parameter.shape, generator=generator) / 4
            parameter.copy_((values * 16).round() / 16)
    return encoding


def compute_rounding_tolerance(exact: Tensor, dtype: torch.dtype) -> float:
    """Twice the largest error of rounding float64 values to ``dtype``."""
    if not exact.numel():
        return 0.0
    return 2.0 * float((exact.to(dtype).double() - exact.double()).abs().max())
