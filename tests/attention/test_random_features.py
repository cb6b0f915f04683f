"""Random features estimate exp(q k / sqrt(D)), and linear attention with them softmax attention."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import whorl
from whorl import RandomFeatures
from whorl.attention.linear.attention import linear_attention as typed
from whorl.scaling import YaRN

from .linear_naive import random

linear_attention: Any = typed
D, H, G, M = 8, 4, 2, 24


def compute_estimates(features: RandomFeatures, q: Tensor, k: Tensor) -> Tensor:
    """Estimates of exp(q k / sqrt(D)) for pairs of rows of q and k [N, D], from the definition."""
    y, z = (x / features.head_dim**0.25 for x in (q, k))
    w = features.projection
    products = torch.exp(y @ w.mT - y.square().sum(-1, keepdim=True) / 2)
    return (products * torch.exp(z @ w.mT - z.square().sum(-1, keepdim=True) / 2)).mean(-1)


def test_the_estimate_is_unbiased_and_that_of_the_features() -> None:
    q, k = random(12, D, seed=1) / 2, random(12, D, seed=2) / 2
    exact = ((q * k).sum(-1) / D**0.5).exp()
    found = []
    for seed in range(400):
        features = RandomFeatures(D, M, seed=seed)
        logs = features.compute_log_features(q) + features.compute_log_features(k)
        found.append(logs.exp().sum(-1))
        if not seed:
            torch.testing.assert_close(found[0], compute_estimates(features, q, k))
    columns = torch.stack(found)
    error = columns.std(0) / len(found) ** 0.5
    assert ((columns.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.08 * exact).all()  # small enough to notice a bias


def measure_error(count: int, *, seeds: int = 200) -> float:
    """Root mean square of the relative error with ``count`` features."""
    q, k = random(20, D, seed=3) / 2, random(20, D, seed=4) / 2
    exact = ((q * k).sum(-1) / D**0.5).exp()
    maps = [RandomFeatures(D, count, seed=seed) for seed in range(seeds)]
    columns = torch.stack([compute_estimates(one, q, k) for one in maps])
    return float((columns / exact - 1).square().mean().sqrt())


def test_the_error_falls_with_the_root_of_the_number_of_features() -> None:
    few, many = measure_error(2 * D), measure_error(32 * D)
    assert 3.0 < few / many < 5.3  # 4 by theory


def test_orthogonal_vectors_have_a_smaller_error_than_independent_ones() -> None:
    features = RandomFeatures(D, 2 * D + 3)
    for block in features.projection.split(D):
        products = block @ block.mT
        torch.testing.assert_close(products, products.diagonal().diag())
    q, k = random(20, D, seed=3) / 2, random(20, D, seed=4) / 2
    exact = ((q * k).sum(-1) / D**0.5).exp()
    squares = []
    for seed in range(200):
        independent = RandomFeatures(D, D)
        object.__setattr__(independent, "projection", random(D, D, seed=1000 + seed))
        squares.append((compute_estimates(independent, q, k) / exact - 1).square().mean())
    assert measure_error(D) < 0.95 * float(torch.stack(squares).mean().sqrt())


def test_lengths_of_the_vectors_are_those_of_normal_ones() -> None:
    rows = torch.cat([RandomFeatures(D, 4 * D, seed=n).projection for n in range(100)])
    squares = rows.square().sum(-1)  # chi-squared
    assert float(squares.mean()) == pytest.approx(D, rel=0.05)
    assert float(squares.var()) == pytest.approx(2 * D, rel=0.2)
    torch.testing.assert_close(rows.mT @ rows / len(rows), torch.eye(D).double(), atol=0.1, rtol=0)


def test_it_depends_on_its_arguments_only() -> None:
    one, same, other = (RandomFeatures(D, M, seed=seed) for seed in (3, 3, 4))
    assert one == same != other
    assert hash(one) == hash(same)
    assert torch.equal(one.projection, same.projection)
    assert not torch.equal(one.projection, other.projection)
    assert repr(one) == "RandomFeatures(head_dim=8, num_features=24, seed=3)"


def compute_naively(
    q: Tensor, k: Tensor, v: Tensor, features: RandomFeatures, weights: Tensor
) -> Tensor:
    """Attention from every pair of tokens; q and k are rotated, weights [.., T, S]."""
    k, v = (x.repeat_interleave(H // G, 1) for x in (k, v))
    T, S = q.shape[2], k.shape[2]
    both = (q.unsqueeze(3).expand(-1, -1, T, S, D), k.unsqueeze(2).expand(-1, -1, T, S, D))
    scores = compute_estimates(features, *(x.reshape(-1, D) for x in both))
    scores = scores.view(*q.shape[:2], T, S) * weights
    return scores @ v / scores.sum(-1, keepdim=True)


@pytest.mark.parametrize("name", ["none", "rope", "yarn", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_the_definition(name: str, causal: bool) -> None:
    T = 70
    q, k, v = random(2, H, T, D), random(2, G, T, D, seed=1), random(2, G, T, 5, seed=2)
    scaling = YaRN(factor=4.0, original_context=16) if name == "yarn" else None
    rope = whorl.RoPE(D, scaling=scaling)
    encoding = {"none": None, "rope": rope, "yarn": rope, "alibi": rope + whorl.ALiBi(H)}[name]
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[1, 3:9] = False
    weights = mask[:, None, None].double().expand(2, H, T, T)
    if causal:
        weights = weights.tril()
    if name == "alibi":
        if not causal:
            return
        distance = torch.arange(T)[:, None] - torch.arange(T)
        slopes = whorl.ALiBi(H).slopes().double()[:, None, None]
        weights = weights * torch.exp(-slopes * distance.clamp(min=0))
    features = RandomFeatures(D, M)
    rotated_q, rotated_k = (q, k) if encoding is None else rope(q, k)
    want = compute_naively(rotated_q, rotated_k, v, features, weights)
    out = linear_attention(q, k, v, encoding, feature_map=features, causal=causal, mask=mask)
    torch.testing.assert_close(out, want, rtol=1e-8, atol=1e-9)


def test_with_many_features_it_is_softmax_attention() -> None:
    q, k, v = (random(1, 2, 30, D, seed=n) / 2 for n in range(3))
    rope, errors = whorl.RoPE(D), []
    want = whorl.attention(q, k, v, rope, causal=True)
    for count in (64, 16384):
        out = linear_attention(q, k, v, rope, feature_map=RandomFeatures(D, count), causal=True)
        errors.append(float((out - want).square().mean().sqrt()))
    assert 8 * errors[1] < errors[0]  # 16 times less by theory
    assert errors[1] < 0.01


def test_pieces_give_what_the_whole_gives() -> None:
    q, k, v = (random(1, 2, 41, D, seed=n) for n in range(3))
    rope, features = whorl.RoPE(D), RandomFeatures(D, M)
    options = {"feature_map": features, "causal": True, "return_state": True}
    whole, _ = linear_attention(q, k, v, rope, **options)
    parts, state = [], None
    for piece in zip(*(x.split((20, 20, 1), 2) for x in (q, k, v)), strict=True):
        out, state = linear_attention(*piece, rope, state=state, **options)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 2), whole)
    assert state is not None
    assert state.numerator.shape == (1, 2, M, D)
    other = {**options, "feature_map": RandomFeatures(D, M, seed=1)}
    with pytest.raises(ValueError, match=r"feature_map must be that of the state, RandomFeatures"):
        linear_attention(q, k, v, rope, state=state, **other)


def test_long_vectors_give_finite_numbers_and_gradients() -> None:
    features = RandomFeatures(D, 4 * D)
    for size in (1e-3, 10.0, 100.0):
        q, k, v = (random(1, 1, 20, D, dtype=torch.float32, seed=n) for n in range(3))
        q, k = (size * q).requires_grad_(), (size * k).requires_grad_()
        out = linear_attention(q, k, v, feature_map=features, causal=True)
        out.sum().backward()
        for x in (out, q.grad, k.grad):
            assert x is not None
            assert x.isfinite().all()
    along = 8 * features.projection[:1].float() * D**0.25  # the feature of a key at its largest
    assert features.compute_key_features(along).isfinite().all()


def test_gradients_transforms_and_one_graph() -> None:
    features, rope = RandomFeatures(D, 5), whorl.RoPE(D)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = linear_attention(q, k, v, rope, feature_map=features, causal=True)
        return out

    inputs = [random(1, 1, 4, D, seed=n).requires_grad_() for n in range(3)]
    assert torch.autograd.gradcheck(call, inputs)
    many = [torch.stack([x.detach(), 2 * x.detach()]) for x in inputs]
    torch.testing.assert_close(vmap(call)(*many)[1], call(*(x[1] for x in many)))
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), call(*inputs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 0}, r"head_dim must be a whole number of at least 1; got 0\."),
        ({"num_features": 2.0}, r"num_features must be a whole number of at least 1; got 2\.0\."),
        ({"seed": -1}, r"seed must be a whole number of at least 0; got -1\."),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^RandomFeatures: {message}$"):
        RandomFeatures(**{"head_dim": D, **options})


def test_what_does_not_fit_is_refused() -> None:
    q, k, v = (random(1, 1, 4, D, seed=n) for n in range(3))
    message = r"for heads of 8 channels, as q has; got RandomFeatures\(.*\)\. Build it with head_d"
    with pytest.raises(ValueError, match=message):
        linear_attention(q, k, v, feature_map=RandomFeatures(4))
    message = r"must be 'elu', 'relu' or 'cosine' with XPos\(8\), whose keys are .* Choose one of"
    with pytest.raises(ValueError, match=message):
        linear_attention(q, k, v, whorl.XPos(D), feature_map=RandomFeatures(D), causal=True)
