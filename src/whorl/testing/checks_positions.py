"""Checks of where a token is: batches, offsets, fractions, chunks, far positions, order."""

import copy
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from whorl.encodings import Encoding

from ._compare import FROM_POSITIONS, RESHAPED, batched, row, same
from .probe import Probe, observe, randomized, rounding_tolerance, size_of, spread

__all__ = ["batch_rows", "chunks", "permutation", "positions_agree", "precision"]

_HALVES = (torch.bfloat16, torch.float16)
# Fixed, so that scalings which follow the length are compared at one length.
_CONTEXT = 64


def batch_rows(encoding: Encoding) -> None:
    """A row's result does not depend on its batch-mates."""
    probe = Probe.of(randomized(encoding), batch=3)
    positions = torch.arange(probe.length) + torch.tensor([[0], [5], [40]])
    together = observe(encoding, probe, positions)
    for b in range(probe.batch):
        alone = observe(encoding, probe.rows(slice(b, b + 1)), positions[b : b + 1])
        expected = row(together, b, 3)
        same(row(alone, 0, 1), expected, f"row {b} alone differs", relative=RESHAPED)


def positions_agree(encoding: Encoding) -> None:
    """Positions [T], [B, T], an int offset and one per row mean the same; fractions as declared."""
    probe = Probe.of(randomized(encoding))
    steps, starts = torch.arange(probe.length), torch.tensor([3, 11])

    def seen(positions: Tensor | None = None, offset: int | Tensor = 0) -> dict[str, Tensor]:
        got = observe(encoding, probe, positions, offset=offset, context_length=_CONTEXT)
        return batched(got, probe.batch)

    plain = seen()
    same(seen(steps), plain, "positions [T] differ", relative=RESHAPED)
    same(seen(steps.expand(2, -1)), plain, "positions [B, T] differ", relative=RESHAPED)
    same(seen(steps + 3), seen(offset=3), "offset=3 differs from positions + 3", relative=RESHAPED)
    complaint = "offset per row differs from positions [B, T]"
    same(seen(steps + starts[:, None]), seen(offset=starts), complaint, relative=RESHAPED)
    at, keys_at = spread(encoding, steps), spread(encoding, steps + 3)
    q, k = encoding(probe.q, probe.k, at, keys_at, context_length=_CONTEXT)
    expected = {"q": plain["q"], "k": seen(steps + 3)["k"]}
    same({"q": q, "k": k}, expected, "key_positions are not those of the keys")
    if encoding.fractional:
        same(seen(steps.double()), plain, "whole positions as floats differ", relative=RESHAPED)
        stretched = seen(steps * 1.05)  # positions and distances a little above whole numbers
        cut_off = all(torch.equal(stretched[name], plain[name]) for name in plain)
        assert not cut_off or encoding.permutation == "equivariant", (
            "fractional positions are cut off; use them, or refuse them and set fractional = False"
        )
        return
    try:
        seen(steps * 1.05)
    except (TypeError, ValueError):
        return
    raise AssertionError("fractional is False, but fractional positions were accepted")


def chunks(encoding: Encoding) -> None:
    """A sequence in pieces, each with its offset, gives what the whole gives.

    Once with the keys cut as the queries are, once each piece of the queries with all keys.
    """
    probe = Probe.of(randomized(encoding), length=9)
    steps = torch.arange(probe.length)
    pieces = []
    for a, b in ((0, 1), (1, 4), (4, 9)):
        cut, context = slice(a, b), _CONTEXT
        alone = observe(encoding, probe.steps(a, b), offset=a, context_length=context)
        alone.pop("value_term", None)  # a sum over keys, of which this piece has a part
        with_all = observe(
            encoding, probe.queries(a, b), None, steps, offset=a, context_length=context
        )
        pieces += [(alone, cut, cut), (with_all, cut, slice(None))]
    whole = observe(encoding, probe, context_length=_CONTEXT)
    for got, queries, keys in pieces:
        want = {name: _block(name, t, queries, keys) for name, t in whole.items()}
        if "value_term" not in got:
            want.pop("value_term", None)
        same(got, want, "the chunks differ from the whole", relative=RESHAPED)


def _block(name: str, t: Tensor, queries: slice, keys: slice) -> Tensor:
    """The part of something observed with positions [T] that belongs to some queries and keys."""
    if name == "softmax_scale":
        return t
    if name == "query_scale":
        return t[queries]
    if name in ("content_score", "distance_bias"):
        return t[..., queries, keys]
    return t[..., keys if name == "k" else queries, :]


@torch.no_grad()
def precision(encoding: Encoding) -> None:
    """Half precision loses no more than its own rounding, at far positions and distances too."""
    wide = copy.deepcopy(randomized(encoding)).double()
    longest = size_of(encoding, "max_length", 1 << 30)  # of a table that ends
    offsets = [offset for offset in (0, 250, 3000) if offset + 12 <= longest]
    for dtype, offset, far in itertools.product(_HALVES, offsets, (False, True)):
        probe = Probe.of(encoding, dtype=dtype, length=12)
        keys = torch.arange(probe.length) if far else None  # else they move with the queries
        doubled = probe.map(lambda t: t.double())
        with _Widening() as widening:
            exact = observe(wide, doubled, None, keys, offset=offset)
        assert not widening.seen, f"float64 inputs went through half precision in {widening.seen}"
        got = observe(encoding, probe, None, keys, offset=offset)
        if not exact.keys().isdisjoint(FROM_POSITIONS):  # only a cast model shows these half types
            cast = observe(copy.deepcopy(encoding).to(dtype), probe, None, keys, offset=offset)
            got |= {name: cast[name] for name in FROM_POSITIONS if name in cast}
        for name, want in exact.items():
            # Products of halves round once per factor as well.
            roundings = 4 if name in ("content_score", "value_term") else 1
            rounded = got[name].dtype if name in FROM_POSITIONS else dtype
            allowed = roundings * rounding_tolerance(want, rounded)
            allowed += 1e-6 * max(1.0, float(want.abs().max()))
            error = float((got[name].double() - want.double()).abs().max())
            assert error <= allowed, (
                f"{name} is off by {error:.2g} at position {offset} in {dtype};"
                f" rounding explains {allowed:.2g}"
            )


class _Widening(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Notes operations that take half-precision numbers to a wider type: digits were lost there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = _dtypes((args, kwargs)), _dtypes(result)
        if given & set(_HALVES) and made & {torch.float32, torch.float64}:
            self.seen.append(str(func))
        return result


def _dtypes(tree: Any) -> set[torch.dtype]:
    return {leaf.dtype for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}


@torch.no_grad()
def permutation(encoding: Encoding) -> None:
    """Shuffled tokens give shuffled outputs, without a causal mask, exactly where declared so."""
    encoding = randomized(encoding).double()
    probe = Probe.of(encoding, batch=1, length=7, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    straight = _attend(encoding, probe.x)
    shuffled = _attend(encoding, probe.x[:, order])
    error = float((shuffled - straight[:, order]).abs().max())
    if encoding.permutation == "equivariant":
        assert error < 1e-9, f"declared equivariant, but shuffling changes outputs by {error:.2g}"
    else:
        assert error > 1e-6, "declared sensitive to order, but shuffling changes nothing"


def _attend(encoding: Encoding, x: Tensor) -> Tensor:
    """Plain attention of x [1, T, E] with itself through every hook, no mask: [1, T, H, D]."""
    like = Probe.of(encoding, batch=1, length=x.shape[1], dtype=x.dtype).q
    heads, head_dim = like.shape[1], like.shape[3]
    at = torch.arange(x.shape[1])
    generator = torch.Generator().manual_seed(7)
    mix = torch.randn(3, heads, x.shape[2], head_dim, generator=generator, dtype=x.dtype)
    mix = mix * x.shape[2] ** -0.5  # else one key takes all the weight and hides the others
    q, k, v = (encoding.embed(x).unsqueeze(1) @ m for m in mix)  # [1, H, T, D]
    q, k = encoding(q, k, None if encoding.position_axes == 1 else spread(encoding, at))
    score = q @ k.mT
    if (term := encoding.content_score(q, k, at, at)) is not None:
        score = score + term
    scale = encoding.softmax_scale(head_dim)
    score = score * (head_dim**-0.5 if scale is None else scale)
    if (factor := encoding.query_scale(at)) is not None:
        score = score * factor.unsqueeze(-1)
    if (bias := encoding.distance_bias(at[:, None] - at[None, :])) is not None:
        score = score + bias
    weights = score.softmax(-1).to(v.dtype)
    out: Tensor = weights @ v
    if (extra := encoding.value_term(weights, at, at)) is not None:
        out = out + extra
    return out.transpose(1, 2)
