"""rms_norm and swiglu against float64 formulas, forward and backward, by kernel and without it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whorl.kernels import layers, native

EPS = 1e-5
native_only = pytest.mark.skipif(native.problem() is not None, reason=str(native.problem()))


def by_formula(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return gate / (1 + (-gate).exp()) * up


def gradients(call: object, *leaves: Tensor) -> tuple[Tensor, ...]:
    """The result, and the gradients under a fixed cotangent."""
    inputs = [x.detach().clone().requires_grad_() for x in leaves]
    out = call(*inputs)  # type: ignore[operator]
    cotangent = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return (out.detach(), *torch.autograd.grad(out, inputs, cotangent))


@native_only
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 600), width=st.integers(1, 70), seed=st.integers(0, 99))
def test_kernel_is_the_formula(rows: int, width: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 2 * width, generator=source) * 3
    weight = torch.randn(2 * width, generator=source)
    found = gradients(lambda x, w: layers.rms_norm(x, w, EPS), x, weight)
    wanted = gradients(by_formula, x.double(), weight.double())
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * max(1, rows) ** 0.5)
    for a, b in zip(gradients(layers.swiglu, x), gradients(gated, x.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-6, atol=2e-6)


@native_only
def test_kernel_is_in_use_and_takes_any_strides() -> None:
    x = torch.randn(6, 4, 10).transpose(0, 1)
    weight = torch.randn(20)[::2]
    assert type(layers.swiglu(x.requires_grad_()).grad_fn).__name__ == "_SwiGLUBackward"
    torch.testing.assert_close(layers.swiglu(x), gated(x))
    torch.testing.assert_close(layers.rms_norm(x, weight, EPS), by_formula(x, weight))
    cotangent = torch.randn(10, 6, 4).transpose(0, 2)
    (found,) = torch.autograd.grad(layers.rms_norm(x, weight, EPS), x, cotangent)
    (wanted,) = torch.autograd.grad(by_formula(x, weight), x, cotangent)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_keep_theirs(dtype: torch.dtype) -> None:
    x, weight = torch.randn(3, 8, dtype=dtype), torch.randn(8)
    found = layers.rms_norm(x, weight, EPS)
    assert found.dtype == layers.swiglu(x).dtype == dtype
    near = 1e-6 if dtype == torch.float64 else 2e-2
    expected = by_formula(x.double(), weight.double())
    torch.testing.assert_close(found.double(), expected, rtol=near, atol=near)
    torch.testing.assert_close(layers.swiglu(x).double(), gated(x.double()), rtol=near, atol=near)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(3, 8), torch.randn(8)
    by_kernel = layers.rms_norm(x, weight, EPS), layers.swiglu(x)
    monkeypatch.setattr(native, "problem", lambda: "no compiler")
    torch.testing.assert_close((layers.rms_norm(x, weight, EPS), layers.swiglu(x)), by_kernel)


@native_only
def test_sums_do_not_depend_on_threads() -> None:
    x, weight = torch.randn(2000, 24), torch.randn(24)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = gradients(lambda x, w: layers.rms_norm(x, w, EPS), x, weight)
        torch.set_num_threads(2)
        two = gradients(lambda x, w: layers.rms_norm(x, w, EPS), x, weight)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
