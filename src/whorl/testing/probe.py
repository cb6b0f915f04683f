"""Inputs for an encoding, what it does to them, and how far rounding may move a result."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Encoding

__all__ = ["Probe", "observe", "randomized", "rounding_tolerance", "size_of", "spread"]


@dataclass(frozen=True)
class Probe:
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
    ) -> "Probe":
        """Inputs of the sizes in the encoding's config; 4 heads of 16 where it is silent.

        Sizes are called num_heads, num_kv_heads, head_dim and dim there.
        """
        own = size_of(encoding, "num_kv_heads", 0)
        heads, head_dim = (
            size_of(encoding, "num_heads", 2 * own or 4),
            size_of(encoding, "head_dim", 16),
        )
        width = size_of(encoding, "dim", heads * head_dim)
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

    def map(self, change: Any) -> "Probe":
        """The same probe with ``change`` applied to every tensor."""
        return Probe(**{f.name: change(getattr(self, f.name)) for f in dataclasses.fields(self)})

    def rows(self, index: slice) -> "Probe":
        """Some batch rows, as fresh contiguous tensors."""
        return self.map(lambda t: t[index].clone())

    def steps(self, first: int, last: int) -> "Probe":
        """Tokens first .. last - 1, as fresh contiguous tensors."""
        cut = slice(first, last)
        return Probe(
            self.x[:, cut].clone(),
            self.q[:, :, cut].clone(),
            self.k[:, :, cut].clone(),
            self.weights[:, :, cut, cut].clone(),
        )

    def queries(self, first: int, last: int) -> "Probe":
        """Queries first .. last - 1 with all keys, as fresh contiguous tensors."""
        cut = slice(first, last)
        return Probe(
            self.x[:, cut].clone(),
            self.q[:, :, cut].clone(),
            self.k.clone(),
            self.weights[:, :, cut].clone(),
        )


def size_of(encoding: Encoding, option: str, default: int) -> int:
    """An option of the encoding, or of the first part of a composition that has it."""
    for config in (encoding.config, *getattr(encoding.config, "parts", ())):
        if isinstance(value := getattr(config, option, None), int):
            return value
    return default


def observe(
    encoding: Encoding,
    probe: Probe,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    *,
    offset: int | Tensor = 0,
    context_length: int | Tensor | None = None,
) -> dict[str, Tensor]:
    """Everything an encoding does to ``probe``, by hook; hooks that give nothing are left out.

    Arguments as for ``Encoding.forward``: ``offset`` moves the queries, and the keys too unless
    they have ``key_positions`` of their own.
    """
    steps = positions
    if positions is None and encoding.position_axes > 1:
        steps = torch.arange(probe.length, device=probe.q.device)
    q, k = encoding(
        probe.q,
        probe.k,
        *(None if at is None else spread(encoding, at) for at in (steps, key_positions)),
        offset=offset,
        context_length=context_length,
    )
    seen: dict[str, Tensor | None] = {
        "embed": encoding.embed(probe.x, positions, offset=offset),
        "q": q,
        "k": k,
    }
    if encoding.hooks & {"score", "value", "scale"}:
        at = _absolute(probe, positions, offset)
        keys = at if key_positions is None else key_positions
        distance = at.unsqueeze(-1) - keys.unsqueeze(-2)  # [(B,) T, S]
        seen["content_score"] = encoding.content_score(probe.q, probe.k, at, keys)
        seen["distance_bias"] = encoding.distance_bias(distance)
        seen["value_term"] = encoding.value_term(probe.weights, at, keys)
        seen["query_scale"] = encoding.query_scale(at)
        scale = encoding.softmax_scale(probe.q.shape[3])
        seen["softmax_scale"] = (
            None if scale is None else torch.full((), scale, dtype=torch.float64)
        )
    return {name: value for name, value in seen.items() if value is not None}


def spread(encoding: Encoding, positions: Tensor) -> Tensor:
    """Positions for every axis of the encoding, a little apart: [n, T] or [n, B, T]."""
    axes = encoding.position_axes
    if axes == 1:
        return positions
    apart = 3 * torch.arange(axes, device=positions.device)
    return positions + apart.view(-1, *[1] * positions.dim())


def _absolute(probe: Probe, positions: Tensor | None, offset: int | Tensor) -> Tensor:
    at = torch.arange(probe.length, device=probe.q.device) if positions is None else positions
    return at + (offset.unsqueeze(-1) if isinstance(offset, Tensor) else offset)


def randomized(encoding: Encoding, seed: int = 1) -> Encoding:
    """Give trained parameters random values that every floating-point type can hold exactly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoding.parameters():
            values = torch.randn(parameter.shape, generator=generator) / 4
            parameter.copy_((values * 16).round() / 16)
    return encoding


def rounding_tolerance(exact: Tensor, dtype: torch.dtype) -> float:
    """Twice the largest error that rounding float64 values to ``dtype`` makes on its own."""
    if not exact.numel():
        return 0.0
    return 2.0 * float((exact.to(dtype).double() - exact.double()).abs().max())
