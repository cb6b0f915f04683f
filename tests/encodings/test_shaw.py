"""Shaw: the definition in slow loops, its properties, and what it refuses."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings import Shaw

from .content import filled, places, random, row, worst

AT = torch.arange(5)
Q, K = torch.zeros(2, 4, 5, 6), torch.zeros(2, 2, 5, 6)


def clipped(i: int, j: int, left: int, right: int) -> int:
    return max(-left, min(right, j - i)) + left


def sinusoid(row: int, width: int) -> list[float]:
    angles = [row / 10_000 ** (2 * n / width) for n in range(width // 2)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


def table(shaw: Shaw, which: str, head: int) -> Tensor:
    """Vectors of one head, farthest on the left first."""
    if getattr(shaw.config, which) == "sinusoidal":
        rows = [sinusoid(n, shaw.config.head_dim) for n in range(shaw.config.rows)]
        return torch.tensor(rows, dtype=torch.float64)
    trained = shaw.key_vectors if which == "keys" else shaw.value_vectors
    assert trained is not None
    return trained[head] if trained.dim() == 3 else trained


@given(data=st.data(), T=st.integers(1, 5), S=st.integers(1, 6))
@settings(max_examples=40)
def test_score_and_value_are_the_definition(data: st.DataObject, T: int, S: int) -> None:
    left, right = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9))
    keys: Any = data.draw(st.sampled_from(["trained", "sinusoidal"]))
    heads: Any = "shared" if keys == "sinusoidal" else data.draw(st.sampled_from(["shared", "own"]))
    shaw = filled(Shaw(4, 6, left=left, right=right, keys=keys, values=keys, heads=heads))
    at, key_at = data.draw(places(T)), data.draw(places(S))
    q, k, weights = random(2, 4, T, 6), random(2, 2, S, 6, seed=1), random(2, 4, T, S, seed=2)
    score, value = torch.zeros(2, 4, T, S).double(), torch.zeros(2, 4, T, 6).double()
    for b in range(2):
        for h in range(4):
            a, v = table(shaw, "keys", h), table(shaw, "values", h)
            for t, i in enumerate(row(at, b)):
                for s, j in enumerate(row(key_at, b)):
                    c = clipped(i, j, left, right)
                    score[b, h, t, s] = q[b, h, t] @ a[c]
                    value[b, h, t] += weights[b, h, t, s] * v[c]
    torch.testing.assert_close(shaw.content_score(q, k, at, key_at), score, rtol=0, atol=1e-12)
    torch.testing.assert_close(shaw.value_term(weights, at, key_at), value, rtol=0, atol=1e-12)


@given(data=st.data(), step=st.integers(-(10**6), 10**6))
@settings(max_examples=25)
def test_scores_depend_on_differences_only(data: st.DataObject, step: int) -> None:
    shaw = filled(Shaw(2, 4, left=7, right=3, values="trained"))
    at, key_at = data.draw(places(4)), data.draw(places(5))
    q, k, weights = random(2, 2, 4, 4), random(2, 2, 5, 4), random(2, 2, 4, 5)
    for hook, args in ((shaw.content_score, (q, k)), (shaw.value_term, (weights,))):
        assert torch.equal(hook(*args, at + step, key_at + step), hook(*args, at, key_at))


def test_beyond_the_clip_all_keys_are_alike() -> None:
    shaw = filled(Shaw(1, 4, left=3, right=2))
    q, k = random(1, 1, 1, 4), random(1, 1, 12, 4)
    score = shaw.content_score(q, k, torch.tensor([5]), torch.arange(12))[0, 0, 0]
    assert score[:3].unique().numel() == 1
    assert score[7:].unique().numel() == 1
    assert score.unique().numel() == 6


def test_no_tensor_with_an_axis_for_both_pairs_and_channels() -> None:
    shaw, (T, D) = Shaw(1, 64, left=2, values="trained"), (512, 64)
    q, at, weights = torch.zeros(1, 1, T, D), torch.arange(T), torch.zeros(1, 1, T, T)
    with torch.profiler.profile(profile_memory=True) as profile:
        shaw.content_score(q, q, at, at)
        shaw.value_term(weights, at, at)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < T * T * D


def test_value_hook_is_there_only_with_value_vectors() -> None:
    assert Shaw(2, 4).hooks == {"score"}
    assert Shaw(2, 4, values="sinusoidal").hooks == {"score", "value"}
    assert Shaw(2, 4).value_term(torch.zeros(1, 2, 5, 5), AT, AT) is None


def test_parameters_and_their_start() -> None:
    torch.manual_seed(0)
    assert list(Shaw(2, 4, keys="sinusoidal").parameters()) == []
    shaw = Shaw(8, 64, left=200, values="trained", heads="own")
    bound = math.sqrt(6 / (401 + 64))
    for vectors in map(Tensor.detach, shaw.parameters()):
        assert vectors.shape == (8, 401, 64)
        assert 0.99 * bound < float(vectors.abs().max()) <= bound
        assert float(vectors.mean()) == pytest.approx(0, abs=0.01 * bound)
        assert float(vectors.std()) == pytest.approx(bound / math.sqrt(3), rel=0.01)
    hollow = shaw.to_empty(device="meta").to_empty(device="cpu")
    hollow.reset_parameters()
    assert all(0 < float(p.detach().abs().max()) <= bound for p in hollow.parameters())


def test_half_precision_rounds_once() -> None:
    shaw = filled(Shaw(2, 64, left=40, keys="trained"))
    q, k, at = random(1, 2, 30, 64).bfloat16(), random(1, 2, 30, 64).bfloat16(), torch.arange(30)
    exact = shaw.content_score(q.double(), k.double(), at, at).detach()
    got = shaw.content_score(q, k, at, at)
    assert got.dtype == torch.bfloat16
    assert worst(got, exact) <= whorl.testing.compute_rounding_tolerance(exact, torch.bfloat16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"Shaw: num_heads must be an int >= 1; got 0"),
        ({"head_dim": 6.0}, r"Shaw: head_dim must be an int >= 1; got 6\.0"),
        ({"left": -1}, r"Shaw: left must be an int >= 0; got -1"),
        ({"right": -2}, r"Shaw: right must be an int >= 0; got -2"),
        ({"left": True}, r"Shaw: left must be an int >= 0; got True"),
        ({"left": 0}, r"left \+ right must be at least 1, because one vector for every distance"),
        ({"keys": "none"}, r"Shaw: keys must be 'trained' or 'sinusoidal'; got 'none'"),
        ({"values": "own"}, r"values must be 'none' or 'trained' or 'sinusoidal'; got 'own'"),
        ({"heads": "each"}, r"Shaw: heads must be 'shared' or 'own'; got 'each'"),
        ({"head_dim": 5, "keys": "sinusoidal"}, r"head_dim must be even with sinusoidal.*got 5"),
        ({"heads": "own", "keys": "sinusoidal"}, r"heads='own' needs trained vectors, because"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shaw(**{"num_heads": 4, "head_dim": 6, **options})


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"q": [1.0]}, TypeError, r"q must be a floating-point tensor \[B, H, T, D\]; got list"),
        ({"k": K.long()}, TypeError, r"k must be a floating-point tensor.*got torch\.int64"),
        ({"q": Q[0]}, ValueError, r"q must be \[B, H, T, D\] with D = head_dim = 6; got \[4, 5, 6"),
        ({"k": K[..., :4]}, ValueError, r"k must be .*k\.unflatten\(-1, \(-1, 6\)\)\.transpose"),
        ({"q": Q[:, :2]}, ValueError, r"q must have num_heads = 4 heads.*got 2\. Build the enc"),
        ({"k": Q[:, :3]}, ValueError, r"heads of k must divide the 4 of q.*got 3"),
        ({"k": Q[:, :0]}, ValueError, r"heads of k must divide the 4 of q.*got 0"),
        ({"k": K[:1]}, ValueError, r"q and k must have the same batch size; got 2 and 1"),
        ({"k": K.half()}, TypeError, r"q is torch\.float32 but k is torch\.float16"),
        ({"positions": None}, TypeError, r"positions must be a tensor.*got None\. Use torch\.aran"),
        ({"positions": AT[:4]}, ValueError, r"content_score, positions: .*with T = 5; got \[4\]"),
        ({"key_positions": AT[:4]}, ValueError, r"score, key_positions: .*T = 5; got \[4\]"),
        ({"positions": AT.float()}, TypeError, r"must be integers, because a distance chooses a"),
        ({"key_positions": AT.float()}, TypeError, r"Use positions\.long\(\) if they are whole"),
    ],
)
def test_score_inputs(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    inputs = {"q": Q, "k": K, "positions": AT, "key_positions": AT, **change}
    with pytest.raises(kind, match=message):
        Shaw(4, 6).content_score(**inputs)


@pytest.mark.parametrize(
    ("weights", "at", "kind", "message"),
    [
        ("w", AT, ValueError, r"value_term: weights must be a floating-point tensor .*got str"),
        (Q[0], AT, ValueError, r"floating-point tensor .*got torch\.float32 \[4, 5, 6\]"),
        (torch.zeros(2, 3, 5, 5), AT, ValueError, r"must have num_heads = 4 heads; got 3"),
        (torch.zeros(2, 4, 5, 5), AT[:3], ValueError, r"positions must be .* T = 5; got \[3\]"),
        (torch.zeros(2, 4, 5, 5), AT.double(), TypeError, r"value_term: positions must be integ"),
    ],
)
def test_value_inputs(weights: Any, at: Tensor, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Shaw(4, 6, values="trained").value_term(weights, at, at)
