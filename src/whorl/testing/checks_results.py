"""Checks of results: shape, dtype, strides, earlier calls, compilation, gradients."""

import copy
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Encoding

from ._compare import FROM_POSITIONS, check_close, check_equal, get_expected_shapes
from .inputs import EncodingInputs, run_hooks, set_random_parameters

__all__ = [
    "check_compiles",
    "check_dtypes",
    "check_empty",
    "check_gradients",
    "check_history",
    "check_scorer",
    "check_strides",
]


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
        score = encoding.scorer(inputs.q, limits)
        for a, b in ((0, 5), (5, 12), (12, 13)):
            end = inputs.length if limits != (0, 12) else b  # causal: no keys past the last query
            block = inputs.q[:, :, a:b], inputs.k[:, :, :end], at[a:b], at[:end]
            got, want = score(*block), encoding.content_score(*block)
            assert (got is None) == (want is None), "one of scorer and content_score gives None"
            if got is None or want is None:
                continue
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
