"""The part of an encoding that belongs to some of the heads, where processes share the heads."""

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whorl._support.words import quote

if TYPE_CHECKING:
    from .base import Encoding

__all__ = ["build_head_shard", "check_share", "list_head_counts"]


def list_head_counts(encoding: "Encoding") -> dict[str, int]:
    """The options of an encoding that count heads, with their values."""
    counts = {n: getattr(encoding.config, n, None) for n in ("num_heads", "num_kv_heads")}
    return {name: count for name, count in counts.items() if count is not None}


def check_share(rank: Any, world: Any, where: str) -> None:
    """Refuse all but a rank in 0 .. world - 1, both ints."""
    if type(rank) is not int or type(world) is not int or not 0 <= rank < world:
        raise ValueError(
            f"{where}: rank must be an int in 0 .. world - 1, and world an int; got rank"
            f" {quote(rank)} of world {quote(world)}."
        )


def build_head_shard(encoding: "Encoding", rank: int, world: int) -> "Encoding":
    """An encoding for the ``rank``-th of ``world`` equal shares of the heads."""
    where = f"{type(encoding).__name__}.shard_heads"
    check_share(rank, world, where)
    counts = list_head_counts(encoding)
    if not counts or world == 1:
        return encoding
    axes = encoding.head_axes
    if axes is None:
        raise ValueError(
            f"{where}: the class must declare head_axes, the axis of the heads of each trained"
            f" parameter that has one, because it has {' and '.join(counts)}; got None. Use {{}} if"
            " no parameter has one."
        )
    for name, count in counts.items():
        if count % world:
            raise ValueError(
                f"{where}: {name} must be divisible by world, because all processes have equally"
                f" many heads; got {count} for world {world}."
            )
    options: dict[str, Any] = {
        field.name: getattr(encoding.config, field.name)
        for field in dataclasses.fields(encoding.config)
        if field.init
    }
    options |= {name: count // world for name, count in counts.items()}
    options |= encoding.derive_shard_options(rank, world)
    with torch.device("meta"):  # its own parameters are replaced below
        shard = type(encoding)(**options)
    for name, tensor in encoding.named_parameters():
        path, _, last = name.rpartition(".")
        part = tensor if name not in axes else _take_share(tensor, axes[name], rank, world)
        shard.get_submodule(path)._parameters[last] = part  # type: ignore[assignment]
    return shard.train(encoding.training)


def _take_share(tensor: Tensor, axis: int, rank: int, world: int) -> Tensor:
    return tensor.chunk(world, axis)[rank]
