"""Sizes of the inputs of an encoding, and encodings by name for inputs of given sizes."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from whorl.encodings import Encoding, make
from whorl.encodings.base import get_classes

from .record import check_memory

__all__ = ["EncodingSizes", "get_sizes", "make_for_sizes", "refuse_unused"]

#: Names of sizes for users, and the options of encodings that are computed from them.
_SIZE_OPTIONS = {"dim": ("head_dim", "dim"), "heads": ("num_heads", "dim"), "base": ("base",)}


class EncodingSizes(NamedTuple):
    """Numbers of heads and of key heads, width of a head and of embeddings."""

    num_heads: int
    key_heads: int
    head_dim: int
    width: int


def get_sizes(encoding: Encoding, *, num_heads: int = 4, head_dim: int = 64) -> EncodingSizes:
    """The sizes in the options of the encoding or its parts; the arguments for those without.

    >>> import whorl
    >>> get_sizes(whorl.RoPE(32) + whorl.ALiBi(8))
    EncodingSizes(num_heads=8, key_heads=8, head_dim=32, width=256)
    """
    known: dict[str, int] = {}
    for part in encoding.parts:
        for option in ("num_heads", "num_kv_heads", "head_dim"):
            if isinstance(value := getattr(part.config, option, None), int):
                known.setdefault(option, value)
    D = known.get("head_dim", head_dim)
    groups = known.get("num_kv_heads")
    H = known.get("num_heads", 2 * groups if groups else num_heads)
    widths = [getattr(part.config, "dim", None) for part in encoding.parts if part.acts("embed")]
    width = next((w for w in widths if isinstance(w, int)), H * D)
    if widths and "head_dim" not in known:
        D = max(1, width // H)
    return EncodingSizes(H, groups or H, D, width)


def make_for_sizes(
    name: str, *, num_heads: int = 8, head_dim: int = 64, max_length: int = 512, **options: Any
) -> Encoding:
    """An encoding by name, or several joined by +, for heads of this size.

    A table of learned positions gets ``max_length`` rows; options go to the encodings that have
    them. Trained parameters have their initial values, the same in every run.

    >>> make_for_sizes("rope+alibi", head_dim=32)
    RoPE(32) + ALiBi(8)
    """
    for value, word, most in ((num_heads, "heads", 4096), (head_dim, "dim", 65_536)):
        if value > most:
            raise ValueError(f"{name}: {word} must be at most {most:,} here; got {value:,}.")
    parts = [
        _make_part(word.strip(), num_heads, head_dim, max_length, options)
        for word in name.split("+")
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def refuse_unused(encodings: Sequence[str], given: Iterable[str], where: str) -> None:
    """Raise ValueError if no encoding uses one of ``given``, out of "dim", "heads" and "base".

    >>> refuse_unused(["rope+alibi"], ["dim", "heads", "base"], "explain")
    >>> refuse_unused(["alibi"], ["base"], "explain")
    Traceback (most recent call last):
    ValueError: explain: 'alibi' does not use base; leave it out. It uses heads.
    """
    known = [get_classes().get(part.strip()) for name in encodings for part in name.split("+")]
    if None in known:
        return  # making the encoding raises, and lists the known names
    taken = {option for cls in known if cls is not None for option in _list_sized_options(cls)}
    used = [word for word, options in _SIZE_OPTIONS.items() if taken.intersection(options)]
    for word in given:
        if word not in used:
            who = ", ".join(map(repr, encodings))
            uses = f"uses {' and '.join(used)}" if used else "has no sizes"
            raise ValueError(f"{where}: {who} does not use {word}; leave it out. It {uses}.")


def _list_sized_options(known: type[Encoding]) -> list[str]:
    """Options that are computed from sizes: those without a default, and the base."""
    parameters = inspect.signature(known).parameters
    return [n for n, p in parameters.items() if p.default is p.empty or n == "base"]


def _make_part(
    name: str, num_heads: int, head_dim: int, max_length: int, options: dict[str, Any]
) -> Encoding:
    known = get_classes().get(name)
    if known is None:
        return make(name)  # raises, and lists the known names
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
    with torch.device("meta"):  # to count parameters without allocating them
        count = sum(p.numel() for p in make(name, **wanted).parameters())
    table = "max_length" in wanted
    check_memory(24 * count, max_length if table else "an encoding of these sizes", name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make(name, **wanted)
