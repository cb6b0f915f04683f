"""Denominators of linear attention: from the definition pair by pair, and the naive form fails."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from tests.attention.linear_naive import rotary
from whorl.analysis import Denominator, denominators


def pairs(kind: str, length: int, inv_freq: Tensor) -> list[Tensor]:
    """Naive form, form one and form two as sums over all pairs, of the default seed's numbers."""
    generator = torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, 8, length, 16, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    at = torch.arange(length)
    turn = rotary(at, at, inv_freq)
    phi = (lambda x: torch.where(x > 0, x + 1, x.exp())) if kind == "elu" else torch.relu
    turned, still = turn(phi(q), phi(k)), (phi(q), phi(k))
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (q, k)]
    around = turn(*unit)
    naive, one = (torch.einsum("bhid,bhjd->bhij", *x).sum(-1) for x in (turned, still))
    two, flat = ((1 + a @ b.mT).sum(-1) for a, b in (around, unit))
    return [naive / one.mean(), one / one.mean(), two / flat.mean()]


@pytest.mark.parametrize("kind", ["elu", "relu"])
@pytest.mark.parametrize("length", [1, 7, 300])
@pytest.mark.parametrize(
    "rope",
    [whorl.RoPE(16), whorl.RoPE(16, scaling=whorl.YaRN(factor=8.0, original_context=32))],
    ids=repr,
)
def test_equals_the_sum_over_pairs(kind: Any, length: int, rope: whorl.RoPE) -> None:
    """The attention scale of YaRN is left out, as linear attention does."""
    (got,) = denominators(rope, [length], feature_map=kind)
    assert got.length == length
    wants = pairs(kind, length, rope.frequencies().inv_freq)
    for each, want in zip(got[1:], wants, strict=True):
        assert isinstance(each, Denominator)
        whole = Denominator(
            float(want.min()),
            float(want.abs().min()),
            float((want < 0).double().mean()),
            float((want < 0.05).double().mean()),
        )
        torch.testing.assert_close(tuple(each), tuple(whole), rtol=1e-9, atol=1e-12)


def test_the_naive_form_fails_and_the_others_do_not() -> None:
    found = denominators(whorl.RoPE(16), [16, 256, 4096])
    nearest = [each.naive.nearest for each in found]
    assert nearest[0] > 0.2 > nearest[1] > 1e-2 > 1e-3 > nearest[2]
    assert found[0].naive.negative == 0.0 < found[2].naive.negative
    assert found[2].naive.lowest < -0.03
    assert found[2].naive.small > found[2].naive.negative
    for each in found:
        assert each.form_one.lowest == each.form_one.nearest > 0.3
        assert each.form_two.lowest == each.form_two.nearest > 0.8
        assert each.form_one.negative == each.form_two.negative == 0.0
        assert each.form_one.small == each.form_two.small == 0.0
    relu = denominators(whorl.RoPE(16), [16], feature_map="relu")[0]
    assert relu.naive.lowest < 0 < relu.form_one.lowest


def test_depends_on_its_arguments_only() -> None:
    rope = whorl.RoPE(16)
    assert denominators(rope, [30], seed=1) == denominators(rope, [30], seed=1)
    assert denominators(rope, [30], seed=1) != denominators(rope, [30])
    assert denominators(rope + whorl.NoPE(), [9, 30])[1:] == denominators(rope, [30])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"encoding": 3}, TypeError, r"encoding must be a whorl\.Encoding; got 3\."),
        (
            {"encoding": whorl.ALiBi(2)},
            ValueError,
            r"must be a rotation with one axis .* ALiBi\(2\)",
        ),
        ({"encoding": whorl.AxialRoPE(8)}, ValueError, r"as RoPE does; got AxialRoPE\(8\)\."),
        (
            {"encoding": whorl.XPos(8)},
            ValueError,
            r"works without a causal mask, .* got XPos\(8\)\.",
        ),
        ({"lengths": []}, ValueError, r"lengths must be a list of ints; got \[\]\."),
        ({"lengths": 5}, ValueError, r"lengths must be a list of ints; got 5\."),
        ({"lengths": [0]}, ValueError, r"each of lengths must be an int >= 1; got 0\."),
        ({"num_heads": -1}, ValueError, r"num_heads must be an int >= 1; got -1\."),
        ({"feature_map": "cosine"}, ValueError, r"must be 'elu' or 'relu', .*; got 'cosine'\."),
        ({"seed": "a"}, ValueError, r"seed must be an int of 64 bits; got 'a'\."),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="denominators: .*" + message):
        denominators(**{"encoding": whorl.RoPE(8), "lengths": [4], **options})
