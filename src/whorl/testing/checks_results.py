"""Checks of what comes out: shape, dtype, strides, earlier calls, compilation, gradients."""

import copy
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Encoding

from ._compare import FROM_POSITIONS, RESHAPED, same, shapes
from .probe import Probe, observe, randomized

__all__ = ["compiles", "dtype_kept", "empty", "gradients", "history", "scorer", "strides"]


def dtype_kept(encoding: Encoding) -> None:
    """Results have the documented shape and their input's dtype; of positions alone, float32 up.

    Under autocast too, but score and value terms may then come in the type that autocast chose.
    """
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        probe = Probe.of(encoding, dtype=dtype)
        for automatic in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=automatic):
                seen = observe(encoding, probe)
            for name, got in seen.items():
                kept = (torch.float32, torch.float64) if name in FROM_POSITIONS else (dtype,)
                if automatic and name not in ("embed", "q", "k"):
                    kept = (*kept, torch.bfloat16)
                assert got.dtype in kept, f"{name} came back as {got.dtype} for {dtype}"
            _check_shapes(seen, probe)


def empty(encoding: Encoding) -> None:
    """No tokens in, no tokens out, at every hook."""
    probe = Probe.of(encoding, length=0)
    _check_shapes(observe(encoding, probe), probe)


def _check_shapes(seen: dict[str, Tensor], probe: Probe) -> None:
    expected = shapes(probe)
    for name, got in seen.items():
        assert got.shape == expected[name], (
            f"{name} came back as {list(got.shape)} instead of {list(expected[name])}"
        )


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
        got = observe(encoding, probe.map(view))
        same(got, expected, f"a {view.__name__} view differs", relative=RESHAPED)


def history(encoding: Encoding) -> None:
    """Earlier calls and other instances change nothing."""
    probe = Probe.of(encoding)
    before = observe(encoding, probe)
    other = copy.deepcopy(encoding)
    for disturbed in (encoding, other):
        for length, dtype in ((40, torch.bfloat16), (3, torch.float16), (17, torch.float64)):
            observe(disturbed, Probe.of(encoding, length=length, dtype=dtype), offset=5)
    same(observe(encoding, probe), before, "the same call gives another result afterwards")
    same(observe(other, probe), before, "another instance gives another result")


def scorer(encoding: Encoding) -> None:
    """A scorer for the blocks of a call gives what content_score gives, where it is looked at."""
    probe = Probe.of(randomized(encoding), length=13)
    steps = torch.arange(probe.length) + 5
    for at, reach in ((steps * 3, None), (steps, (-12, 12)), (steps, (0, 12))):
        score = encoding.scorer(probe.q, reach)
        for a, b in ((0, 5), (5, 12), (12, 13)):
            end = probe.length if reach != (0, 12) else b  # a causal block ends where it ends
            block = probe.q[:, :, a:b], probe.k[:, :, :end], at[a:b], at[:end]
            got, want = score(*block), encoding.content_score(*block)
            assert (got is None) == (want is None), "one of scorer and content_score gives None"
            if got is None or want is None:
                continue
            distance = block[2].unsqueeze(-1) - block[3].unsqueeze(-2)
            seen = (
                torch.ones_like(distance, dtype=torch.bool)
                if reach is None
                else distance >= reach[0]
            )
            assert bool(got.isfinite().all()), "a score that will be hidden is not finite"
            mine, theirs = ({"content_score": t[..., seen]} for t in (got, want))
            same(mine, theirs, f"the scorer for reach {reach} differs", relative=RESHAPED)


def compiles(encoding: Encoding) -> None:
    """torch.compile takes every hook whole, with equal results; one graph serves all lengths."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def call(probe: Probe, context_length: int) -> dict[str, Tensor]:
        return observe(encoding, probe, offset=2, context_length=context_length)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for length in (11, 16, 21, 34):  # the first unlike any number of heads
        probe = Probe.of(encoding, length=length)
        got, want = compiled(probe, length + 2), call(probe, length + 2)
        same(got, want, f"compiled and eager differ at length {length}", 1e-6, RESHAPED)
    assert len(graphs) <= 1, f"{len(graphs)} graphs were compiled for four lengths"


def gradients(encoding: Encoding) -> None:
    """Gradients to inputs and trained parameters agree with finite differences in float64."""
    encoding = randomized(encoding).double()
    probe = Probe.of(encoding, batch=1, length=3, dtype=torch.float64)
    probe.map(lambda t: t.requires_grad_())
    seen = observe(encoding, probe, offset=2)
    for name, t in seen.items():
        assert t.requires_grad or name in FROM_POSITIONS, f"{name} lost its gradient"
    total = torch.stack([t.sum() for t in seen.values() if t.requires_grad]).sum()
    for name, parameter in encoding.named_parameters():
        (reached,) = torch.autograd.grad(total, parameter, retain_graph=True, allow_unused=True)
        assert reached is not None, f"no gradient reaches the parameter {name}"

    def call(*_: Tensor) -> tuple[Tensor, ...]:  # gradcheck moves the tensors of probe in place
        return tuple(observe(encoding, probe, offset=2).values())

    attended = encoding.hooks & {"rotation", "score"}
    touched = [probe.x] if "input" in encoding.hooks else []
    touched += [probe.q, probe.k] if attended else []
    touched += [probe.weights] if "value" in encoding.hooks else []
    if touched := [*touched, *encoding.parameters()]:
        torch.autograd.gradcheck(call, touched, raise_exception=True)
