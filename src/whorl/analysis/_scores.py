"""The logits of attention with an encoding, through every hook, and encodings made by name."""

import copy
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Encoding, make
from whorl.encodings.base import classes

from ._record import fits

__all__ = ["embedded", "of_sizes", "refuse_unused", "scores", "widened"]

#: What people call sizes, and the options of encodings that are made from them.
_WORDS = {"dim": ("head_dim", "dim"), "heads": ("num_heads", "dim"), "base": ("base",)}


def widened(encoding: Encoding, where: str) -> Encoding:
    """A copy in float64 that trains nothing."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: encoding must be a whorl.Encoding; got {encoding!r}.")
    return copy.deepcopy(encoding).double().requires_grad_(False)


def scores(encoding: Encoding, q: Tensor, k: Tensor, at: Tensor, keys_at: Tensor) -> Tensor:
    """Logits [B, H, T, S] of q [B, H, T, D] at positions [T] and k [B, G, S, D] at [S].

    Where positions have several axes, all of them count tokens.
    """
    axes, scale = encoding.position_axes, encoding.softmax_scale(q.shape[3])
    places = (at, keys_at) if axes == 1 else (at.expand(axes, -1), keys_at.expand(axes, -1))
    turned_q, turned_k = encoding(q, k, *places) if "rotation" in encoding.hooks else (q, k)
    raw = turned_q @ turned_k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    if (content := encoding.content_score(q, k, at, keys_at)) is not None:
        raw = raw + content
    raw = raw * (q.shape[3] ** -0.5 if scale is None else scale)
    if (by_query := encoding.query_scale(at)) is not None:
        raw = raw * by_query.to(raw.dtype).unsqueeze(-1)
    distance = at.unsqueeze(-1) - keys_at
    if (bias := encoding.distance_bias(distance)) is not None:
        raw = raw + bias.to(raw.dtype)
    return raw


def embedded(encoding: Encoding, width: int, positions: Tensor) -> Tensor:
    """What the encoding adds to embeddings at positions [T]: [T, width]."""
    nothing = torch.zeros(1, positions.shape[0], width, dtype=torch.float64)
    return encoding.embed(nothing, positions)[0]


def of_sizes(
    name: str, *, num_heads: int = 8, head_dim: int = 64, max_length: int = 512, **options: Any
) -> Encoding:
    """An encoding by name, or several joined by +, for heads of this size.

    A table of learned positions gets ``max_length`` rows; options go to the encodings that have
    them. Trained parameters start as the encoding starts them, the same in every run.

    >>> of_sizes("rope+alibi", head_dim=32)
    RoPE(32) + ALiBi(8)
    """
    for value, word, most in ((num_heads, "heads", 4096), (head_dim, "dim", 65_536)):
        if value > most:
            raise ValueError(f"{name}: {word} must be at most {most:,} here; got {value:,}.")
    parts = [
        _part(word.strip(), num_heads, head_dim, max_length, options) for word in name.split("+")
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def refuse_unused(encodings: Sequence[str], given: Iterable[str], where: str) -> None:
    """Raise if none of the encodings uses a word of ``given``, of "dim", "heads" and "base".

    >>> refuse_unused(["rope+alibi"], ["dim", "heads", "base"], "explain")
    >>> refuse_unused(["alibi"], ["base"], "explain")
    Traceback (most recent call last):
    ValueError: explain: 'alibi' does not use base; leave it out. It uses heads.
    """
    known = [classes().get(part.strip()) for name in encodings for part in name.split("+")]
    if None in known:
        return  # making them says what there is
    taken = {option for cls in known if cls is not None for option in _taken(cls)}
    used = [word for word, options in _WORDS.items() if taken.intersection(options)]
    for word in given:
        if word not in used:
            who = ", ".join(map(repr, encodings))
            uses = f"uses {' and '.join(used)}" if used else "has no sizes"
            raise ValueError(f"{where}: {who} does not use {word}; leave it out. It {uses}.")


def _taken(known: type[Encoding]) -> list[str]:
    """Options that are made from sizes: those without a default, and a base of frequencies."""
    parameters = inspect.signature(known).parameters
    return [n for n, p in parameters.items() if p.default is p.empty or n == "base"]


def _part(
    name: str, num_heads: int, head_dim: int, max_length: int, options: dict[str, Any]
) -> Encoding:
    known = classes().get(name)
    if known is None:
        return make(name)  # which says what there is
    parameters = inspect.signature(known).parameters
    sizes = {"num_heads": num_heads, "head_dim": head_dim, "dim": num_heads * head_dim}
    sizes["max_length"] = max_length
    wanted: dict[str, Any] = {
        n: sizes[n] for n, p in parameters.items() if p.default is p.empty and n in sizes
    }
    if name == "mrope":  # Qwen2-VL's quarter of the pairs for time, the rest for rows and columns
        across = (head_dim // 2 - head_dim // 8) // 2
        wanted["sections"] = (head_dim // 2 - 2 * across, across, across)
    wanted |= {n: value for n, value in options.items() if n in parameters}
    with torch.device("meta"):  # only sizes are asked for
        count = sum(p.numel() for p in make(name, **wanted).parameters())
    table = "max_length" in wanted
    fits(24 * count, max_length if table else "an encoding of these sizes", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make(name, **wanted)
