"""attention: every encoding, mask and path against one dense computation in float64."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.attention import attention
from whorl.attention.softmax import compute
from whorl.testing.inputs import set_random_parameters

H, D = 4, 8
ENCODINGS: list[whorl.Encoding] = [
    whorl.NoPE(),
    whorl.Sinusoidal(H * D),
    whorl.RoPE(D),
    whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=8)),
    whorl.RoPE(D, scaling=whorl.YaRN(factor=4.0, original_context=16)),
    whorl.MRoPE(D, sections=(1, 1, 2)),
    whorl.XPos(D),
    whorl.ALiBi(H),
    whorl.ALiBi(H, slopes="trained"),
    whorl.T5Bias(H, max_distance=16),
    whorl.Kerple(H),
    whorl.RelativeBias(H, max_distance=5),
    whorl.Shaw(H, D, left=4, values="trained"),
    whorl.Shaw(H, D, left=4),
    whorl.TransformerXL(H, D),
    whorl.DeBERTa(H, D, max_distance=6),
    whorl.RoPE(D) + whorl.ALiBi(H),
    whorl.XPos(D) + whorl.T5Bias(H, scale=None),
    whorl.Sinusoidal(H * D) + whorl.Shaw(H, D) + whorl.ALiBi(H),
]


def fresh(encoding: whorl.Encoding) -> whorl.Encoding:
    """Another one in float64 with random parameters: no test sees what another did to it."""
    return set_random_parameters(copy.deepcopy(encoding)).double()


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: whorl.Encoding,
    at: Tensor,
    keys_at: Tensor,
    seen: Tensor,
    scale: float | None = None,
) -> Tensor:
    """Attention with every matrix written out; at [T], keys_at [S], seen [B, H, T, S]."""
    turned_q, turned_k = encoding(q, k, at, keys_at)
    group = q.shape[1] // k.shape[1]
    score = turned_q @ turned_k.repeat_interleave(group, 1).mT
    if (content := encoding.content_score(q, k, at, keys_at)) is not None:
        score = score + content
    scale = encoding.softmax_scale(q.shape[3]) if scale is None else scale
    score = score * (q.shape[3] ** -0.5 if scale is None else scale)
    if (bias := encoding.distance_bias(at[:, None] - keys_at[None, :])) is not None:
        score = score + bias
    weights = score.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0.0)
    out = weights @ v.repeat_interleave(group, 1)
    if (more := encoding.value_term(weights, at, keys_at)) is not None:
        out = out + more
    return out


def visible(
    at: Tensor, keys_at: Tensor, *, causal: bool, window: int | None = None, sinks: int = 0
) -> Tensor:
    """By the definition, pair by pair."""
    seen = torch.zeros(len(at), len(keys_at), dtype=torch.bool)
    for i, m in enumerate(at.tolist()):
        for j, n in enumerate(keys_at.tolist()):
            near = window is None or abs(m - n) < window or 0 <= n < sinks
            seen[i, j] = near and (n <= m or not causal)
    return seen


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("T", "S"), [(13, 13), (3, 13), (1, 9)])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_every_encoding(encoding: whorl.Encoding, T: int, S: int, causal: bool) -> None:
    encoding = fresh(encoding)
    if encoding.causal and not causal:
        pytest.skip("causal only")
    q, k, v = randn(2, H, T, D), randn(2, 2, S, D, seed=1), randn(2, 2, S, D, seed=2)
    at, keys_at = torch.arange(S - T, S), torch.arange(S)
    seen = visible(at, keys_at, causal=causal).expand(2, H, T, S)
    want = dense(q, k, v, encoding, at, keys_at, seen)
    for block in (3, 256):
        got = attention(q, k, v, encoding, causal=causal, block=block)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=60)
@given(st.data())
def test_masks_windows_sinks_documents_and_positions(data: st.DataObject) -> None:
    encoding = fresh(data.draw(st.sampled_from(ENCODINGS)))
    S = data.draw(st.integers(1, 20))
    T = data.draw(st.integers(1, S))
    causal = encoding.causal or data.draw(st.booleans())
    window = data.draw(st.one_of(st.none(), st.integers(1, S + 2)))
    sinks = data.draw(st.integers(0, 3)) if window is not None else 0
    options: dict[str, Any] = {"causal": causal, "window": window, "sinks": sinks}
    at, keys_at = torch.arange(S - T, S), torch.arange(S)
    if encoding.position_axes == 1 and data.draw(st.booleans()):
        steps = data.draw(st.lists(st.integers(0, 3), min_size=S, max_size=S))
        keys_at = torch.tensor(steps).cumsum(0)
        at = keys_at[S - T :] + data.draw(st.integers(-1, 2))
        at, keys_at = at.clamp(min=0), keys_at.clamp(min=0)
        options |= {"positions": at, "key_positions": keys_at}
    seen = visible(at, keys_at, causal=causal, window=window, sinks=sinks).expand(2, H, T, S)
    if data.draw(st.booleans()):
        kept = randn(2, S, seed=data.draw(st.integers(0, 99))) > -0.5
        options["mask"] = kept
        seen = seen & kept[:, None, None, :]
    q, k, v = randn(2, H, T, D), randn(2, 2, S, D, seed=1), randn(2, 2, S, D, seed=2)
    wide = data.draw(st.booleans())
    v = torch.cat((v, v[..., :3]), -1) if wide and "value" not in encoding.hooks else v
    want = dense(q, k, v, encoding, at, keys_at, seen)
    got = attention(q, k, v, encoding, block=data.draw(st.sampled_from([3, 256])), **options)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_per_row_positions_are_those_of_the_row_alone() -> None:
    encoding = (whorl.RoPE(D) + whorl.T5Bias(H)).double()
    q, k, v = randn(2, H, 6, D), randn(2, H, 6, D, seed=1), randn(2, H, 6, D, seed=2)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    at = whorl.positions.from_mask(mask)
    both = attention(q, k, v, encoding, causal=True, positions=at, mask=mask)
    alone = attention(q[:1, :, 2:], k[:1, :, 2:], v[:1, :, 2:], encoding, causal=True)
    torch.testing.assert_close(both[:1, :, 2:], alone)


def test_a_query_that_sees_nothing_gives_zero_and_finite_gradients() -> None:
    q, k, v = (randn(1, H, 5, D, seed=n).requires_grad_() for n in range(3))
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    for encoding in (whorl.NoPE(), whorl.ALiBi(H), whorl.Shaw(H, D, values="trained")):
        out = attention(q, k, v, fresh(encoding), causal=True, mask=mask)
        assert not out[:, :, :2].any()
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert all(bool(g.isfinite().all()) for g in grads)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_gradients_are_those_of_the_dense_form(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    q, k, v = (randn(1, H, 7, D, seed=n).requires_grad_() for n in range(3))
    at = torch.arange(7)
    seen = visible(at, at, causal=True).expand(1, H, 7, 7)
    inputs = [q, k, v, *encoding.parameters()]
    weight = randn(1, H, 7, D, seed=9)
    results = [
        torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True)
        for out in (
            attention(q, k, v, encoding, causal=True, block=3),
            dense(q, k, v, encoding, at, at, seen),
        )
    ]
    for mine, theirs in zip(*results, strict=True):
        if theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_half_precision_is_near(encoding: whorl.Encoding, dtype: torch.dtype) -> None:
    q, k, v = (randn(1, H, 40, D, seed=n, dtype=dtype) for n in range(3))
    at = torch.arange(40)
    seen = visible(at, at, causal=True).expand(1, H, 40, 40)
    encoding = fresh(encoding)
    want = dense(q.double(), k.double(), v.double(), encoding, at, at, seen)
    got = attention(q, k, v, encoding.float(), causal=True, block=16)
    assert got.dtype == dtype
    assert (got.double() - want).abs().max() < 8 * torch.finfo(dtype).eps


def test_xpos_far_out_in_float16() -> None:
    """Positions that no single reference serves: every block has one of its own."""
    xpos, length = whorl.XPos(D), 600
    q, k, v = (randn(1, 2, length, D, seed=n, dtype=torch.float16) for n in range(3))
    far = torch.arange(60_000, 60_000 + length)
    got = attention(q, k, v, xpos, causal=True, positions=far, block=128)
    a, b, c = (x.double() for x in (q, k, v))
    want = attention(a, b, c, xpos, causal=True, positions=far - 60_000)
    assert (got.double() - want).abs().max() < 8 * torch.finfo(torch.float16).eps


def test_dropout_keeps_the_mean_and_needs_the_blocks() -> None:
    q, k = randn(1, H, 30, D), randn(1, H, 30, D, seed=1)
    v = torch.ones(1, H, 30, D, dtype=torch.float64)
    torch.manual_seed(0)
    out = attention(q, k, v, whorl.ALiBi(H).double(), dropout=0.3)
    assert not torch.allclose(out, torch.ones_like(out))
    assert abs(float(out.mean()) - 1) < 0.05
    q.requires_grad_()
    torch.manual_seed(1)
    out = attention(q, k, v, dropout=0.3)
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.isfinite().all()


def test_vectors_are_used_where_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bias by distance on consecutive positions may go through blocks of T x S."""

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("blocks")

    monkeypatch.setattr(compute.SoftmaxCall, "attend_in_blocks", refuse)
    q, k, v = (randn(1, H, 20, D, seed=n, dtype=torch.float32) for n in range(3))
    fixed = [whorl.ALiBi(H), whorl.T5Bias(H), whorl.Kerple(H), whorl.RoPE(D) + whorl.ALiBi(H)]
    with torch.no_grad():
        for encoding in fixed:
            attention(q, k, v, encoding, causal=True, block=8)
            attention(q, k, v, encoding, causal=False)
            attention(q, k, v, encoding, causal=True, window=5)
            attention(q[:, :, 15:], k, v, encoding, causal=True)
            attention(q, k, v, encoding, causal=True, positions=torch.arange(7, 27))
        attention(q, k, v, whorl.RoPE(D), causal=True, window=5)
        with pytest.raises(AssertionError, match="blocks"):
            attention(q, k, v, whorl.Shaw(H, D), causal=True)
    with pytest.raises(AssertionError, match="blocks"):
        attention(q, k, v, whorl.T5Bias(H), causal=True)  # its bias is trained


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"encoding": 3}, TypeError, r"encoding must be a whorl\.Encoding such as .*; got 3\."),
        (
            {"q": "long"},
            TypeError,
            r"q must be float32, float64, bfloat16 or float16; got torch\.int64",
        ),
        ({"v": "half"}, TypeError, r"must have one dtype and device; got torch\.float64"),
        ({"q": "flat"}, ValueError, r"q must be \[B, heads, tokens, channels\]; got \[4, 6, 8\]"),
        ({"k": "short"}, ValueError, r"shapes must be q \[B, H, T, D\], k \[B, G, S, D\], v"),
        ({"k": "heads"}, ValueError, r"G a divisor of H; got .* \[1, 3, 6, 8\]"),
        (
            {"encoding": whorl.XPos(D)},
            ValueError,
            r"causal must be True for XPos\(8\), because",
        ),
        (
            {"encoding": whorl.ALiBi(3)},
            ValueError,
            r"q must have 3 heads for .* got 4. Build the enc",
        ),
        ({"dropout": 1.0}, ValueError, r"dropout must be a number in \[0, 1\); got 1\.0"),
        ({"block": 0}, ValueError, r"block must be a positive int up to 2\^62; got 0"),
        (
            {"window": 0},
            ValueError,
            r"window must be a positive int up to 2\^62, how many positions back",
        ),
        ({"window": 2**70}, ValueError, r"window must be a positive int up to 2\^62"),
        ({"sinks": -1}, ValueError, r"sinks must be an int >= 0, up to 2\^62; got -1"),
        ({"causal": "no"}, TypeError, r"causal must be True or False; got 'no'"),
        ({"scale": math.nan}, ValueError, r"scale must be a finite number, or None for that"),
        ({"scale": "x"}, ValueError, r"scale must be a finite number, or None for that"),
        ({"cache": 3}, TypeError, r"cache must be a whorl\.KVCache, or None; got 3"),
        ({"q": "empty", "k": "empty"}, ValueError, r"q and k must have channels, because"),
        ({"q": "fp8", "k": "fp8", "v": "fp8"}, TypeError, r"got torch\.float8_e4m3fn"),
        (
            {"positions": torch.full((6,), math.nan)},
            ValueError,
            r"positions must be finite, because a token at NaN or infinity is nowhere; got some",
        ),
        (
            {"positions": torch.arange(6), "key_positions": torch.arange(6.0) / 0},
            ValueError,
            r"key_positions must be finite, because",
        ),
        (
            {
                "encoding": whorl.AxialRoPE(D),
                "positions": torch.zeros(2, 6).long(),
                "key_positions": torch.arange(6),
            },
            ValueError,
            r"positions and key_positions must both have 2 axes, \[2, T\] or \[2, B, T\], or for"
            r" MRoPE both be \[T\], the same position on every axis; got \[\[2, 6\], \[6\]\]\.",
        ),
        (
            {
                "q": "more",
                "causal": True,
                "encoding": whorl.AxialRoPE(D),
                "positions": torch.zeros(2, 7).long(),
                "key_positions": torch.zeros(2, 6).long(),
            },
            ValueError,
            r"positions on several axes do not say which keys a query comes after, so .* got 7"
            r" and 6\. Leave out causal, window and biases, or with MRoPE pass positions",
        ),
        ({"sinks": 2}, ValueError, r"sinks must be 0 without a window, because every key .* got 2"),
        (
            {"mask": torch.zeros(1, 6)},
            TypeError,
            r"mask must be a tensor, boolean or integers, 1 for visible",
        ),
        (
            {"mask": torch.ones(6, 6, dtype=torch.bool)},
            ValueError,
            r"got \[6, 6\]\. Pass mask\[None, None\] for a mask \[T, S\] of all rows\.",
        ),
        (
            {"mask": torch.ones(1, 5, dtype=torch.bool)},
            ValueError,
            r"mask must be \[B, S\] for pad",
        ),
        ({"cu_seqlens": 3}, TypeError, r"cu_seqlens must be integers \[N \+ 1\]; got int"),
        (
            {"documents": torch.zeros(6)},
            TypeError,
            r"documents must be integers .*; got torch\.float",
        ),
        ({"documents": torch.zeros(5).long()}, ValueError, r"documents must be integers \[S\] or"),
        (
            {"cu_seqlens": torch.tensor([0, 5])},
            ValueError,
            r"cu_seqlens must be integers \[N \+ 1\] for one packed row, B = 1, that rise",
        ),
        (
            {"cu_seqlens": torch.tensor([0, 6]), "documents": torch.zeros(6).long()},
            ValueError,
            r"documents must be None with cu_seqlens",
        ),
        (
            {"key_positions": torch.arange(6)},
            ValueError,
            r"positions must be given with key_positions",
        ),
        (
            {"q": "more", "causal": True},
            ValueError,
            r"positions must be given, because 7 queries cannot be the last of 6",
        ),
        (
            {"q": "fewer", "positions": torch.arange(5)},
            ValueError,
            r"key_positions must be given .* q has 5 tokens and k has 6; got None",
        ),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {name: randn(1, H, 6, D) for name in "qkv"}
    spoilt: dict[str, Any] = {
        "long": torch.zeros(1, H, 6, D).long(),
        "flat": randn(H, 6, D),
        "half": randn(1, H, 6, D).half(),
        "short": randn(1, H, 5, D),
        "heads": randn(1, 3, 6, D),
        "more": randn(1, H, 7, D),
        "fewer": randn(1, H, 5, D),
        "empty": randn(1, H, 6, 0),
        "fp8": randn(1, H, 6, D).to(torch.float8_e4m3fn),
    }
    if change.get("k") == "heads":
        arguments["v"] = spoilt["heads"]
    arguments |= {n: spoilt.get(v, v) if isinstance(v, str) else v for n, v in change.items()}
    with pytest.raises(error, match="attention: .*" + message):
        attention(**arguments)


def test_axial_positions_have_no_default_in_packed_documents_either() -> None:
    """Their order is no place on every axis: AxialRoPE refuses [T], and no positions."""
    axial, (q, k, v) = whorl.AxialRoPE(D), (randn(1, H, 6, D, seed=n) for n in range(3))
    ids, at = torch.arange(6) // 4, torch.arange(6)
    for where, came in ((None, "None"), (at, r"\[6\]")):
        message = rf"AxialRoPE: positions must be \[n, T\] or \[n, B, T\], .*; got {came}\."
        for documents in (None, ids):
            with pytest.raises(ValueError, match=message):
                attention(q, k, v, axial, documents=documents, positions=where)
    for mrope in (whorl.MRoPE(D, sections=(1, 1, 2)), whorl.RoPE(D)):
        want = attention(q, k, v, mrope, documents=ids)
        got = attention(q, k, v, mrope, documents=ids, positions=at - 4 * ids)
        torch.testing.assert_close(got, want)


def test_plain_cross_attention_may_have_more_queries_than_keys() -> None:
    q, k, v = randn(1, H, 9, D), randn(1, 2, 5, D, seed=1), randn(1, 2, 5, D, seed=2)
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    got = attention(q, k, v, mask=mask)
    seen = mask.bool()[:, None, None].expand(1, H, 9, 5)
    want = dense(q, k, v, whorl.NoPE(), torch.arange(9), torch.arange(5), seen)
    torch.testing.assert_close(got, want)
    with pytest.raises(
        ValueError, match=r"positions must be given, because 9 queries cannot be the last of 5"
    ):
        attention(q, k, v, causal=True)


def test_segments_reach_the_encoding() -> None:
    xl = whorl.TransformerXL(H, D, segments="xlnet").double()
    set_random_parameters(xl)
    q, k, v = randn(2, H, 4, D), randn(2, H, 9, D, seed=1), randn(2, H, 9, D, seed=2)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0] * 5 + [1] * 4])
    got = attention(q, k, v, xl, segments=ids, block=3)
    at, keys_at = torch.arange(5, 9), torch.arange(9)
    content = xl.content_score(q, k, at, keys_at, segments=ids[:, 5:], key_segments=ids)
    want = ((q @ k.mT + content) * D**-0.5).softmax(-1) @ v
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"segments must be integers \[S\] or \[B, S\], one for"):
        attention(q, k, v, xl, segments=ids[:, :4])
    for other in (whorl.RoPE(D), whorl.Shaw(H, D)):
        with pytest.raises(ValueError, match=r"for an encoding with vectors for them"):
            attention(q, k, v, other, segments=ids)
    with pytest.raises(
        TypeError, match=r"segments must be integers \[S\] or \[B, S\]; got torch\.fl"
    ):
        attention(q, k, v, xl, segments=ids.float())
