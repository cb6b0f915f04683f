"""The permutation test: does attention see the order of its tokens at all?"""

import torch
from torch import Tensor

from whorl.encodings import Encoding

from .record import fits
from .terms import terms

__all__ = ["permutation"]


@torch.no_grad()
def permutation(
    encoding: Encoding, *, length: int = 12, num_heads: int | None = None, seed: int = 0
) -> float:
    """How much outputs change when tokens are shuffled and outputs put back in order.

    Attention of random tokens with each other, without a mask; the largest change relative to the
    largest output. 0 up to rounding means that the encoding is blind to order, as NoPE is; a causal
    mask would itself give order away. The order is never the one that they had, nor, from 3 tokens
    on, its reverse, which biases by |i - j| such as ALiBi do not tell from it.

    num_heads: that of the encoding by default, or 4.

    >>> import whorl
    >>> whorl.analysis.permutation(whorl.NoPE()) < 1e-12
    True
    >>> whorl.analysis.permutation(whorl.RoPE(16)) > 1e-3
    True
    """
    if not isinstance(encoding, Encoding):
        raise TypeError(f"permutation: encoding must be a whorl.Encoding; got {encoding!r}.")
    if type(length) is not int or length < 2:
        raise ValueError(f"permutation: length must be an int >= 2; got {length!r}.")
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise ValueError(f"permutation: seed must be an int of 64 bits; got {seed!r}.")
    heads = _heads(encoding, num_heads)
    head_dim = _size(encoding, "head_dim", 16)
    width = _size(encoding, "dim", heads * head_dim) if encoding.acts("embed") else heads * head_dim
    fits(64 * heads * length**2, length, "permutation")
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, order = random(1, length, width), _order(length, generator)
    weights = [random(heads * head_dim, width) * width**-0.5 for _ in range(3)]
    straight = _attend(encoding, x, weights, heads)
    shuffled = _attend(encoding, x[:, order], weights, heads)
    change = (shuffled - straight[:, :, order]).abs().max()
    return float(change / straight.abs().max())


def _attend(encoding: Encoding, x: Tensor, weights: list[Tensor], heads: int) -> Tensor:
    """[1, H, T, D], through every hook of the encoding."""
    at = torch.arange(x.shape[1])
    axes = encoding.position_axes
    places = at.expand(axes, -1) if axes > 1 else None
    query, key, value = weights
    score = terms(
        encoding, x=x, query_proj=query, key_proj=key, num_heads=heads, positions=places
    ).score
    carried = encoding.embed(x) @ value.T
    v = torch.unflatten(carried, -1, (heads, -1)).transpose(1, 2)
    weight = score.softmax(-1)
    out: Tensor = weight @ v
    if (more := encoding.value_term(weight, at, at)) is not None:
        out = out + more
    return out


def _order(length: int, generator: torch.Generator) -> Tensor:
    """A random order that differs from the straight one, and from its reverse if it can."""
    straight = torch.arange(length)
    if length == 2:
        return straight.flip(0)
    while True:
        order = torch.randperm(length, generator=generator)
        if not torch.equal(order, straight) and not torch.equal(order, straight.flip(0)):
            return order


def _heads(encoding: Encoding, asked: int | None) -> int:
    """Heads to try with: as asked, if the encoding has no other number."""
    known, groups = _size(encoding, "num_heads", 0), _size(encoding, "num_kv_heads", 0)
    if asked is None:
        return known or 2 * (groups or 2)
    if type(asked) is not int or asked < 1:
        raise ValueError(f"permutation: num_heads must be a positive int; got {asked!r}.")
    if known and asked != known:
        raise ValueError(
            f"permutation: {encoding!r} is for {known} heads; got num_heads={asked}. Leave it out."
        )
    if groups and asked % groups:
        raise ValueError(
            f"permutation: num_heads must be a multiple of the {groups} key heads of {encoding!r};"
            f" got {asked}."
        )
    return asked


def _size(encoding: Encoding, option: str, default: int) -> int:
    known = [getattr(part.config, option, None) for part in encoding.parts]
    return next((n for n in known if isinstance(n, int)), default)
