"""The checks of the exam, one function each: they take an encoding and raise where it falls short.

A check must fail for its own reason only, so each feeds fresh contiguous inputs unless strides are
its subject, keeps the batch size unless rows are, and calls shorter lengths before longer ones
unless history is. ``tests/testing`` holds one broken encoding for each.
"""

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import whorl
from whorl.encodings import Composition, Encoding, from_dict, names

from .probe import Probe, observe, randomized, rounding_tolerance

__all__ = ["CHECKS"]

CHECKS: dict[str, Callable[[Encoding], None]] = {}

_HALVES = (torch.bfloat16, torch.float16)
# Fixed, so that scalings which follow the length are compared at one length.
_CONTEXT = 64


def _check(function: Callable[[Encoding], None]) -> Callable[[Encoding], None]:
    CHECKS[function.__name__] = function
    return function


@_check
def config_round_trip(encoding: Encoding) -> None:
    """Options survive JSON, cannot be changed, and unknown ones are refused."""
    options = json.loads(json.dumps(encoding.to_dict()))
    again = _rebuild(encoding, options)
    assert again.config == encoding.config, f"{again.config} came back for {encoding.config}"
    for field in dataclasses.fields(encoding.config):
        try:
            setattr(encoding.config, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"config.{field.name} can be changed; use a frozen dataclass")
    if not isinstance(encoding, Composition):
        try:
            _rebuild(encoding, {**options, "no_such_option": 1})
        except TypeError:
            return
        raise AssertionError("an unknown option was accepted")


@_check
def repr_round_trip(encoding: Encoding) -> None:
    """The repr is an expression that builds an equal encoding."""
    known = {type(part).__name__: type(part) for part in getattr(encoding, "parts", [encoding])}
    again = eval(repr(encoding), {**vars(whorl), **known})
    assert again.config == encoding.config, f"{again!r} came back for {encoding!r}"


@_check
def pickle_round_trip(encoding: Encoding) -> None:
    """Pickling and deep copies keep configuration, parameters and results."""
    probe = Probe.of(encoding)
    for again in (pickle.loads(pickle.dumps(encoding)), copy.deepcopy(encoding)):
        assert again.config == encoding.config, f"config became {again.config}"
        _same(observe(again, probe), observe(encoding, probe), "the copy differs")


@_check
def state_dict(encoding: Encoding) -> None:
    """state_dict holds trained parameters and nothing else."""
    saved, trained = set(encoding.state_dict()), {n for n, _ in encoding.named_parameters()}
    assert saved == trained, f"state_dict has {sorted(saved - trained)} beside the parameters"


@_check
def dtype_kept(encoding: Encoding) -> None:
    """Queries, keys and embeddings keep shape and dtype, under autocast too."""
    for dtype in (torch.float32, torch.float64, *_HALVES):
        probe = Probe.of(encoding, dtype=dtype)
        for automatic in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=automatic):
                seen = observe(encoding, probe)
            for name, given in (("embed", probe.x), ("q", probe.q), ("k", probe.k)):
                got = seen[name]
                assert got.dtype == given.dtype, f"{name} came back as {got.dtype} for {dtype}"
                assert got.shape == given.shape, f"{name} came back as {list(got.shape)}"


@_check
def strides(encoding: Encoding) -> None:
    """Views give the same results as contiguous tensors."""
    probe = Probe.of(encoding)
    expected = observe(encoding, probe)

    def transposed(t: Tensor) -> Tensor:
        return t.transpose(1, 2).contiguous().transpose(1, 2)

    def every_second(t: Tensor) -> Tensor:
        return t.repeat_interleave(2, dim=-1)[..., ::2]

    def sliced(t: Tensor) -> Tensor:
        return torch.cat((t, t), dim=1)[:, : t.shape[1]]

    for view in (transposed, every_second, sliced):
        _same(observe(encoding, probe.map(view)), expected, f"a {view.__name__} view differs")


@_check
def empty(encoding: Encoding) -> None:
    """No tokens in, no tokens out."""
    probe = Probe.of(encoding, length=0)
    seen = observe(encoding, probe)
    assert seen["q"].shape == probe.q.shape, f"q came back as {list(seen['q'].shape)}"
    assert seen["embed"].shape == probe.x.shape, f"x came back as {list(seen['embed'].shape)}"


@_check
def batch_rows(encoding: Encoding) -> None:
    """A row's result does not depend on its batch-mates."""
    probe = Probe.of(encoding, batch=3)
    positions = torch.arange(probe.length) + torch.tensor([[0], [5], [40]])
    together = observe(encoding, probe, positions)
    for b in range(probe.batch):
        alone = observe(encoding, probe.rows(slice(b, b + 1)), positions[b : b + 1])
        _same(_row(alone, probe, 0, 1), _row(together, probe, b, 3), f"row {b} alone differs")


@_check
def positions_agree(encoding: Encoding) -> None:
    """Positions [T], [B, T], an int offset and an offset per row mean the same."""
    probe = Probe.of(encoding)
    steps = torch.arange(probe.length)
    plain = observe(encoding, probe, context_length=_CONTEXT)
    for positions in (steps, steps.expand(probe.batch, -1), steps.double()):
        if positions.is_floating_point() and "score" in encoding.hooks:
            continue  # buckets and learned tables take integers only
        got = observe(encoding, probe, positions, context_length=_CONTEXT)
        _same(_flat(got, probe), _flat(plain, probe), f"positions {list(positions.shape)} differ")
    moved = observe(encoding, probe, offset=3, context_length=_CONTEXT)
    got = observe(encoding, probe, steps + 3, context_length=_CONTEXT)
    _same(_flat(got, probe), _flat(moved, probe), "offset=3 differs from positions + 3")
    starts = torch.tensor([3, 11])
    by_row = observe(encoding, probe, offset=starts, context_length=_CONTEXT)
    got = observe(encoding, probe, steps + starts[:, None], context_length=_CONTEXT)
    _same(_flat(got, probe), _flat(by_row, probe), "offset per row differs from positions [B, T]")


@_check
def chunks(encoding: Encoding) -> None:
    """A sequence in pieces, each with its offset, gives what the whole gives."""
    probe = Probe.of(encoding, length=9)
    cuts = ((0, 1), (1, 4), (4, 9))
    parts = [
        observe(encoding, probe.steps(a, b), offset=a, context_length=_CONTEXT) for a, b in cuts
    ]
    whole = observe(encoding, probe, context_length=_CONTEXT)
    for name, axis in (("embed", 1), ("q", 2), ("k", 2)):
        joined = torch.cat([part[name] for part in parts], dim=axis)
        _same({name: joined}, {name: whole[name]}, "the chunks differ from the whole")


@_check
def history(encoding: Encoding) -> None:
    """Earlier calls and other instances change nothing."""
    probe = Probe.of(encoding)
    before = observe(encoding, probe)
    other = copy.deepcopy(encoding)
    for disturbed in (encoding, other):
        for length, dtype in ((40, torch.bfloat16), (3, torch.float16), (17, torch.float64)):
            observe(disturbed, Probe.of(encoding, length=length, dtype=dtype), offset=5)
    _same(observe(encoding, probe), before, "the same call gives another result afterwards")
    _same(observe(other, probe), before, "another instance gives another result")


@_check
def constants(encoding: Encoding) -> None:
    """Constants survive .half(), .bfloat16(), .double() and meta device + to_empty."""
    randomized(encoding)
    probe = Probe.of(encoding)
    expected = observe(encoding, probe)
    for dtype in (*_HALVES, torch.float64):
        cast = copy.deepcopy(encoding).to(dtype)
        got = {n: t.to(expected[n].dtype) for n, t in observe(cast, probe).items()}
        _same(got, expected, f"results change after .to({dtype})", tolerance=1e-6)
    with torch.device("meta"):
        hollow = _construct(encoding)
    shapes = observe(hollow, probe.map(lambda t: t.to("meta")))
    for name, tensor in shapes.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape on meta"
    filled = hollow.to_empty(device="cpu")
    filled.load_state_dict(encoding.state_dict())
    _same(observe(filled, probe), expected, "results differ after meta device and to_empty")


@_check
@torch.no_grad()
def precision(encoding: Encoding) -> None:
    """Half-precision inputs lose no more than their own rounding, at far positions too."""
    for offset in (0, 250, 3000):
        for dtype in _HALVES:
            probe = Probe.of(encoding, dtype=dtype, length=12)
            got = observe(encoding, probe, offset=offset)
            exact = observe(encoding, probe.map(lambda t: t.double()), offset=offset)
            for name in ("embed", "q", "k"):
                allowed = rounding_tolerance(exact[name], dtype) + 1e-6
                error = float((got[name].double() - exact[name].double()).abs().max())
                assert error <= allowed, (
                    f"{name} is off by {error:.2g} at position {offset} in {dtype};"
                    f" rounding explains {allowed:.2g}"
                )


@_check
def compiles(encoding: Encoding) -> None:
    """torch.compile takes it whole, with equal results, and one graph serves all lengths."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def call(x: Tensor, q: Tensor, k: Tensor, context_length: int) -> tuple[Tensor, Tensor, Tensor]:
        turned = encoding(q, k, offset=2, context_length=context_length)
        return encoding.embed(x, offset=2), *turned

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for length in (5, 8, 21, 34):
        probe = Probe.of(encoding, length=length)
        got = compiled(probe.x, probe.q, probe.k, length + 2)
        want = call(probe.x, probe.q, probe.k, length + 2)
        for name, a, b in zip(("embed", "q", "k"), got, want, strict=True):
            _same({name: a}, {name: b}, f"compiled and eager differ at length {length}", 1e-6)
    assert len(graphs) <= 1, f"{len(graphs)} graphs were compiled for four lengths"


@_check
def gradients(encoding: Encoding) -> None:
    """Gradients to inputs and trained parameters agree with finite differences in float64."""
    encoding = randomized(encoding).double()
    probe = Probe.of(encoding, batch=1, length=3, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (probe.x, probe.q, probe.k)]

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        x, q, k, *_ = tensors
        return tuple(observe(encoding, Probe(x, q, k, probe.weights), offset=2).values())

    touched = [t for t in call(*inputs) if t.requires_grad]
    assert len(touched) >= 3, "a result lost its gradient"
    torch.autograd.gradcheck(call, (*inputs, *encoding.parameters()), raise_exception=True)


@_check
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
    q, k, v = (encoding.embed(x).unsqueeze(1) @ m for m in mix)  # [1, H, T, D]
    q, k = encoding(q, k)
    score = q @ k.mT
    if (term := encoding.content_score(q, k, at, at)) is not None:
        score = score + term
    score = score * (encoding.softmax_scale(head_dim) or head_dim**-0.5) / head_dim
    if (bias := encoding.distance_bias(at[:, None] - at[None, :])) is not None:
        score = score + bias
    weights = score.softmax(-1)
    out: Tensor = weights @ v
    if (extra := encoding.value_term(weights, at, at)) is not None:
        out = out + extra
    return out.transpose(1, 2)


def _rebuild(encoding: Encoding, options: dict[str, Any]) -> Encoding:
    """Through the registry, or through its class where a third party has not registered it."""
    name = options.get("name")
    if name == Composition.name or name in names():
        return from_dict(options)
    rest = {key: value for key, value in options.items() if key != "name"}
    return type(encoding)(**rest)


def _construct(encoding: Encoding) -> Encoding:
    """A new instance from the same options, past ``to_dict``, which has a check of its own."""
    if isinstance(encoding, Composition):
        return Composition(*map(_construct, encoding.parts))
    options = {
        f.name: getattr(encoding.config, f.name) for f in dataclasses.fields(encoding.config)
    }
    return type(encoding)(**options)


def _row(seen: dict[str, Tensor], probe: Probe, row: int, batch: int) -> dict[str, Tensor]:
    """One batch row of everything observed with positions [B, T]."""
    return {name: _batch_first(name, t, batch)[row] for name, t in seen.items()}


def _flat(seen: dict[str, Tensor], probe: Probe) -> dict[str, Tensor]:
    """Everything observed, with a batch axis even where positions had none."""
    flat = {}
    for name, t in seen.items():
        first = _batch_first(name, t, probe.batch)
        flat[name] = first.expand(probe.batch, *first.shape[1:])
    return flat


def _batch_first(name: str, t: Tensor, batch: int) -> Tensor:
    if name == "distance_bias":  # [H, (B,) T, T]
        return t.movedim(0, -3) if t.dim() == 4 else t.unsqueeze(0)
    return t if name != "query_scale" or t.dim() == 2 else t.unsqueeze(0)


def _same(
    got: dict[str, Tensor], want: dict[str, Tensor], complaint: str, tolerance: float = 0.0
) -> None:
    assert got.keys() == want.keys(), f"{complaint}: hooks {sorted(got)} instead of {sorted(want)}"
    for name, expected in want.items():
        actual = got[name]
        assert actual.shape == expected.shape, (
            f"{complaint}: {name} is {list(actual.shape)} instead of {list(expected.shape)}"
        )
        if not expected.numel():
            continue
        error = float((actual.detach().double() - expected.detach().double()).abs().max())
        assert error <= tolerance, f"{complaint}: {name} by {error:.2g}"
