"""The permutation test: does attention depend on the order of its tokens?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding

from .record import Record, check_int, check_memory, make_generator, sample_normal
from .scores import repeat_on_axes
from .terms import terms

__all__ = ["Permutations", "permutation", "permutations"]


@dataclass(frozen=True)
class Permutations(Record):
    """By how much outputs change if tokens are shuffled: 0 if the encoding ignores their order."""

    names: tuple[str, ...]
    changes: tuple[float, ...]
    left_out: tuple[str, ...]  # for causal attention only, where the mask itself shows the order


@torch.no_grad()
def permutation(
    encoding: Encoding, *, length: int = 12, num_heads: int | None = None, seed: int = 0
) -> float:
    """How much outputs change if tokens are shuffled and the outputs put back in order.

    The largest change relative to the largest output, for self-attention of random tokens without a
    mask. 0 up to rounding means that the encoding ignores order, as NoPE does; a causal mask would
    itself show the order. The shuffled order is never the original one, nor, from 3 tokens on, its
    reverse, which biases by |i - j| such as ALiBi cannot distinguish from it.

    num_heads: by default that of the encoding, or 4.

    >>> import whorl
    >>> whorl.analysis.permutation(whorl.NoPE()) < 1e-12
    True
    >>> whorl.analysis.permutation(whorl.RoPE(16)) > 1e-3
    True
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(f"permutation: encoding must be a whorl.Encoding; got {quote(encoding)}.")
    check_int(length, "length", "permutation", 2)
    generator = make_generator(seed, "permutation")
    heads = _resolve_num_heads(encoding, num_heads)
    head_dim = _get_size(encoding, "head_dim", 16)
    width = (
        _get_size(encoding, "dim", heads * head_dim) if encoding.acts("embed") else heads * head_dim
    )
    check_memory(64 * heads * length**2, length, "permutation")

    x, order = sample_normal(generator, 1, length, width), _make_order(length, generator)
    weights = [sample_normal(generator, heads * head_dim, width) * width**-0.5 for _ in range(3)]
    straight = _attend(encoding, x, weights, heads)
    shuffled = _attend(encoding, x[:, order], weights, heads)
    change = (shuffled - straight[:, :, order]).abs().max()
    return float(change / straight.abs().max())


def permutations(
    encodings: dict[str, Encoding], *, length: int = 12, seed: int = 0
) -> Permutations:
    """The permutation test for several encodings, by name.

    >>> import whorl
    >>> permutations({"nope": whorl.NoPE()}).changes[0] < 1e-12
    True
    """
    if not encodings:
        raise ValueError("permutations: encodings must have at least one name; got none.")
    found = {
        name: permutation(encoding, length=length, seed=seed)
        for name, encoding in encodings.items()
        if not encoding.causal
    }
    left_out = tuple(name for name, encoding in encodings.items() if encoding.causal)
    return Permutations(tuple(found), tuple(found.values()), left_out)


def _attend(encoding: Encoding, x: Tensor, weights: list[Tensor], heads: int) -> Tensor:
    """Self-attention of x with every hook of the encoding: [1, H, T, D]."""
    at = torch.arange(x.shape[1])
    places = repeat_on_axes(encoding, at)
    query, key, value = weights
    score = terms(
        encoding, x=x, query_proj=query, key_proj=key, num_heads=heads, positions=places
    ).score
    v = torch.unflatten(encoding.embed(x) @ value.T, -1, (heads, -1)).transpose(1, 2)
    weight = score.softmax(-1)
    out: Tensor = weight @ v
    if (more := encoding.value_term(weight, at, at)) is not None:
        out = out + more
    return out


def _make_order(length: int, generator: torch.Generator) -> Tensor:
    """A random order, not the original one, and not its reverse if there is another."""
    straight = torch.arange(length)
    if length == 2:
        return straight.flip(0)
    while True:
        order = torch.randperm(length, generator=generator)
        if not torch.equal(order, straight) and not torch.equal(order, straight.flip(0)):
            return order


def _resolve_num_heads(encoding: Encoding, asked: int | None) -> int:
    """The number of heads: the argument, if the encoding does not have another one."""
    known, groups = _get_size(encoding, "num_heads", 0), _get_size(encoding, "num_kv_heads", 0)
    if asked is None:
        return known or 2 * (groups or 2)
    if type(asked) is not int or asked < 1:
        raise ValueError(f"permutation: num_heads must be a positive int; got {quote(asked)}.")
    if known and asked != known:
        raise ValueError(
            f"permutation: {quote(encoding)} is for {known} heads; got num_heads={asked}. Leave it"
            " out."
        )
    if groups and asked % groups:
        raise ValueError(
            f"permutation: num_heads must be a multiple of the {groups} key heads of"
            f" {quote(encoding)}; got {asked}."
        )
    return asked


def _get_size(encoding: Encoding, option: str, default: int) -> int:
    known = [getattr(part.config, option, None) for part in encoding.parts]
    return next((n for n in known if isinstance(n, int)), default)
