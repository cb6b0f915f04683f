"""The checks of the conformance suite by name: functions that raise if an encoding fails.

A check must fail only for its own reason. So each uses fresh contiguous inputs unless it is about
strides, keeps the batch size unless it is about rows, and calls shorter lengths before longer ones
unless it is about earlier calls. All compare every result of ``run_hooks``, whichever hooks the
encoding has. ``tests/testing`` contains a broken encoding for each check.
"""

import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from whorl.encodings import Encoding

from .inputs import (
    EncodingInputs,
    compute_rounding_tolerance,
    expand_positions,
    get_size,
    run_hooks,
    set_random_parameters,
)
from .results import (
    FROM_POSITIONS,
    add_batch_axis,
    check_close,
    check_equal,
    get_expected_shapes,
    select_row,
)
from .round_trips import (
    build_copy,
    check_config_round_trip,
    check_pickle_round_trip,
    check_repr_round_trip,
    check_state_dict,
)

__all__ = ["CHECKS"]

_HALVES = (torch.bfloat16, torch.float16)
# Fixed, so that scalings which depend on the length are compared at one length.
_CONTEXT = 64


def check_constants(encoding: Encoding) -> None:
    """Constants survive .half(), .bfloat16(), .double() and meta device + to_empty."""
    set_random_parameters(encoding)
    inputs = EncodingInputs.of(encoding)
    expected = run_hooks(encoding, inputs)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        cast = copy.deepcopy(encoding).to(dtype)
        got = {n: t.to(expected[n].dtype) for n, t in run_hooks(cast, inputs).items()}
        check_equal(got, expected, f"results change after .to({dtype})", tolerance=1e-6)
    with torch.device("meta"):
        empty = build_copy(encoding)
    results = run_hooks(empty, inputs.map(lambda t: t.to("meta")))
    for name, tensor in results.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape on meta"
    filled = empty.to_empty(device="cpu")
    filled.load_state_dict(encoding.state_dict())
    check_equal(
        run_hooks(filled, inputs), expected, "results differ after meta device and to_empty"
    )


def check_dtypes(encoding: Encoding) -> None:
    """Results have the documented shape and dtype: that of the input, or float32 or wider.

    The latter if they depend on positions alone. Under autocast the same holds, but scores and
    value terms may have the dtype of autocast.
    """
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        inputs = EncodingInputs.of(encoding, dtype=dtype)
        for automatic in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=automatic):
                seen = run_hooks(encoding, inputs)
            for name, got in seen.items():
                allowed = (torch.float32, torch.float64) if name in FROM_POSITIONS else (dtype,)
                if automatic and name not in ("embed", "q", "k"):
                    allowed = (*allowed, torch.bfloat16)
                assert got.dtype in allowed, f"{name} came back as {got.dtype} for {dtype}"
            _check_shapes(seen, inputs)


def check_empty(encoding: Encoding) -> None:
    """No tokens in, no tokens out, at every hook."""
    inputs = EncodingInputs.of(encoding, length=0)
    _check_shapes(run_hooks(encoding, inputs), inputs)


def _check_shapes(seen: dict[str, Tensor], inputs: EncodingInputs) -> None:
    expected = get_expected_shapes(inputs)
    for name, got in seen.items():
        assert got.shape == expected[name], (
            f"{name} came back as {list(got.shape)} instead of {list(expected[name])}"
        )


def check_strides(encoding: Encoding) -> None:
    """Views give the same results as contiguous tensors."""
    inputs = EncodingInputs.of(encoding)
    expected = run_hooks(encoding, inputs)

    def transposed(t: Tensor) -> Tensor:
        return t.transpose(1, 2).contiguous().transpose(1, 2)

    def every_second(t: Tensor) -> Tensor:
        return t.repeat_interleave(2, dim=-1)[..., ::2]

    def sliced(t: Tensor) -> Tensor:
        return torch.cat((t, t), dim=1)[:, : t.shape[1]]

    for view in (transposed, every_second, sliced):
        got = run_hooks(encoding, inputs.map(view))
        check_close(got, expected, f"a {view.__name__} view differs")


def check_history(encoding: Encoding) -> None:
    """Earlier calls and other instances change nothing."""
    inputs = EncodingInputs.of(encoding)
    before = run_hooks(encoding, inputs)
    other = copy.deepcopy(encoding)
    for disturbed in (encoding, other):
        for length, dtype in ((40, torch.bfloat16), (3, torch.float16), (17, torch.float64)):
            run_hooks(disturbed, EncodingInputs.of(encoding, length=length, dtype=dtype), offset=5)
    check_equal(
        run_hooks(encoding, inputs), before, "the same call gives another result afterwards"
    )
    check_equal(run_hooks(other, inputs), before, "another instance gives another result")


def check_scorer(encoding: Encoding) -> None:
    """The scorer of a call equals content_score wherever the keys are visible."""
    inputs = EncodingInputs.of(set_random_parameters(encoding), length=13)
    steps = torch.arange(inputs.length) + 5
    for at, limits in ((steps * 3, None), (steps, (-12, 12)), (steps, (0, 12))):
        score = encoding.scorer(inputs.q, inputs.k, at, limits, 0.5)
        for a, b in ((0, 5), (5, 12), (12, 13)):
            end = inputs.length if limits != (0, 12) else b  # causal: no keys past the last query
            block = inputs.q[:, :, a:b], inputs.k[:, :, :end], at[a:b], at[:end]
            got, want = score(*block), encoding.content_score(*block)
            assert (got is None) == (want is None), "one of scorer and content_score gives None"
            if got is None or want is None:
                continue
            want = want * 0.5
            distance = block[2].unsqueeze(-1) - block[3].unsqueeze(-2)
            visible = torch.ones_like(distance, dtype=torch.bool)
            if limits is not None:
                visible = distance >= limits[0]
            assert bool(got.isfinite().all()), "a score that will be masked is not finite"
            scored, expected = ({"content_score": t[..., visible]} for t in (got, want))
            complaint = f"the scorer for distances {limits} differs"
            check_close(scored, expected, complaint)


def check_compiles(encoding: Encoding) -> None:
    """torch.compile makes one graph of all hooks for all lengths, with equal results."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def call(inputs: EncodingInputs, context_length: int) -> dict[str, Tensor]:
        return run_hooks(encoding, inputs, offset=2, context_length=context_length)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for length in (11, 16, 21, 34):  # the first unlike any number of heads
        inputs = EncodingInputs.of(encoding, length=length)
        got, want = compiled(inputs, length + 2), call(inputs, length + 2)
        check_close(got, want, f"compiled and eager differ at length {length}", 1e-6)
    assert len(graphs) <= 1, f"{len(graphs)} graphs were compiled for four lengths"


def check_gradients(encoding: Encoding) -> None:
    """Gradients to inputs and trained parameters agree with finite differences in float64."""
    encoding = set_random_parameters(encoding).double()
    inputs = EncodingInputs.of(encoding, batch=1, length=3, dtype=torch.float64)
    inputs.map(lambda t: t.requires_grad_())
    seen = run_hooks(encoding, inputs, offset=2)
    for name, t in seen.items():
        assert t.requires_grad or name in FROM_POSITIONS, f"{name} lost its gradient"
    total = torch.stack([t.sum() for t in seen.values() if t.requires_grad]).sum()
    for name, parameter in encoding.named_parameters():
        (reached,) = torch.autograd.grad(total, parameter, retain_graph=True, allow_unused=True)
        assert reached is not None, f"no gradient reaches the parameter {name}"

    def call(*_: Tensor) -> tuple[Tensor, ...]:  # gradcheck changes the tensors of inputs in place
        return tuple(run_hooks(encoding, inputs, offset=2).values())

    attended = encoding.hooks & {"rotation", "score"}
    touched = [inputs.x] if "input" in encoding.hooks else []
    touched += [inputs.q, inputs.k] if attended else []
    touched += [inputs.weights] if "value" in encoding.hooks else []
    if touched := [*touched, *encoding.parameters()]:
        torch.autograd.gradcheck(call, touched, raise_exception=True)


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


@torch.no_grad()
def check_head_shards(encoding: Encoding) -> None:
    """Two encodings for half of the heads, side by side, are the whole; if it says how to share."""
    counts = [get_size(encoding, option, 0) for option in ("num_heads", "num_kv_heads")]
    if encoding.head_axes is None or not any(counts) or any(count % 2 for count in counts):
        return
    inputs = EncodingInputs.of(set_random_parameters(encoding))
    if inputs.k.shape[1] % 2:
        inputs = dataclasses.replace(inputs, k=torch.cat((inputs.k, inputs.k), 1))
    expected = run_hooks(encoding, inputs)
    halves = []
    for rank in range(2):
        own = {n: getattr(inputs, n).chunk(2, 1)[rank] for n in ("q", "k", "weights")}
        share = encoding.shard_heads(rank, 2)
        halves.append(run_hooks(share, EncodingInputs(x=inputs.x, **own)))
    got = dict(halves[0])
    for name in ("q", "k", "content_score", "value_term", "distance_bias"):
        if name in expected:
            axis = 0 if name == "distance_bias" and got[name].dim() == 3 else 1
            got[name] = torch.cat([half[name] for half in halves], axis)
    check_equal(got, expected, "shares of the heads differ from the whole", tolerance=1e-5)


CHECKS: dict[str, Callable[[Encoding], None]] = {
    "config_round_trip": check_config_round_trip,
    "repr_round_trip": check_repr_round_trip,
    "pickle_round_trip": check_pickle_round_trip,
    "state_dict": check_state_dict,
    "dtype_kept": check_dtypes,
    "strides": check_strides,
    "empty": check_empty,
    "batch_rows": check_batch_rows,
    "positions_agree": check_positions,
    "chunks": check_chunks,
    "history": check_history,
    "scorer": check_scorer,
    "constants": check_constants,
    "precision": check_precision,
    "compiles": check_compiles,
    "gradients": check_gradients,
    "permutation": check_permutation,
    "head_shards": check_head_shards,
}
