"""Checks of positions: batch rows, offsets, fractions, chunks, far positions, permutations."""

import copy
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from whorl.encodings import Encoding

from ._compare import FROM_POSITIONS, add_batch_axis, check_close, check_equal, select_row
from .inputs import (
    EncodingInputs,
    compute_rounding_tolerance,
    expand_positions,
    get_size,
    run_hooks,
    set_random_parameters,
)

__all__ = [
    "check_batch_rows",
    "check_chunks",
    "check_permutation",
    "check_positions",
    "check_precision",
]

_HALVES = (torch.bfloat16, torch.float16)
# Fixed, so that scalings which depend on the length are compared at one length.
_CONTEXT = 64


def check_batch_rows(encoding: Encoding) -> None:
    """A row's result does not depend on other rows of the batch."""
    inputs = EncodingInputs.of(set_random_parameters(encoding), batch=3)
    positions = torch.arange(inputs.length) + torch.tensor([[0], [5], [40]])
    together = run_hooks(encoding, inputs, positions)
    for b in range(inputs.batch):
        alone = run_hooks(encoding, inputs.select_rows(slice(b, b + 1)), positions[b : b + 1])
        expected = select_row(together, b, 3)
        check_close(select_row(alone, 0, 1), expected, f"row {b} alone differs")


def check_positions(encoding: Encoding) -> None:
    """Positions [T], [B, T], one offset and one per row agree; fractions work, or are refused."""
    inputs = EncodingInputs.of(set_random_parameters(encoding))
    steps, starts = torch.arange(inputs.length), torch.tensor([3, 11])

    def run(positions: Tensor | None = None, offset: int | Tensor = 0) -> dict[str, Tensor]:
        got = run_hooks(encoding, inputs, positions, offset=offset, context_length=_CONTEXT)
        return add_batch_axis(got, inputs.batch)

    plain = run()
    check_close(run(steps), plain, "positions [T] differ")
    check_close(run(steps.expand(2, -1)), plain, "positions [B, T] differ")
    check_close(run(steps + 3), run(offset=3), "offset=3 differs from positions + 3")
    rows = run(steps + starts[:, None])
    check_close(rows, run(offset=starts), "offset per row differs from positions [B, T]")
    query_positions = expand_positions(encoding, steps)
    key_positions = expand_positions(encoding, steps + 3)
    q, k = encoding(inputs.q, inputs.k, query_positions, key_positions, context_length=_CONTEXT)
    expected = {"q": plain["q"], "k": run(steps + 3)["k"]}
    check_equal({"q": q, "k": k}, expected, "key_positions are not those of the keys")
    if encoding.fractional:
        check_close(run(steps.double()), plain, "whole positions as floats differ")
        fractions = run(steps * 1.05)  # positions and distances a little above whole numbers
        rounded_down = all(torch.equal(fractions[name], plain[name]) for name in plain)
        assert not rounded_down or encoding.permutation == "equivariant", (
            "fractional positions are rounded down; use them as they are, or refuse them and set"
            " fractional = False"
        )
        return
    try:
        run(steps * 1.05)
    except (TypeError, ValueError):
        return
    raise AssertionError("fractional is False, but fractional positions were accepted")


def check_chunks(encoding: Encoding) -> None:
    """A sequence in chunks, each with its offset, gives the same results as the whole.

    The chunks of queries are tried with the same chunk of keys, and with all keys.
    """
    inputs = EncodingInputs.of(set_random_parameters(encoding), length=9)
    steps = torch.arange(inputs.length)
    pieces = []
    for a, b in ((0, 1), (1, 4), (4, 9)):
        cut, context = slice(a, b), _CONTEXT
        alone = run_hooks(encoding, inputs.select(cut, cut), offset=a, context_length=context)
        alone.pop("value_term", None)  # a sum over all keys, of which this chunk has only some
        with_all = run_hooks(
            encoding, inputs.select(cut, slice(None)), None, steps, offset=a, context_length=context
        )
        pieces += [(alone, cut, cut), (with_all, cut, slice(None))]
    whole = run_hooks(encoding, inputs, context_length=_CONTEXT)
    for got, queries, keys in pieces:
        want = {name: _select_block(name, t, queries, keys) for name, t in whole.items()}
        if "value_term" not in got:
            want.pop("value_term", None)
        check_close(got, want, "the chunks differ from the whole")


def _select_block(name: str, t: Tensor, queries: slice, keys: slice) -> Tensor:
    """The part of a result, for positions [T], that belongs to some queries and keys."""
    if name == "softmax_scale":
        return t
    if name == "query_scale":
        return t[queries]
    if name in ("content_score", "distance_bias"):
        return t[..., queries, keys]
    return t[..., keys if name == "k" else queries, :]


@torch.no_grad()
def check_precision(encoding: Encoding) -> None:
    """Half precision loses no more than its own rounding, at far positions and distances too."""
    wide = copy.deepcopy(set_random_parameters(encoding)).double()
    longest = get_size(encoding, "max_length", 1 << 30)  # of a trained table
    offsets = [offset for offset in (0, 250, 3000) if offset + 12 <= longest]
    for dtype, offset, far in itertools.product(_HALVES, offsets, (False, True)):
        inputs = EncodingInputs.of(encoding, dtype=dtype, length=12)
        keys = torch.arange(inputs.length) if far else None  # else they move with the queries
        doubled = inputs.map(lambda t: t.double())
        with _WideningRecorder() as widening:
            exact = run_hooks(wide, doubled, None, keys, offset=offset)
        found = widening.operations
        assert not found, f"float64 inputs went through half precision in {found}"
        got = run_hooks(encoding, inputs, None, keys, offset=offset)
        if not exact.keys().isdisjoint(FROM_POSITIONS):  # only a cast model has these in half types
            cast = run_hooks(copy.deepcopy(encoding).to(dtype), inputs, None, keys, offset=offset)
            got |= {name: cast[name] for name in FROM_POSITIONS if name in cast}
        for name, want in exact.items():
            # Products of halves round once per factor as well.
            roundings = 4 if name in ("content_score", "value_term") else 1
            rounded = got[name].dtype if name in FROM_POSITIONS else dtype
            allowed = roundings * compute_rounding_tolerance(want, rounded)
            allowed += 1e-6 * max(1.0, float(want.abs().max()))
            error = float((got[name].double() - want.double()).abs().max())
            assert error <= allowed, (
                f"{name} is off by {error:.2g} at position {offset} in {dtype};"
                f" rounding explains {allowed:.2g}"
            )


class _WideningRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Records operations that cast half precision to a wider type: digits were lost before them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.operations: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = _collect_dtypes((args, kwargs)), _collect_dtypes(result)
        if given & set(_HALVES) and made & {torch.float32, torch.float64}:
            self.operations.append(str(func))
        return result


def _collect_dtypes(tree: Any) -> set[torch.dtype]:
    return {leaf.dtype for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)}


@torch.no_grad()
def check_permutation(encoding: Encoding) -> None:
    """Without a causal mask, shuffled tokens give shuffled outputs if and only if declared so."""
    encoding = set_random_parameters(encoding).double()
    inputs = EncodingInputs.of(encoding, batch=1, length=7, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    straight = _attend(encoding, inputs.x)
    shuffled = _attend(encoding, inputs.x[:, order])
    error = float((shuffled - straight[:, order]).abs().max())
    if encoding.permutation == "equivariant":
        assert error < 1e-9, f"declared equivariant, but shuffling changes outputs by {error:.2g}"
    else:
        assert error > 1e-6, "declared sensitive to order, but shuffling changes nothing"


def _attend(encoding: Encoding, x: Tensor) -> Tensor:
    """Self-attention of x [1, T, E] with every hook and no mask: [1, T, H, D]."""
    like = EncodingInputs.of(encoding, batch=1, length=x.shape[1], dtype=x.dtype).q
    heads, head_dim = like.shape[1], like.shape[3]
    at = torch.arange(x.shape[1])
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(3, heads, x.shape[2], head_dim, generator=generator, dtype=x.dtype)
    weight = weight * x.shape[2] ** -0.5  # else one key gets nearly all the attention
    q, k, v = (encoding.embed(x).unsqueeze(1) @ w for w in weight)  # [1, H, T, D]
    q, k = encoding(q, k, None if encoding.position_axes == 1 else expand_positions(encoding, at))
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
