"""Norms of queries and keys: against their definition, with caches, and what they keep."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl.attention import attention
from whorl.attention.qk_norm import HeadNorm

GROUPED: dict[str, Any] = {"num_kv_heads": 2, "causal": True}


def build(encoding: Any, qk_norm: Any, *, weights: bool = True) -> whorl.MultiheadAttention:
    torch.manual_seed(0)
    layer = whorl.MultiheadAttention(32, 4, encoding=encoding, qk_norm=qk_norm, **GROUPED).double()
    if weights:
        for norm in (layer.q_norm, layer.k_norm):
            nn.init.uniform_(norm.weight, 0.5, 2.0)
    return layer


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def normalize(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def attend_by_definition(layer: whorl.MultiheadAttention, x: Tensor, rope: whorl.RoPE) -> Tensor:
    """Causal attention with a T x T matrix; the norm stands literally before or after."""
    q, k, v = (
        proj(x).unflatten(-1, (heads, 8)).transpose(1, 2)
        for proj, heads in ((layer.q_proj, 4), (layer.k_proj, 2), (layer.v_proj, 2))
    )
    norms = layer.q_norm.weight, layer.k_norm.weight
    if layer.qk_norm == "before":
        q, k = rope(normalize(q, norms[0]), normalize(k, norms[1]))
    else:
        q, k = (normalize(y, w) for y, w in zip(rope(q, k), norms, strict=True))
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    weights = (q @ k.mT / 8**0.5).masked_fill(future, -torch.inf).softmax(-1)
    return layer.out_proj((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("qk_norm", ["before", "after"])
@pytest.mark.parametrize(
    "rope", [whorl.RoPE(8), whorl.RoPE(8, rotary_dim=4, layout="interleaved")], ids=repr
)
def test_is_the_definition(rope: whorl.RoPE, qk_norm: str) -> None:
    layer, x = build(rope, qk_norm), draw(2, 9, 32)
    expected = attend_by_definition(layer, x, rope)
    torch.testing.assert_close(layer(x), expected, rtol=1e-10, atol=1e-10)
    inputs = [*layer.parameters()]
    cotangent = draw(2, 9, 32)
    found, wanted = (
        torch.autograd.grad((out * cotangent).sum(), inputs) for out in (layer(x), expected)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("encoding", [whorl.RoPE(8), whorl.RoPE(8) + whorl.ALiBi(4)], ids=repr)
def test_only_the_weight_tells_before_from_after(encoding: whorl.Encoding) -> None:
    x = draw(2, 9, 32)
    before, after = (build(encoding, where, weights=False) for where in ("before", "after"))
    torch.testing.assert_close(before(x), after(x), rtol=1e-12, atol=1e-12)
    before, after = (build(encoding, where) for where in ("before", "after"))
    assert not torch.allclose(before(x), after(x), atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("qk_norm", ["before", "after"])
@pytest.mark.parametrize(
    "encoding", [whorl.RoPE(8), whorl.RoPE(8, scaling=whorl.DynamicNTK(2.0, 4))], ids=repr
)
def test_a_cache_gives_what_one_call_does(encoding: whorl.Encoding, qk_norm: str) -> None:
    layer, x = build(encoding, qk_norm), draw(2, 9, 32)
    cache = whorl.KVCache(encoding)
    steps = [layer(part, cache=cache) for part in (x[:, :5], x[:, 5:6], x[:, 6:])]
    if encoding.to_dict()["scaling"] is None:
        torch.testing.assert_close(torch.cat(steps, 1), layer(x), rtol=1e-10, atol=1e-10)
    else:  # frequencies follow the length, so that only the last call saw all of it
        torch.testing.assert_close(steps[-1], layer(x)[:, 6:], rtol=1e-10, atol=1e-10)


def test_scores_depend_on_distance_before_the_rotation_only() -> None:
    x = draw(1, 6, 32)
    for qk_norm, relative in (("before", True), ("after", False)):
        layer = build(whorl.RoPE(8), qk_norm)
        moved = layer(x, positions=torch.arange(6) + 5)
        assert torch.allclose(layer(x), moved, atol=1e-9) is relative


def test_the_attention_scale_counts_in_both() -> None:
    x, yarn = draw(1, 6, 32), whorl.YaRN(factor=4.0, original_context=16)
    plain = whorl.YaRN(factor=4.0, original_context=16, attention_factor=1.0)
    for qk_norm in ("before", "after"):
        ours = build(whorl.RoPE(8, scaling=yarn), qk_norm)(x)
        assert not torch.allclose(ours, build(whorl.RoPE(8, scaling=plain), qk_norm)(x), atol=1e-6)


def test_without_a_norm_nothing_changes() -> None:
    plain = whorl.MultiheadAttention(32, 4, encoding=whorl.RoPE(8))
    parts = ("q", "k", "v", "out")
    names = {f"{part}_proj.{kind}" for part in parts for kind in ("weight", "bias")}
    assert set(plain.state_dict()) == names
    normed = build(whorl.RoPE(8), "before")
    assert set(normed.state_dict()) == names | {"q_norm.weight", "k_norm.weight"}
    assert "qk_norm 'before'" in repr(normed)
    assert "eps=1e-06" in repr(normed)
    normed.reset_parameters()
    assert torch.equal(normed.q_norm.weight, torch.ones(8).double())
    alibi = build(whorl.ALiBi(4), "before")
    assert alibi(draw(1, 3, 32)).shape == (1, 3, 32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    norm, x = HeadNorm(8), 200 * draw(2, 3, 8).to(dtype)  # whose squares float16 cannot hold
    assert norm(x).dtype == dtype
    torch.testing.assert_close(norm(x).double(), normalize(x.double(), torch.ones(8)), rtol=1e-2,
                               atol=1e-2)  # fmt: skip
    layer = build(whorl.RoPE(8), "after").to(dtype)
    assert layer(draw(1, 4, 32).to(dtype)).dtype == dtype


def test_compiled_and_exported() -> None:
    layer, x = build(whorl.RoPE(8), "after"), draw(2, 5, 32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize(
    ("encoding", "qk_norm", "message"),
    [
        (whorl.RoPE(8), "both", r"qk_norm must be one of 'none', 'before', 'after'; got 'both'\."),
        (None, "after", r"'after' needs an encoding that rotates .* got None\. Pass qk_norm='be"),
        (whorl.ALiBi(4), "after", r"'after' needs an encoding that rotates .* got ALiBi\(4\)"),
        (whorl.XPos(8), "after", r"a rotation that keeps the length of a head, .* got XPos\(8\)"),
    ],
)
def test_refuses(encoding: Any, qk_norm: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"MultiheadAttention: .*{message}"):
        whorl.MultiheadAttention(32, 4, encoding=encoding, qk_norm=qk_norm)


@pytest.mark.parametrize(
    ("weight", "encoding", "message"),
    [
        (torch.ones(7), whorl.RoPE(8), r"one number for each of the 8 channels, .*; got \[7\] of"),
        (2.0, whorl.RoPE(8), r"query_weight must be one number .* or None; got 2\.0\."),
        (torch.ones(8), whorl.XPos(8), r"query_weight must be None with XPos\(8\), whose rotation"),
    ],
)
def test_attention_refuses_weights(weight: Any, encoding: Any, message: str) -> None:
    q = torch.randn(1, 4, 3, 8)
    with pytest.raises(ValueError, match=message):
        attention(q, q, q, encoding, causal=True, query_weight=weight)
