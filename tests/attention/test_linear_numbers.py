"""Rounding, vanishing denominators and gradients of linear attention."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention.linear.attention import linear_attention as typed

from .linear_naive import naive, random

linear_attention: Any = typed  # calls here unpack lists
KINDS: list[Any] = ["elu", "relu", "cosine"]
D = 8


@pytest.mark.parametrize(
    ("which", "kind", "causal", "chunk"),
    [
        ("rope", "elu", True, 64),
        ("rope", "elu", False, 64),
        ("rope", "relu", True, 256),
        ("rope", "cosine", True, 256),
        ("rope", "cosine", False, 256),
        ("rope+alibi", "elu", True, 256),
        ("xpos", "elu", True, 256),
    ],
)
def test_half_precision_at_64k_tokens(which: str, kind: Any, causal: bool, chunk: int) -> None:
    """The last queries, which see all keys, against float64; values have a mean to find."""
    n, width, last = 65_536, 16, 64
    rope = whorl.RoPE(width)
    encoding: whorl.Encoding = rope if which == "rope" else whorl.XPos(width)
    if which == "rope+alibi":
        encoding = rope + whorl.ALiBi(2, max_bias=14.0)  # slopes 1/128 and 1/16384
    q, k, v = (random(1, 2, n, width, dtype=torch.bfloat16, seed=s) for s in range(3))
    v = v + 1
    out = linear_attention(q, k, v, encoding, feature_map=kind, causal=causal, chunk=chunk)
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
    at = torch.arange(n - last, n)
    weights = (torch.arange(n) <= at[:, None]).double()
    if not causal:
        weights = torch.ones_like(weights)
    if which == "rope+alibi":
        slopes = torch.tensor([2.0**-7, 2.0**-14], dtype=torch.float64)
        weights = weights * (-slopes[:, None, None] * (at[:, None] - torch.arange(n))).exp()

    def turn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(encoding, whorl.XPos):
            return (
                encoding.rotate(x, at, role="query", reference=n),
                encoding.rotate(y, role="key", reference=n),
            )
        return rope(x, y, at, torch.arange(n))

    want = naive(q[:, :, n - last :], k, v, turn, kind, weights)
    found = out[:, :, n - last :].double()
    unit = torch.finfo(torch.bfloat16).eps / 2
    # Rounded once at the end: half a unit, and next to nothing for the sums.
    assert bool(((found - want).abs() <= unit * want.abs() + 1e-5).all())


@pytest.mark.parametrize("causal", [False, True])
def test_float32_sums(causal: bool) -> None:
    n = 4096
    q, k, v = (random(1, 1, n, 16, seed=s) for s in range(3))
    rope = whorl.RoPE(16)
    out = linear_attention(q.float(), k.float(), v.float(), rope, causal=causal)
    want = linear_attention(q, k, v, rope, causal=causal)
    assert float((out - want).abs().max()) < 2e-6


def test_elu_is_positive_where_torch_says_zero() -> None:
    q, k = torch.full((1, 1, 3, D), -30.0), torch.full((1, 1, 3, D), -12.0)
    v = torch.arange(3.0).view(1, 1, 3, 1)
    assert float(torch.nn.functional.elu(q).add(1).max()) == 0
    out = linear_attention(q, k, v)
    torch.testing.assert_close(out, torch.ones(1, 1, 3, 1))
    vanished = linear_attention(q * 100, k, v)  # exp(-3000) is 0 in any dtype
    assert torch.equal(vanished, torch.zeros(1, 1, 3, 1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["relu", "cosine"])
def test_vanishing_denominators_give_zero(kind: Any, causal: bool) -> None:
    q = random(1, 2, 5, D, dtype=torch.float32).abs().neg()
    k, v = random(1, 2, 5, D, dtype=torch.float32, seed=1), torch.ones(1, 2, 5, 3)
    if kind == "cosine":  # each key points away from each query
        q, k = torch.ones_like(q), -torch.ones_like(k)
    xs = [x.requires_grad_() for x in (q, k, v)]
    out = linear_attention(*xs, feature_map=kind, causal=causal)
    assert torch.equal(out, torch.zeros_like(out))
    for grad in torch.autograd.grad(out.sum(), xs):
        assert grad.isfinite().all()


def test_relu_that_only_the_rotation_makes_positive() -> None:
    """phi(q) phi(k) = 0 but its rotated product is not: 0 then, not infinity."""
    q, k = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    rope = whorl.RoPE(2)
    out = linear_attention(
        *(q.view(1, 1, 1, 2), k.view(1, 1, 1, 2), torch.ones(1, 1, 1, 1), rope),
        feature_map="relu",
        positions=torch.tensor([1]),
        key_positions=torch.tensor([0]),
    )
    assert float(out) == 0


def test_eps_is_where_the_result_becomes_zero() -> None:
    q, k, v = (torch.full((1, 1, 1, 1), x) for x in (1e-2, 1e-2, 3.0))
    assert float(linear_attention(q, k, v, feature_map="relu", eps=0.9e-4)) == pytest.approx(3.0)
    assert float(linear_attention(q, k, v, feature_map="relu", eps=1.1e-4)) == 0
    assert float(linear_attention(q - 9, k, v, feature_map="elu", eps=1.0)) == pytest.approx(3.0)


def test_zero_vectors_have_no_direction() -> None:
    q, k, v = random(1, 2, 6, D), random(1, 2, 6, D, seed=1), random(1, 2, 6, 3, seed=2)
    q[:, :, 2], k[:, :, 4] = 0, 0
    xs = [x.requires_grad_() for x in (q, k, v)]
    out = linear_attention(*xs, whorl.RoPE(D), feature_map="cosine")
    torch.testing.assert_close(out[:, :, 2], v.mean(2))
    for grad in torch.autograd.grad(out.sum(), xs):
        assert grad.isfinite().all()


@pytest.mark.parametrize(
    ("which", "causal", "kind"),
    [
        *(("rope", causal, kind) for kind in KINDS for causal in (False, True)),
        ("alibi", True, "elu"),
        ("xpos", True, "relu"),
    ],
)
def test_gradients(which: str, causal: bool, kind: Any) -> None:
    rope = whorl.RoPE(4, frequencies="trained").double()
    alibi = whorl.ALiBi(2, slopes="trained").double()
    made: dict[str, whorl.Encoding] = {
        "rope": rope,
        "alibi": rope + alibi,
        "xpos": whorl.XPos(4, scale_base=2.0),
    }
    encoding = made[which]
    xs = [random(1, n, 5, w, seed=s) for s, (n, w) in enumerate(((2, 4), (1, 4), (1, 3)))]
    mask = torch.tensor([[1, 1, 0, 1, 1]])
    trained = list(encoding.parameters())

    def run(*tensors: Tensor) -> Tensor:
        q, k, v = tensors[:3]
        return linear_attention(
            q, k, v, encoding, feature_map=kind, causal=causal, mask=mask, chunk=2
        )

    inputs = (*(x.requires_grad_() for x in xs), *trained)
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("causal", [False, True])
def test_gradient_of_elu_at_zero(causal: bool) -> None:
    """phi(x) = exp(x) below 0 and x + 1 above: its slope at 0 is 1 from both sides."""
    q, k, v = random(1, 2, 9, D), random(1, 2, 9, D, seed=1), random(1, 2, 9, D, seed=2)
    q[..., ::2], k[..., 1::2] = 0.0, 0.0
    weights = torch.ones(9, 9).tril() if causal else None
    cotangent = random(1, 2, 9, D, seed=3)
    found = []
    for attend in (
        lambda q, k: linear_attention(q, k, v, causal=causal, chunk=4),
        lambda q, k: naive(q, k, v, weights=weights),
    ):
        leaves = [x.clone().requires_grad_() for x in (q, k)]
        found.append(torch.autograd.grad(attend(*leaves), leaves, cotangent))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


def test_gradient_of_large_inputs_is_finite() -> None:
    """where(x > 0, x + 1, exp(x)) has NaN here."""
    q, k, v = (torch.full((1, 1, 2, D), 200.0, requires_grad=True) for _ in range(3))
    for grad in torch.autograd.grad(linear_attention(q, k, v).sum(), (q, k, v)):
        assert grad.isfinite().all()


def test_steep_slopes_and_far_positions() -> None:
    """exp(-m d) underflows between tokens that are far apart; nothing ever overflows."""
    at = torch.tensor([0, 1, 10_000, 10_001, 10**9])
    q, k, v = (random(1, 2, 5, D, dtype=torch.float32, seed=s) for s in range(3))
    xs = [x.requires_grad_() for x in (q, k, v)]
    alibi = whorl.ALiBi(2, max_bias=0.1, slopes="trained")
    out = linear_attention(*xs, alibi, causal=True, positions=at, chunk=3)
    torch.testing.assert_close(out[:, :, 4], v[:, :, 4])
    for grad in torch.autograd.grad(out.sum(), [*xs, alibi.alpha]):
        assert grad.isfinite().all()


def test_autocast_leaves_the_sums_alone() -> None:
    q, k, v = (random(1, 2, 300, D, dtype=torch.float32, seed=s) for s in range(3))
    want = linear_attention(q, k, v, whorl.RoPE(D), causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(linear_attention(q, k, v, whorl.RoPE(D), causal=True), want)


def test_any_strides() -> None:
    q, k, v = (random(2, 30, 2, D, dtype=torch.float32, seed=s).transpose(1, 2) for s in range(3))
    dense = [x.contiguous() for x in (q, k, v)]
    rope = whorl.RoPE(D)
    torch.testing.assert_close(
        linear_attention(q, k, v, rope, causal=True), linear_attention(*dense, rope, causal=True)
    )
